"""The matrix of TensorFlow releases, CUDA, Python and platforms, and its images."""
