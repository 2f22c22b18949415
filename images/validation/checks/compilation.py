"""Functions that XLA compiles."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bounds import SINGLE, gamma, over, require_within
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

SEED = 20
ROWS, INNER, COLUMNS = 64, 128, 48
RATE = 4.0
# The logarithm and the exponential are good to a few units in the last place each (CUDA C Programming Guide,
# "Standard Functions", for GPUs).
ULPS = 8


def xla(facts: Facts) -> Measured:
    """A function that must be compiled (it raises where it cannot be) equals the plain one and float64.

    It has a product, and an exponential, for which XLA needs libdevice on a GPU.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    left, right = xla_inputs(np)

    def softplus(a: Any, b: Any) -> Any:
        return tf.math.log(1.0 + tf.exp(tf.matmul(a, b)))

    with strictly_on(tf, device), recorded() as operations:
        inputs = tf.constant(left), tf.constant(right)
        plain, compiled = softplus(*inputs), tf.function(softplus, jit_compile=True)(*inputs)
    require_operations(operations, device, "MatMul", "Exp")
    exact, bound = xla_reference(np, left, right)
    measured = {
        "device": [require_placement(tensor, device) for tensor in (plain, compiled)],
        "error_over_bound": {
            "plain": over(plain.numpy(), exact, bound),
            "compiled": over(compiled.numpy(), exact, bound),
            "difference": over(compiled.numpy(), plain.numpy(), 2 * bound),
        },
    }
    return require_within(measured, "XLA compiles something else; try another machine, then another TensorFlow")


def xla_inputs(np: Any) -> tuple[Any, Any]:
    """Return two matrices in float32 whose product has elements around 1."""
    random = np.random.default_rng(SEED)
    left, right = (random.standard_normal(shape, "float32") for shape in ((ROWS, INNER), (INNER, COLUMNS)))
    return left, right / INNER**0.5


def xla_reference(np: Any, left: Any, right: Any) -> tuple[Any, Any]:
    """Return log(1 + exp(left @ right)) in float64, and the bound of each element in float32.

    The slope of log(1 + exp(z)) is below 1, so that the product's bound carries over.
    """
    left, right = left.astype("float64"), right.astype("float64")
    exact = np.log1p(np.exp(left @ right))
    return exact, gamma(INNER) * (abs(left) @ abs(right)) + ULPS * SINGLE * (1 + exact)


def training_step(facts: Facts) -> Measured:
    """A compiled step of logistic regression, tape and all, moves the weights as the plain one and float64 do.

    A score is wrong by the bound of its product, its sigmoid by a quarter of that, which is the largest slope, and
    the gradient by these and the bound of its own sum.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    inputs, start = step_inputs(np)
    # The gradient of a mean has operations on shapes, which are the CPU's.
    with strictly_on(tf, device, soft=True), recorded() as operations:
        moved = {
            "plain": _logistic_step(tf, False)(tf.constant(inputs), tf.constant(start)),
            "compiled": _logistic_step(tf, True)(tf.constant(inputs), tf.constant(start)),
        }
    require_operations(operations, device, "MatMul")
    exact, bound = logistic_reference(np, inputs.astype("float64"), start.astype("float64"))
    measured = {
        "device": [require_placement(weights, device) for weights in moved.values()],
        "error_over_bound": {
            **{name: over(weights.numpy(), exact, bound) for name, weights in moved.items()},
            "difference": over(moved["compiled"].numpy(), moved["plain"].numpy(), 2 * bound),
        },
    }
    return require_within(measured, "XLA compiles something else; see compilation.xla, then try another TensorFlow")


def step_inputs(np: Any) -> tuple[Any, Any]:
    """Return inputs of one class, and weights to start from, in float32."""
    random = np.random.default_rng(SEED)
    inputs, start = (random.standard_normal(shape, "float32") for shape in ((ROWS, INNER), (INNER, 1)))
    return inputs * (np.sign(inputs[:, :1]) / INNER**0.5), start


def _logistic_step(tf: Any, compiled: bool) -> Any:
    def step(inputs: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            loss = tf.reduce_mean(tf.nn.softplus(-tf.matmul(inputs, weights)))
        return weights - RATE * tape.gradient(loss, weights)

    return tf.function(step, jit_compile=compiled)


def logistic_reference(np: Any, inputs: Any, weights: Any) -> tuple[Any, Any]:
    """The weights after a step in float64, and the bound of each in float32."""
    gradient = -inputs.T @ (1 / (1 + np.exp(inputs @ weights))) / ROWS
    sigmoids = gamma(INNER) * (abs(inputs) @ abs(weights)) / 4 + ULPS * SINGLE
    # Four more roundings for the mean and the rate, and two for the step.
    slopes = abs(inputs).T @ (sigmoids + gamma(ROWS + 4)) / ROWS
    return weights - RATE * gradient, RATE * slopes + 2 * SINGLE * (abs(weights) + RATE * abs(gradient))
