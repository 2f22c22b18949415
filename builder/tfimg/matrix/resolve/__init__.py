"""Resolve a request to an image, or explain why none meets it."""
