"""Models that learn."""

from __future__ import annotations

import importlib
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from contract import CheckFailed
from framework import device_under_test, recorded, require_operations, require_placement, tensorflow

from .scaling import current_scale

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from contract import Facts, Measured

SEED = 20
BATCH, FEATURES, HIDDEN = 64, 16, 32
STEPS = 8


def mixed_precision(facts: Facts) -> Measured:
    """A few Keras steps compute in 16 bits, keep float32 variables, and lower the loss.

    float16 on a GPU, where its short exponent needs loss scaling; bfloat16, which has that of float32, elsewhere.
    """
    tf = tensorflow()
    device = device_under_test(tf, facts)
    compute = "float16" if "GPU" in device else "bfloat16"
    with _policy(tf, f"mixed_{compute}"), tf.device(device), recorded() as operations:
        measured = _train(tf, device)
    require_operations(operations, device, "MatMul")
    problems = _problems(measured, compute)
    if problems:
        raise CheckFailed(
            f"{'; '.join(problems)}: Keras does not fit this TensorFlow or the device lacks {compute}; "
            "compare both versions with the lock",
            **measured,
        )
    return measured


def _train(tf: Any, device: str) -> Measured:
    """Learn a linear function on one fixed batch, and say which types and which device were used."""
    random = importlib.import_module("numpy").random.default_rng(SEED)
    inputs = random.standard_normal((BATCH, FEATURES)).astype("float32")
    targets = inputs.sum(axis=1, keepdims=True) / FEATURES**0.5
    model = _model(tf)
    # Not train_on_batch: in Keras 3 it returns the mean loss of all steps so far.
    losses = model.fit(inputs, targets, batch_size=BATCH, epochs=STEPS, verbose=0).history["loss"]
    hidden = model.layers[0](tf.constant(inputs))
    return {
        "device": require_placement(hidden, device),
        "policy": tf.keras.mixed_precision.global_policy().name,
        "compute": tf.as_dtype(hidden.dtype).name,
        "variables": sorted({tf.as_dtype(weight.dtype).name for weight in model.trainable_variables}),
        "optimizer": type(model.optimizer).__name__,
        "loss_scale": current_scale(model.optimizer),
        "losses": losses,
    }


def _model(tf: Any) -> Any:
    layers, drawn = tf.keras.layers, tf.keras.initializers.GlorotUniform
    model = tf.keras.Sequential(
        [
            tf.keras.Input((FEATURES,)),
            layers.Dense(HIDDEN, activation="relu", kernel_initializer=drawn(SEED)),
            # The loss is taken in float32, as the mixed precision guide of TensorFlow asks for.
            layers.Dense(1, dtype="float32", kernel_initializer=drawn(SEED + 1)),
        ]
    )
    # Keras 3 would compile with XLA by default; its failures are not about mixed precision.
    model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse", jit_compile=False)
    return model


def _problems(measured: Measured, compute: str) -> list[str]:
    losses, optimizer, scale = measured["losses"], measured["optimizer"], measured["loss_scale"]
    problems = []
    if measured["compute"] != compute:
        problems.append(f"expected layers to compute in {compute}, found {measured['compute']}")
    if measured["variables"] != ["float32"]:
        problems.append(f"expected float32 variables, found {measured['variables']}")
    if compute == "float16" and not (scale is not None and math.isfinite(scale) and scale >= 1):
        problems.append(f"expected an optimizer that scales the loss, found {optimizer} with scale {scale}")
    if compute == "bfloat16" and scale is not None:
        problems.append(f"expected no loss scaling in bfloat16, found {optimizer} with scale {scale}")
    if not all(map(math.isfinite, losses)) or losses[-1] >= losses[0]:
        problems.append(f"expected a finite, falling loss, found {losses[0]:.4g} to {losses[-1]:.4g}")
    return problems


@contextmanager
def _policy(tf: Any, name: str) -> Iterator[None]:
    """A Keras policy for the time of the block."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)
