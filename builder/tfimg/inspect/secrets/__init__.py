"""Search images for secrets of this host, and for keys, tokens and passwords."""
