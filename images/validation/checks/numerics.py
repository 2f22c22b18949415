"""Numbers that come out right, on the device that they were asked from."""

from __future__ import annotations

import importlib
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from contract import CheckFailed
from framework import device_under_test, require_placement, tensorflow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from contract import Evidence, Facts

# Three different lengths, so that a transposed or swapped operand cannot go unnoticed. The inner one is
# short: the bound grows with its square, and at 256 a product in TensorFloat-32 is ten times over it,
# one in bfloat16 a hundred times (both tried), while a float32 product stays at a fiftieth of it.
ROWS, INNER, COLUMNS = 1024, 256, 768
SEED = 20
REPEATS = 3
FLOAT32_ROUNDOFF = 2.0**-24


def matmul(facts: Facts) -> Evidence:
    """A float32 product of seeded normal matrices against a float64 reference, within Higham's bound.

    For any order of summation |C - fl(C)| <= gamma(k) |A| |B| in every element (N. J. Higham, Accuracy and
    Stability of Numerical Algorithms, 2nd ed., SIAM 2002, eq. 3.13), k being the inner length. The
    reference's own error is 2**29 times smaller and neglected. TensorFloat-32 is off, as it is not float32.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    random = np.random.default_rng(SEED)
    left, right = (random.standard_normal(shape, "float32") for shape in ((ROWS, INNER), (INNER, COLUMNS)))
    with _strict(tf), tf.device(device):
        product, seconds = _timed_product(tf, tf.constant(left), tf.constant(right))
    left, right = left.astype("float64"), right.astype("float64")
    error = np.abs(left @ right - product.numpy())
    bound = gamma(INNER, FLOAT32_ROUNDOFF) * (np.abs(left) @ np.abs(right))
    worst = float((error / bound).max())
    evidence = {
        "device": require_placement(product, device),
        "shape": [ROWS, INNER, COLUMNS],
        "max_error": float(error.max()),
        "smallest_bound": float(bound.min()),
        "worst_error_over_bound": worst,
        "gflops": round(2e-9 * ROWS * INNER * COLUMNS / seconds, 1),
    }
    # Asked this way round, a NaN fails too.
    if not worst <= 1:
        raise CheckFailed(
            f"expected every element within its float32 rounding bound, found one at {worst:.3g} times its "
            "bound: the product is wrong or of lower precision; try another machine, then another TensorFlow",
            **evidence,
        )
    return evidence


def gamma(count: int, roundoff: float) -> float:
    """Relative error of `count` rounded operations, n u / (1 - n u): Higham, lemma 3.1."""
    return count * roundoff / (1 - count * roundoff)


def _timed_product(tf: Any, left: Any, right: Any) -> tuple[Any, float]:
    """The product, and the quickest of some repeats in seconds; reading the numbers waits for the device."""
    product = tf.matmul(left, right)
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        tf.matmul(left, right).numpy()
        seconds.append(time.perf_counter() - began)
    return product, min(seconds)


@contextmanager
def _strict(tf: Any) -> Iterator[None]:
    """No operation moves to another device, none is computed in TensorFloat-32."""
    precision = tf.config.experimental
    soft, reduced = tf.config.get_soft_device_placement(), precision.tensor_float_32_execution_enabled()
    tf.config.set_soft_device_placement(False)
    precision.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.set_soft_device_placement(soft)
        precision.enable_tensor_float_32_execution(reduced)
