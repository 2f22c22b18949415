"""Save an image with its attestations as an OCI image layout, a folder or a tar of it, and load it."""
