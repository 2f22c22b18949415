"""User data for cloud machines that verify an image and run it."""
