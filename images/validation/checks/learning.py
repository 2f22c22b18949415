"""Networks that must have learned something at the end."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from contract import CheckFailed
from framework import device_under_test, recorded, require_operations, require_placement, tensorflow

from .digits import SIDE, draw

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

SEED = 20
TRAINING, HELD_OUT = 3000, 500
BATCH, EPOCHS, RATE = 50, 2, 5e-3
# Chance is 0.1; a linear model gets 0.68 in the same training, this network 0.99 (both tried).
ACCURACY = 0.95


def cnn(facts: Facts) -> Measured:
    """A small convolutional network learns to read digits, and reads new ones with an accuracy of 0.95."""
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    images, digits = draw(np, TRAINING + HELD_OUT, SEED)
    with tf.device(device), recorded() as operations:
        model = _network(tf)
        # The order is random already. Shuffled, it would come from a generator that other checks share.
        history = model.fit(
            images[:TRAINING], digits[:TRAINING], batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0
        )
        scores = model(images[TRAINING:])
    require_operations(operations, device, "Conv2D", "MatMul")
    accuracy = float((scores.numpy().argmax(1) == digits[TRAINING:]).mean())
    measured = {
        "device": require_placement(scores, device),
        "accuracy": accuracy,
        "losses": [round(float(loss), 4) for loss in history.history["loss"]],
    }
    if not accuracy >= ACCURACY:
        raise CheckFailed(
            f"expected an accuracy of {ACCURACY} on held-out digits, found {accuracy:.3f}: a gradient, a layer or the "
            "optimizer is wrong; see numerics.convolution, then try another TensorFlow and Keras",
            **measured,
        )
    return measured


def _network(tf: Any) -> Any:
    layers = tf.keras.layers
    seeds = iter(range(SEED, SEED + 3))

    def drawn() -> Any:
        return tf.keras.initializers.GlorotUniform(next(seeds))

    model = tf.keras.Sequential(
        [
            tf.keras.Input((SIDE, SIDE, 1)),
            layers.Conv2D(8, 5, strides=2, activation="relu", kernel_initializer=drawn()),
            layers.Conv2D(32, 5, activation="relu", kernel_initializer=drawn()),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(10, kernel_initializer=drawn()),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # Keras 3 would compile with XLA by default, which is asked elsewhere.
    model.compile(optimizer=tf.keras.optimizers.Adam(RATE), loss=loss, jit_compile=False)
    return model
