"""Request → the image that meets it, or why none does and what would."""
