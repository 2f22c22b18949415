"""Builds TensorFlow container images that truly work, and proves it from the inside."""

__version__ = "0.1.0"

DOCUMENTATION = "https://tfimg.example"
"""Address of the documentation site. A reserved name (RFC 2606) until the site is published: nobody else can own it."""
