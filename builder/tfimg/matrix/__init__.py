"""The facts: what may be combined, and which image answers a request."""
