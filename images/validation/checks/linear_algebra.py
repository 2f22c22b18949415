"""Transforms, decompositions and sparse products: what runs in cuFFT, cuSOLVER and cuSPARSE on a GPU."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bounds import SINGLE, gamma, over, require_within
from framework import device_under_test, require_placement, strictly_on, tensorflow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from contract import Facts, Measured

SEED = 20
BATCH, LENGTH_BITS = 32, 8
TALL, WIDE = 96, 64
SIDE, RIGHT_SIDES = 80, 3
ROWS, INNER, COLUMNS, DENSITY = 300, 200, 50, 0.1
CAUSE = "the result is wrong or of lower precision; try another machine, then another TensorFlow"


def fft(facts: Facts) -> Measured:
    """A complex Fourier transform equals NumPy's in double precision, and its inverse returns the input.

    The bound of a transform of length 2**t, in the 2-norm: t eta / (1 - t eta), eta = u + gamma(4) (sqrt(2) + u)
    with roots of unity rounded to working precision (Higham, theorem 24.2).
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    parts = np.random.default_rng(SEED).standard_normal((2, BATCH, 2**LENGTH_BITS))
    signal = (parts[0] + 1j * parts[1]).astype("complex64")
    with strictly_on(tf, device):
        spectrum = tf.signal.fft(tf.constant(signal))
        back = tf.signal.ifft(spectrum)
    bound = gamma(LENGTH_BITS, SINGLE + gamma(4) * (2**0.5 + SINGLE))
    measured = {
        "device": [require_placement(tensor, device) for tensor in (spectrum, back)],
        "error_over_bound": {
            "transform": relative(np, spectrum.numpy(), np.fft.fft(signal.astype("complex128"))) / bound,
            "round trip": relative(np, back.numpy(), signal) / (2 * bound),
        },
    }
    return require_within(measured, CAUSE)


def svd(facts: Facts) -> Measured:
    """Check that singular values equal NumPy's, and that the factors rebuild the matrix and are orthogonal."""
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    matrix = svd_input(np)
    with strictly_on(tf, device):
        factors = tf.linalg.svd(tf.constant(matrix))
    measured = {
        "device": [require_placement(factor, device) for factor in factors],
        "error_over_bound": svd_errors(np, matrix, [factor.numpy() for factor in factors]),
    }
    return require_within(measured, CAUSE)


def svd_input(np: Any) -> Any:
    """Return a tall matrix in float32."""
    return np.random.default_rng(SEED).standard_normal((TALL, WIDE), "float32")


def svd_errors(np: Any, matrix: Any, factors: Sequence[Any]) -> dict[str, float]:
    """Return the errors of singular values, left and right factor, each over its bound.

    Backward stable: each norm of error is at most p u times that of the matrix, p a modest function of its size
    (LAPACK Users' Guide, 3rd ed., section 4.9). Here p is 10 times the longer side; errors are below a twentieth of it.
    """
    values, left, right = (factor.astype("float64") for factor in factors)
    exact, bound, unit = matrix.astype("float64"), 10 * TALL * SINGLE, np.eye(WIDE)
    return {
        "singular values": relative(np, values, np.linalg.svd(exact, compute_uv=False)) / bound,
        "rebuilt": relative(np, left * values @ right.T, exact) / bound,
        "left": relative(np, left.T @ left, unit) / bound,
        "right": relative(np, right.T @ right, unit) / bound,
    }


def cholesky(facts: Facts) -> Measured:
    """A lower factor with a positive diagonal rebuilds the matrix, and solves a system with it.

    Element by element, |A - L L'| is at most gamma(n + 1) |L| |L'|, and the residual of a solution x at most
    gamma(3 n + 1) |L| |L'| |x| (Higham, theorems 10.3 and 10.4). There is only one such factor.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    random = np.random.default_rng(SEED)
    root, right = (random.standard_normal((SIDE, width), "float32") for width in (SIDE, RIGHT_SIDES))
    matrix = root @ root.T / SIDE + np.eye(SIDE, dtype="float32")
    with strictly_on(tf, device):
        factor = tf.linalg.cholesky(tf.constant(matrix))
        solution = tf.linalg.cholesky_solve(factor, tf.constant(right))
    lower, found = (tensor.numpy().astype("float64") for tensor in (factor, solution))
    exact, sizes = matrix.astype("float64"), abs(lower) @ abs(lower).T
    # Asked apart: the other bounds are made from the factor, and hold for the whole matrix times another one too.
    shaped = not np.triu(lower, 1).any() and (np.diag(lower) > 0).all()
    measured = {
        "device": [require_placement(tensor, device) for tensor in (factor, solution)],
        "error_over_bound": {
            "triangle": 0.0 if shaped else float("inf"),
            "rebuilt": over(lower @ lower.T, exact, gamma(SIDE + 1) * sizes),
            "solved": over(exact @ found, right, gamma(3 * SIDE + 1) * sizes @ abs(found)),
        },
    }
    return require_within(measured, CAUSE)


def sparse(facts: Facts) -> Measured:
    """A sparse matrix, as coordinates and as compressed rows, times a dense one: within gamma(n) of float64.

    On a GPU the product of coordinates is TensorFlow's own kernel; that of compressed rows is cuSPARSE's.
    """
    tf, np = tensorflow(), importlib.import_module("numpy")
    device = device_under_test(tf, facts)
    random = np.random.default_rng(SEED)
    left = random.standard_normal((ROWS, INNER), "float32") * (random.random((ROWS, INNER)) < DENSITY)
    left, right = left.astype("float32"), random.standard_normal((INNER, COLUMNS), "float32")
    with strictly_on(tf, device):
        products = _sparse_products(tf, np, left, right)
    left, right = left.astype("float64"), right.astype("float64")
    # A row without entries has the bound 0, and any error in it must count.
    bound = gamma(INNER) * (abs(left) @ abs(right)) + np.finfo("float32").tiny
    measured = {
        "device": [require_placement(product, device) for product in products.values()],
        "error_over_bound": {name: over(product.numpy(), left @ right, bound) for name, product in products.items()},
    }
    return require_within(measured, CAUSE)


def _sparse_products(tf: Any, np: Any, left: Any, right: Any) -> dict[str, Any]:
    places = np.argwhere(left)
    whole = tf.SparseTensor(places, left[tuple(places.T)], left.shape)
    rows = tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=whole.indices, values=whole.values, dense_shape=whole.dense_shape
    )
    return {
        "coordinates": tf.sparse.sparse_dense_matmul(whole, tf.constant(right)),
        "compressed rows": tf.raw_ops.SparseMatrixMatMul(a=rows, b=tf.constant(right)),
    }


def relative(np: Any, found: Any, exact: Any) -> float:
    """The norm of the error over that of the exact array."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
