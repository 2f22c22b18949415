"""What the suite's numeric checks know without TensorFlow: bounds and verdicts."""

from __future__ import annotations

import pytest
from bounds import ROUNDOFF, gamma, require_within
from checks import numerics
from contract import CheckFailed


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


def test_what_is_within_its_bound_is_evidence() -> None:
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
