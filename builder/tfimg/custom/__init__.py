"""Custom TensorFlow wheels: the facts of a wheel that a user supplies, and its image."""
