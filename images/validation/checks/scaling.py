"""Loss scaling, which keeps small gradients alive in float16."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bounds import require_equal
from framework import (
    device_under_test,
    recorded,
    require_operations,
    require_placement,
    strictly_on,
    tensorflow,
)

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

RATE, TARGET, GROWTH = 0.125, 2.0, 2
FIRST_SCALE = 2.0**16
# One weight, 1 at first, that is to become 2. Its gradient is 2 (w - 2), and -2 times 2**16 or 2**15 is beyond
# float16, whose largest number is 65504. Each step that counts takes a quarter of the way: 2 - w is 3/4, 9/16, 27/64,
# 81/256, all without rounding. The scale is halved where a step is left out and doubled after two that count.
WEIGHTS = [1.0, 1.0, 1.25, 1.4375, 1.578125, 1.68359375]
SCALES = [2.0**15, 2.0**14, 2.0**14, 2.0**15, 2.0**15, 2.0**16]


def loss_scaling(facts: Facts) -> Measured:
    """In float16, steps that overflow are left out and halve the scale; good ones count, and raise it again."""
    tf = tensorflow()
    device = device_under_test(tf, facts)
    layer = tf.keras.layers.Dense(
        1, use_bias=False, kernel_initializer="ones", dtype=tf.keras.mixed_precision.Policy("mixed_float16")
    )
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(
        tf.keras.optimizers.SGD(RATE), initial_scale=FIRST_SCALE, dynamic_growth_steps=GROWTH
    )
    with strictly_on(tf, device, soft=True), recorded() as operations:
        outputs = [_step(tf, layer, optimizer) for _ in WEIGHTS]
    require_operations(operations, device, "MatMul")
    output = outputs[0][0]
    answers = {
        "layer": tf.as_dtype(output.dtype).name,
        "variable": tf.as_dtype(layer.kernel.dtype).name,
        "weights": [weight for _, weight, _ in outputs],
        "scales": [scale for _, _, scale in outputs],
    }
    expected = {"layer": "float16", "variable": "float32", "weights": WEIGHTS, "scales": SCALES}
    require_equal(
        answers,
        expected,
        "Keras does not fit this TensorFlow, or the device has another float16; compare both versions with the lock",
        device=output.device,
    )
    return {"device": require_placement(output, device), **answers}


def _step(tf: Any, layer: Any, optimizer: Any) -> tuple[Any, float, float]:
    """The output before a step; the weight and the scale after it. Keras 3 scales back by itself, Keras 2 does not."""
    with tf.GradientTape() as tape:
        output = layer(tf.constant([[1.0]]))
        loss = tf.reduce_sum(tf.square(tf.cast(output, tf.float32) - TARGET))
        scale = getattr(optimizer, "scale_loss", None) or optimizer.get_scaled_loss
        scaled = scale(loss)
    gradients = tape.gradient(scaled, layer.trainable_variables)
    if hasattr(optimizer, "get_unscaled_gradients"):
        gradients = optimizer.get_unscaled_gradients(gradients)
    optimizer.apply_gradients(zip(gradients, layer.trainable_variables))
    return output, layer.get_weights()[0].item(), current_scale(optimizer) or 0.0


def current_scale(optimizer: Any) -> float | None:
    """The factor on the loss now: a variable of Keras 3's optimizer, a property in Keras 2; None without."""
    scale = getattr(optimizer, "dynamic_scale", getattr(optimizer, "loss_scale", None))
    # The variables of Keras 3's first releases do not turn to numbers by themselves (tried with TensorFlow 2.16).
    return None if scale is None else float(scale.numpy())
