"""Builds of images: one from plan to tags, or many on several engines."""
