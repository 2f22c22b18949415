"""Train on MNIST, or on digits made with NumPy where it cannot be downloaded; keep model, log and result."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

GLYPHS = (
    "111101101101111", "010110010010111", "111001111100111", "111001111001111", "101101111001001",
    "111100111001111", "111100111101111", "111001010010010", "111101111101111", "111101111001111",
)  # fmt: skip
"""Digits of three by five points."""


def make_digits(count, seed):
    """Return images of 28 by 28 points and their digits, as MNIST has them: moved, and with noise."""
    chance = np.random.default_rng(seed)
    digits = chance.integers(10, size=count)
    images = chance.integers(100, size=(count, 28, 28))
    shapes = np.array([[*map(int, glyph)] for glyph in GLYPHS]).reshape(10, 5, 3).repeat(4, 1).repeat(4, 2)
    for image, digit, top, left in zip(images, digits, chance.integers(9, size=count), chance.integers(17, size=count)):
        image[top : top + 20, left : left + 12] += 155 * shapes[digit]
    return images.astype("uint8"), digits


try:
    (x, y), (x_test, y_test) = tf.keras.datasets.mnist.load_data()
    source = "MNIST"
except Exception as error:
    print(f"MNIST was not downloaded: {error}")
    (x, y), (x_test, y_test) = make_digits(8000, seed=1), make_digits(2000, seed=2)
    source = "made with NumPy"

tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Rescaling(1 / 255, input_shape=(28, 28)),
        tf.keras.layers.Reshape((28, 28, 1)),
        tf.keras.layers.Conv2D(16, 5, activation="relu"),
        tf.keras.layers.MaxPooling2D(4),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])
model.fit(x, y, epochs=6, batch_size=64, verbose=2, callbacks=[tf.keras.callbacks.TensorBoard("runs/first")])
accuracy = model.evaluate(x_test, y_test, verbose=0)[1]
model.save("model.keras")
result = {"digits": source, "accuracy": round(accuracy, 4), "tensorflow": tf.__version__}
Path("result.json").write_text(json.dumps(result) + "\n")
print(result)
