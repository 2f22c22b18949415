"""The facts: what may be combined, and the images that this makes."""
