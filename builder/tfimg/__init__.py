"""Builds TensorFlow container images that truly work, and proves it from the inside."""

__version__ = "0.1.0"
