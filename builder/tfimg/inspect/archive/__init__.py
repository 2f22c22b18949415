"""An image with its evidence in one file, for where there is no network."""
