"""Images of TensorFlow wheels that a user supplies: their facts and the image that follows."""
