"""The machines that run images."""
