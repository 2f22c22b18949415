"""A cloud's virtual machine: the user data that makes one fetch an image, prove it and run it."""
