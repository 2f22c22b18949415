"""Custom training loops with GradientTape, compared with linear algebra."""

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
ROWS, FEATURES, PARTS = 128, 8, 4
RATE, STEPS = 0.5, 40
# Roundings beside those of sums: square, mean, and what their gradients multiply with.
OTHERS = 6
CAUSE = "a gradient or the optimizer is wrong; see numerics.matmul, then try another TensorFlow"


def accumulation(facts: Facts) -> Measured:
    """The mean gradient of four small batches is that of the large batch, and both are the true one."""
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    inputs, targets, weights = problem(np)
    # The gradient of a mean has operations on shapes, which are the CPU's.
    with strictly_on(tf, device, soft=True), recorded() as operations:
        variable = tf.Variable(weights)
        large = _gradient(tf, variable, tf.constant(inputs), tf.constant(targets))
        total = tf.Variable(tf.zeros_like(large))
        for part in zip(np.split(inputs, PARTS), np.split(targets, PARTS)):
            total.assign_add(_gradient(tf, variable, *map(tf.constant, part)))
        accumulated = total / PARTS
    require_operations(operations, device, "MatMul")
    exact = slope(inputs, targets, weights)
    bound = slope_bound(inputs, targets, abs(weights))
    measured = {
        "device": [require_placement(tensor, device) for tensor in (large, accumulated)],
        "error_over_bound": {
            "large batch": over(large.numpy(), exact, bound),
            "accumulated": over(accumulated.numpy(), exact, bound),
            "difference": over(accumulated.numpy(), large.numpy(), 2 * bound),
        },
    }
    return require_within(measured, CAUSE)


def custom_loop(facts: Facts) -> Measured:
    """Gradient descent on a linear regression arrives at the least squares solution.

    A step brings the weights nearer by the factor |1 - rate H|, H the second derivative, but for its own rounding:
    so the errors of all steps are at most that of one over 1 minus the factor.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    inputs, targets, start = problem(np)
    # Keras keeps a count of the steps, for which a GPU may have no kernel.
    with strictly_on(tf, device, soft=True), recorded() as operations:
        variable, optimizer = tf.Variable(start), tf.keras.optimizers.SGD(RATE)
        given = tf.constant(inputs), tf.constant(targets)

        def step() -> None:
            optimizer.apply_gradients([(_gradient(tf, variable, *given), variable)])

        traced = tf.function(step)
        for _ in range(STEPS):
            traced()
        found = tf.identity(variable)
    require_operations(operations, device, "MatMul")
    exact = np.linalg.lstsq(inputs.astype("float64"), targets.astype("float64"), rcond=None)[0]
    bound = descent_bound(np, inputs, targets, start, exact)
    measured = {
        "device": require_placement(found, device),
        "start": float(np.linalg.norm(start - exact)),
        "bound": bound,
        "error_over_bound": {
            "solution": float(np.linalg.norm(found.numpy() - exact)) / bound,
        },
    }
    return require_within(measured, CAUSE)


def problem(np: Any) -> tuple[Any, Any, Any]:
    """Inputs, noisy targets, and weights to start from, in float32."""
    random = np.random.default_rng(SEED)
    inputs, noise, truth, start = (
        random.standard_normal(shape, "float32")
        for shape in ((ROWS, FEATURES), (ROWS, 1), (FEATURES, 1), (FEATURES, 1))
    )
    return inputs, inputs @ truth + noise, start


def _gradient(tf: Any, weights: Any, inputs: Any, targets: Any) -> Any:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tf.matmul(inputs, weights) - targets))
    return tape.gradient(loss, weights)


def slope(inputs: Any, targets: Any, weights: Any) -> Any:
    """The gradient of the mean square error in float64."""
    inputs = inputs.astype("float64")
    return 2 / len(inputs) * inputs.T @ (inputs @ weights - targets)


def slope_bound(inputs: Any, targets: Any, sizes: Any) -> Any:
    """The bound of a gradient computed in float32, for weights of at most these absolute values.

    A residual is a sum of FEATURES + 1 terms, the gradient one of ROWS; in parts, PARTS more are added.
    """
    residual = abs(inputs.astype("float64")) @ sizes + abs(targets)
    return gamma(FEATURES + 1 + ROWS + PARTS + OTHERS) * 2 / len(inputs) * abs(inputs).T @ residual


def descent_bound(np: Any, inputs: Any, targets: Any, start: Any, exact: Any) -> float:
    """How far (2-norm) gradient descent in float32 may be from the exact solution after STEPS steps."""
    curvature = 2 / len(inputs) * inputs.T.astype("float64") @ inputs
    factor = np.linalg.norm(np.eye(len(exact)) - RATE * curvature, 2)
    away = np.linalg.norm(start - exact)
    # No weight is farther from its solution than all of them at the start.
    sizes = abs(exact) + away
    gradient = slope_bound(inputs, targets, sizes)
    rounding = RATE * gradient + 2 * SINGLE * (sizes + RATE * np.linalg.norm(curvature, 2) * away + RATE * gradient)
    return float(factor**STEPS * away + np.linalg.norm(rounding) / (1 - factor))
