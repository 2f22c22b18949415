"""Deterministic operations: with them on, two training runs give identical weights."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from contract import CheckFailed
from framework import device_under_test, recorded, require_operations, tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

SEEDS = (20, 20, 21)
EXPECTED = {"equal with one seed": True, "equal with another seed": False, "unseeded refused": True}
IMAGES, BATCH = (32, 8, 8, 1), 8


def determinism(facts: Facts) -> Measured:
    """With determinism on, one seed gives the same weights twice and another seed others.

    The training has what differs from run to run without: initial weights, the order of examples, dropout, and on a
    GPU the sums in the gradients of a convolution. On a CPU only the switch itself tells that it is on: random
    numbers without a seed are then refused (TensorFlow's documentation of enable_op_determinism).
    """
    tf = tensorflow()
    device = device_under_test(tf, facts)
    tf.config.experimental.enable_op_determinism()
    with tf.device(device), recorded() as operations:
        first, second, other = (_weights(tf, seed) for seed in SEEDS)
    require_operations(operations, device, "Conv2D", "MatMul")
    found = first == second, first == other, _refuses(tf)
    measured = {"device": device, "weights": len(first) // 4, **dict(zip(EXPECTED, found))}
    wrong = [f"{name}: {measured[name]}" for name, right in EXPECTED.items() if measured[name] != right]
    if wrong:
        raise CheckFailed(
            "expected equal weights from one seed, others from another, and no random numbers without a seed, "
            f"found {', '.join(wrong)}: an operation is not deterministic, or the seed does not reach all of them; "
            "try another TensorFlow",
            **measured,
        )
    return measured


def _weights(tf: Any, seed: int) -> bytes:
    """All weights after a short training, as bytes. Step by step, as tracing and compiling would take longer."""
    tf.keras.utils.set_random_seed(seed)
    images = importlib.import_module("numpy").random.default_rng(0).standard_normal(IMAGES, "float32")
    with tf.device("/device:CPU:0"):
        examples = tf.data.Dataset.from_tensor_slices((images, images.mean((1, 2))))
        batches = list(examples.shuffle(len(images)).batch(BATCH))
    model, optimizer = _model(tf), tf.keras.optimizers.SGD(0.1, momentum=0.9)
    for inputs, targets in batches:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs, training=True) - targets))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return b"".join(weight.tobytes() for weight in model.get_weights())


def _model(tf: Any) -> Any:
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input(IMAGES[1:]),
            layers.Conv2D(4, 3, activation="relu"),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )


def _refuses(tf: Any) -> bool:
    """Whether a random number without any seed is an error."""
    tf.random.set_seed(None)
    try:
        tf.random.normal([1])
    except RuntimeError:
        return True
    return False
