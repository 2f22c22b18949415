"""Products that come out right, on the device that they were asked from."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING

from bounds import ROUNDOFF, SINGLE, gamma, over, require_within
from driver import capability as gpu_capability
from framework import device_under_test, require_placement, strictly_on, tensorflow

if TYPE_CHECKING:
    from typing import Any

    from contract import Facts, Measured

# Three different lengths, so that a transposed or swapped operand cannot go unnoticed. The inner one is
# short: the bound grows with its square, and at 256 a product in TensorFloat-32 is ten times over it,
# one in bfloat16 a hundred times (both tried), while a float32 product stays at a fiftieth of it.
INNER = 256
CPU_SIDES = (512, 384)
# 192 tiles of 128 x 128 keep a large GPU busy, so that cuBLAS has no reason to split the short sums in parts, which
# it may then add up in 16 bits (cuBLAS, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION).
GPU_SIDES = (2048, 1536)
SEED = 20
# For speed: large enough for any GPU, and repeated without waiting in between.
SIDE = 4096
REPEATS = 20
# Read from the kernels that are registered in the wheels.
FIRST_BFLOAT16 = (2, 12)
# GPUs have bfloat16 in hardware from here on; below, cuBLAS may refuse its products.
BFLOAT16_CAPABILITY = (8, 0)
NOT_SUPPORTED = "CUBLAS_STATUS_NOT_SUPPORTED"


def matmul(facts: Facts) -> Measured:
    """Products of seeded normal matrices in three types against a float64 reference, each within its bound.

    The reference is of the inputs as rounded to the type; its own error is 2**29 times smaller and neglected.
    TensorFloat-32 is off, as it is not float32.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    kinds, not_checked = _products(tf, np, device)
    measured = {
        "device": device,
        "error_over_bound": {kind: found["error_over_bound"] for kind, found in kinds.items()},
        "not_checked": not_checked,
        "products": kinds,
    }
    return require_within(
        measured, "the product is wrong or of lower precision; try another machine, then another TensorFlow"
    )


def product_bound(magnitude: Any, exact: Any, kind: str, on_cpu: bool) -> Any:
    """The bound of each element: that of the sum, and then of its rounding to 16 bits.

    GPUs and CPUs add 16 bit products in float32: TensorFlow asks cuBLAS so (TF_FP16_MATMUL_USE_FP32_COMPUTE), and
    on CPUs casts bfloat16. There Eigen adds float16 in float16 up to 2.15 at least: 66 times this bound, where 2.18
    stays below it (tried). On a CPU without AVX-512 TensorFlow truncates to bfloat16 instead of rounding, which doubles
    the error of that step: 1.94 times the bound of rounding with 2.15.1 on AVX2 (tried).
    """
    adding = ROUNDOFF[kind] if kind == "float16" and on_cpu else SINGLE
    summed = gamma(INNER, adding) * magnitude
    if kind == "float32":
        return summed
    rounding = 2 * ROUNDOFF[kind] if kind == "bfloat16" and on_cpu else ROUNDOFF[kind]
    return summed + rounding * (abs(exact) + summed)


def _products(tf: Any, np: Any, device: str) -> tuple[dict[str, Measured], dict[str, str]]:
    """Return the products by type, and for types without one the reason."""
    version = tuple(int(part) for part in tf.__version__.split(".")[:2])
    products, not_checked = {}, {}
    for kind in ROUNDOFF:
        if kind == "bfloat16" and "GPU" in device and version < FIRST_BFLOAT16:
            not_checked[kind] = f"TensorFlow {tf.__version__} has no such product for GPUs"
            continue
        try:
            products[kind] = _product(tf, np, kind, device)
        except tf.errors.InternalError as error:
            reason = why_not_applicable(kind, str(error), gpu_capability())
            if reason is None:
                raise
            not_checked[kind] = reason
    return products, not_checked


def why_not_applicable(kind: str, error: str, capability: tuple[int, int] | None) -> str | None:
    """Return why a GPU of this capability need not have the product that failed so; None where it must."""
    if kind != "bfloat16" or NOT_SUPPORTED not in error:
        return None
    if capability is None or capability >= BFLOAT16_CAPABILITY:
        return None
    return (
        f"not applicable: cuBLAS has no bfloat16 products on this GPU of compute capability "
        f"{capability[0]}.{capability[1]} ({NOT_SUPPORTED}); they are sure from "
        f"{BFLOAT16_CAPABILITY[0]}.{BFLOAT16_CAPABILITY[1]} on"
    )


def _product(tf: Any, np: Any, kind: str, device: str) -> Measured:
    random, (rows, columns) = np.random.default_rng(SEED), CPU_SIDES if "CPU" in device else GPU_SIDES
    # Rounded on the CPU always: the product alone is in question.
    with tf.device("/device:CPU:0"):
        left = tf.cast(random.standard_normal((rows, INNER), "float32"), kind)
        right = tf.cast(random.standard_normal((INNER, columns), "float32"), kind)
    with strictly_on(tf, device):
        product = tf.matmul(left, right)
        speed = {} if "CPU" in device else {"tflops": _teraflops(tf, random, kind)}
    a, b, found = (tensor.numpy().astype("float64") for tensor in (left, right, product))
    exact = a @ b
    bound = product_bound(np.abs(a) @ np.abs(b), exact, kind, "CPU" in device)
    return {
        "device": require_placement(product, device),
        "shape": [rows, INNER, columns],
        "error_over_bound": over(found, exact, bound),
        **speed,
    }


def _teraflops(tf: Any, random: Any, kind: str) -> float:
    """The speed of large products in a row; a narrow last one is read, which waits for all before it."""
    square, narrow = (
        tf.cast(tf.constant(random.standard_normal((SIDE, width), "float32")), kind) for width in (SIDE, 8)
    )
    tf.matmul(tf.matmul(square, square), narrow).numpy()
    began = time.perf_counter()
    for _ in range(REPEATS):
        product = tf.matmul(square, square)
    tf.matmul(product, narrow).numpy()
    return round(2e-12 * REPEATS * SIDE**3 / (time.perf_counter() - began), 2)
