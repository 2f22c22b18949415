"""What must not leave a machine: where it may be in an image, how it is found, whose it is."""
