"""Functions that XLA compiles."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bounds import SINGLE, gamma, over, require_within
from framework import device_under_test, require_placement, strictly_on, tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Evidence, Facts

SEED = 20
ROWS, INNER, COLUMNS = 64, 128, 48
# The logarithm and the exponential are good to a few units in the last place each (CUDA C Programming Guide,
# "Standard Functions", for GPUs).
ULPS = 8


def xla(facts: Facts) -> Evidence:
    """A function that must be compiled (it raises where it cannot be) equals the plain one and float64.

    It has a product, and an exponential, for which XLA needs libdevice on a GPU. The slope of log(1 + exp(z)) is
    below 1, so that the product's bound carries over.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    random = np.random.default_rng(SEED)
    left, right = (random.standard_normal(shape, "float32") for shape in ((ROWS, INNER), (INNER, COLUMNS)))
    right /= INNER**0.5

    def softplus(a: Any, b: Any) -> Any:
        return tf.math.log(1.0 + tf.exp(tf.matmul(a, b)))

    with strictly_on(tf, device):
        inputs = tf.constant(left), tf.constant(right)
        plain, compiled = softplus(*inputs), tf.function(softplus, jit_compile=True)(*inputs)
    left, right = left.astype("float64"), right.astype("float64")
    exact = np.log1p(np.exp(left @ right))
    bound = gamma(INNER) * (abs(left) @ abs(right)) + ULPS * SINGLE * (1 + exact)
    evidence = {
        "device": require_placement(compiled, device),
        "error_over_bound": {
            "plain": over(plain.numpy(), exact, bound),
            "compiled": over(compiled.numpy(), exact, bound),
            "difference": over(compiled.numpy(), plain.numpy(), 2 * bound),
        },
    }
    return require_within(
        evidence, "XLA compiles something else; try another machine, then another TensorFlow"
    )
