"""Signed attestations about images: keys, statements, their places in the registry, verification and policies."""
