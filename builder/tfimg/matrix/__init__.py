"""The compatibility matrix: TensorFlow releases, CUDA, Python and platforms, and the images of it."""
