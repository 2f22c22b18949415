"""Images in registries: what is sent, what is proven of it, which names lead to it."""
