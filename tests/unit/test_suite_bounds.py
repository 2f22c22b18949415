"""The bounds of numeric results: lower precision exceeds them, and what cuDNN may choose stays within."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from bounds import ROUNDOFF, gamma, over, require_within
from checks import CHECKS, compilation, layers, linear_algebra, numerics
from contract import CheckFailed

Array = Any
Round = Callable[[Array], Array]

# Explicit bits of the significand: float32 has 23, TensorFloat-32 10, bfloat16 7.
REDUCED = {"TensorFloat-32": 10, "bfloat16": 7}


def round_bits(array: Array, bits: int) -> Array:
    """Round float32 to nearest, ties to even, keeping so many explicit bits of the significand."""
    dropped = 23 - bits
    pattern = np.ascontiguousarray(array, "float32").view("uint32").astype("uint64")
    half = (1 << dropped - 1) - 1 + (pattern >> dropped & 1)
    return ((pattern + half) >> dropped << dropped).astype("uint32").view("float32")


def convolution_errors(change: Round) -> Mapping[str, float]:
    """Return the errors of the suite's convolution when its operands are changed and the rest is exact."""
    arrays = layers.convolution_inputs(np)
    found = layers.convolution_reference(np, *map(change, arrays))
    return layers.convolution_errors(np, arrays, found)


def lstm_errors(change: Round) -> Mapping[str, float]:
    """Return those of its LSTM: inputs, weights and gradients."""
    arrays, upstream = layers.lstm_inputs(np)
    changed = [change(array) for array in arrays]
    found = [layers.lstm_reference(np, *changed), *layers.lstm_slopes(np, changed, change(upstream))]
    return layers.lstm_errors(np, arrays, upstream, found)


def xla_errors(change: Round) -> Mapping[str, float]:
    """Return that of the function that XLA compiles."""
    left, right = compilation.xla_inputs(np)
    exact, bound = compilation.xla_reference(np, left, right)
    found, _ = compilation.xla_reference(np, change(left), change(right))
    return {"softplus": over(found, exact, bound)}


def training_step_errors(change: Round) -> Mapping[str, float]:
    """Return that of the step of logistic regression that XLA compiles."""
    inputs, start = compilation.step_inputs(np)
    exact, bound = compilation.logistic_reference(np, inputs.astype("float64"), start.astype("float64"))
    found, _ = compilation.logistic_reference(np, change(inputs).astype("float64"), change(start).astype("float64"))
    return {"weights": over(found, exact, bound)}


def svd_errors(change: Round) -> Mapping[str, float]:
    """Return those of the singular value decomposition."""
    matrix = linear_algebra.svd_input(np)
    left, values, right = np.linalg.svd(change(matrix).astype("float64"), full_matrices=False)
    # The factors of another matrix are orthogonal all the same, and its singular values change less than it does.
    return {"rebuilt": linear_algebra.svd_errors(np, matrix, (values, left, right.T))["rebuilt"]}


ERRORS = {
    "convolution": convolution_errors,
    "LSTM": lstm_errors,
    "XLA": xla_errors,
    "XLA training step": training_step_errors,
    "SVD": svd_errors,
}


@pytest.mark.parametrize("check", ERRORS)
@pytest.mark.parametrize("kind", REDUCED)
def test_operands_of_lower_precision_exceed_the_bound(check: str, kind: str) -> None:
    errors = ERRORS[check](lambda array: round_bits(array, REDUCED[kind]))
    assert min(errors.values()) > 1, errors


@pytest.mark.parametrize("check", ERRORS)
def test_float32_stays_far_within_the_bound(check: str) -> None:
    """Operands that are wrong by half a unit in the last place, as if each had been rounded once more."""
    random = np.random.default_rng(1)
    errors = ERRORS[check](lambda array: array * (1 + 2.0**-24 * random.uniform(-1, 1, array.shape)))
    assert max(errors.values()) < 0.5, errors


def cook_toom(outputs: int, taps: int) -> tuple[Array, Array, Array]:
    """Return the matrices A', G and B' of Winograd's minimal filter F(outputs, taps), in float32.

    Its interpolation points are 0, 1, -1, 2, -2 in this order, and infinity (Lavin and Gray, "Fast Algorithms for
    Convolutional Neural Networks", 2015). Denominators stand in G, as they do there.
    """
    points = np.array([0, 1, -1, 2, -2][: outputs + taps - 2], "float64")
    scales = np.array([np.prod([p - q for q in points if q != p]) for p in points] + [1.0])

    def values(count: int) -> Array:
        """Return what turns so many coefficients into the values of their polynomial, at infinity the last of them."""
        return np.vstack([points[:, None] ** np.arange(count), np.eye(count)[-1]])

    data = np.linalg.inv(values(outputs + taps - 1)).T * scales[:, None]
    filters = values(taps) / scales[:, None]
    return values(outputs).T.astype("float32"), filters.astype("float32"), data.astype("float32")


def winograd(image: Array, kernel: Array, outputs: int) -> Array:
    """Convolve as a Winograd kernel does, in float32: transform tiles and filters, multiply, transform back.

    The image has batch, height, width and channels, the kernel height, width, and channels in and out.
    """
    taps = kernel.shape[0]
    back, to_filters, to_data = cook_toom(outputs, taps)
    size, rows, columns = outputs + taps - 1, image.shape[1] - taps + 1, image.shape[2] - taps + 1
    tiles = -(-rows // outputs), -(-columns // outputs)
    missing = [count * outputs + taps - 1 - length for count, length in zip(tiles, image.shape[1:3], strict=True)]
    padded = np.pad(image, ((0, 0), (0, missing[0]), (0, missing[1]), (0, 0)))
    filters = np.einsum("ia,abcd,jb->ijcd", to_filters, kernel, to_filters)
    found = np.zeros((len(image), tiles[0] * outputs, tiles[1] * outputs, kernel.shape[3]), "float32")
    for row, column in np.ndindex(tiles):
        top, left = row * outputs, column * outputs
        tile = padded[:, top : top + size, left : left + size]
        data = np.einsum("ia,nabc,jb->nijc", to_data, tile, to_data)
        products = np.einsum("nijc,ijcd->nijd", data, filters)
        found[:, top : top + outputs, left : left + outputs] = np.einsum("ai,nijd,bj->nabd", back, products, back)
    assert found.dtype == "float32"
    return found[:, :rows, :columns]


def winograd_convolution(outputs: int) -> tuple[Array, Array, Array]:
    """Return output, input gradient and kernel gradient of the suite's convolution, all by F(outputs, 3).

    The input gradient is a convolution of the padded upstream gradient with the kernel turned over. The kernel gradient
    is one of the image with the upstream gradient, a filter that is cut into squares of `outputs`: F(3, outputs).
    """
    image, kernel, upstream = layers.convolution_inputs(np)
    border = kernel.shape[0] - 1
    surrounded = np.pad(upstream, ((0, 0), (border, border), (border, border), (0, 0)))
    turned = kernel[::-1, ::-1].transpose(0, 1, 3, 2)
    as_images, as_filters = image.transpose(3, 1, 2, 0), upstream.transpose(1, 2, 0, 3)
    rows, columns = (-(-length // outputs) * outputs for length in as_filters.shape[:2])
    grown = np.pad(as_filters, ((0, rows - as_filters.shape[0]), (0, columns - as_filters.shape[1]), (0, 0), (0, 0)))
    wide = np.pad(as_images, ((0, 0), (0, rows - as_filters.shape[0]), (0, columns - as_filters.shape[1]), (0, 0)))
    to_kernel = sum(
        winograd(
            wide[:, row : row + outputs + 2, column : column + outputs + 2],
            grown[row : row + outputs, column : column + outputs],
            3,
        )
        for row in range(0, rows, outputs)
        for column in range(0, columns, outputs)
    )
    assert isinstance(to_kernel, np.ndarray)
    return (winograd(image, kernel, outputs), winograd(surrounded, turned, outputs), to_kernel.transpose(1, 2, 0, 3))


@pytest.mark.parametrize("outputs", [2, 4])
def test_winograd_in_float32_stays_within_the_bound_of_a_convolution(outputs: int) -> None:
    errors = layers.convolution_errors(np, layers.convolution_inputs(np), winograd_convolution(outputs))
    assert max(errors.values()) < 0.5, errors
    # It is another algorithm than the direct one, and not exact either.
    assert min(errors.values()) > 1e-4, errors


@pytest.mark.parametrize("outputs", [2, 4])
def test_winograd_stays_within_the_bound_of_a_plane(outputs: int) -> None:
    plane, kernel = layers.plane_inputs(np)
    assert layers.plane_error(np, winograd(plane, kernel, outputs)) < 0.5
    assert layers.plane_error(np, winograd(plane, kernel[::-1, ::-1], outputs)) > 1


def test_checks_that_compare_numbers_state_their_bound_in_the_table() -> None:
    compare = ("require_within(", "require_equal(")
    comparing = {
        name for name, check in CHECKS.items() if any(word in inspect.getsource(check.run) for word in compare)
    }
    assert comparing <= {name for name, check in CHECKS.items() if check.bound}
    assert len(comparing) > 10


def test_gamma_is_a_little_above_count_times_roundoff() -> None:
    assert ROUNDOFF["float32"] * 2 == 2**-23, "half the distance to the next number"
    assert gamma(256) == pytest.approx(256 * 2**-24, rel=1e-4)
    assert gamma(256) > 256 * 2**-24


@pytest.mark.parametrize(
    ("kind", "on_cpu", "expected"),
    [
        ("float32", False, 256 * 2**-24 * 100),
        ("bfloat16", False, 256 * 2**-24 * 100 + 2**-8 * 7),
        ("bfloat16", True, 256 * 2**-24 * 100 + 2**-7 * 7),
        ("float16", False, 256 * 2**-24 * 100 + 2**-11 * 7),
        ("float16", True, gamma(256, 2**-11) * 100),
    ],
)
def test_only_float16_on_a_cpu_may_be_added_in_16_bits_and_only_bfloat16_there_truncated(
    kind: str, on_cpu: bool, expected: float
) -> None:
    assert numerics.product_bound(100.0, -7.0, kind, on_cpu) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("ratio", [1.5, float("nan"), float("inf")])
def test_what_is_not_within_its_bound_fails(ratio: float) -> None:
    measured = {"error_over_bound": {"output": 0.1, "gradient": ratio}}
    with pytest.raises(CheckFailed, match=r"found gradient at \S+ times the bound: it is broken") as caught:
        require_within(measured, "it is broken")
    assert caught.value.measured == measured


def test_what_is_within_its_bound_is_reported() -> None:
    measured = {"error_over_bound": {"output": 0.1, "gradient": 1.0}}
    assert require_within(measured, "it is broken") is measured


TURING, AMPERE = (7, 5), (8, 0)
REFUSED = "{{function_node __wrapped__MatMul}} CUBLAS_STATUS_NOT_SUPPORTED [Op:MatMul] name: "


@pytest.mark.parametrize(
    ("kind", "error", "capability", "applicable"),
    [
        ("bfloat16", REFUSED, TURING, False),
        ("bfloat16", REFUSED, (5, 2), False),
        ("bfloat16", REFUSED, AMPERE, True),
        ("bfloat16", REFUSED, (12, 0), True),
        ("bfloat16", REFUSED, None, True),
        ("bfloat16", "CUBLAS_STATUS_EXECUTION_FAILED", TURING, True),
        ("float16", REFUSED, TURING, True),
        ("float32", REFUSED, TURING, True),
    ],
)
def test_only_a_refused_bfloat16_product_on_an_old_gpu_is_not_applicable(
    kind: str, error: str, capability: tuple[int, int] | None, applicable: bool
) -> None:
    reason = numerics.why_not_applicable(kind, error, capability)
    assert (reason is None) is applicable
    assert reason is None or reason.startswith("not applicable: cuBLAS has no bfloat16 products")
