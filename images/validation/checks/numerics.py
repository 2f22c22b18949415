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

# Three different lengths, so that a transposed or swapped operand cannot go unnoticed.
ROWS, INNER, COLUMNS = 512, 1024, 768
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
    left = random.standard_normal((ROWS, INNER), dtype=np.float32)
    right = random.standard_normal((INNER, COLUMNS), dtype=np.float32)
    with _strict(tf), tf.device(device):
        product, seconds = _timed_product(tf, tf.constant(left), tf.constant(right))
    error = np.abs(left.astype(np.float64) @ right.astype(np.float64) - product.numpy())
    bound = gamma(INNER, FLOAT32_ROUNDOFF) * (np.abs(left.astype(np.float64)) @ np.abs(right.astype(np.float64)))
    evidence = {
        "device": require_placement(product, device),
        "shape": [ROWS, INNER, COLUMNS],
        "max_error": float(error.max()),
        "smallest_bound": float(bound.min()),
        "worst_error_over_bound": float((error / bound).max()),
        "gflops": round(2e-9 * ROWS * INNER * COLUMNS / seconds, 1),
    }
    # Asked this way round, a NaN fails too.
    if not evidence["worst_error_over_bound"] <= 1:
        raise CheckFailed(
            "expected every element within its float32 rounding bound, found one at "
            f"{evidence['worst_error_over_bound']:.3g} times its bound: the product was computed wrongly or in "
            "lower precision; try another machine, then another build of TensorFlow",
            **evidence,
        )
    return evidence


def gamma(count: int, roundoff: float) -> float:
    """Relative error of `count` rounded operations, n u / (1 - n u): Higham, lemma 3.1."""
    return count * roundoff / (1 - count * roundoff)


def _timed_product(tf: Any, left: Any, right: Any) -> tuple[Any, float]:
    """The product, and the seconds of the quickest of some repeats; reading the numbers waits for the device."""
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
