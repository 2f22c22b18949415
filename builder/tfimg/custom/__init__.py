"""Images of TensorFlow wheels that a user supplies: facts, contradictions, and the image that follows."""
