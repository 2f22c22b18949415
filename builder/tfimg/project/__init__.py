"""What a program works on: the matrix with its images and locks, and this machine's connections."""
