"""What is said of an image and signed: statements, keys, where they lie beside it, and what they must show."""
