"""Making images: the way of one from plan to tags, and many of them on what machines have room for."""
