"""A checkout and its connections: the matrix with its images and locks, and the services of this machine."""
