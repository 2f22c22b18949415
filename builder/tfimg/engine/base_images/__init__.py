"""Base images: from a registry, or bootstrapped from Debian packages."""
