"""Making images: the way of one from plan to tags, and many of them on several engines."""
