"""Save an image with its evidence as one file, and load it: an OCI image layout in a tar archive."""
