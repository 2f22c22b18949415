"""What the checks of strategies compare with, and what they refuse. No TensorFlow is needed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from checks import cluster, distribution, exports
from contract import CheckFailed

# Bits of the significand of float32.
SINGLE_BITS = 24


def descent(rows: list[int]) -> tuple[list[Fraction], list[Fraction]]:
    """Weights after the steps with some of the rows, and the absolute sums that no rounding may touch."""
    inputs, targets = distribution.batch()
    weights, sums = [Fraction(w) for w in distribution.START], []
    for _ in range(distribution.STEPS):
        slopes = [Fraction(0)] * distribution.FEATURES
        sizes = [Fraction(0)] * distribution.FEATURES
        for row in rows:
            products = [Fraction(x) * w for x, w in zip(inputs[row], weights, strict=True)]
            error = sum(products) - Fraction(targets[row])
            sums.append(sum(map(abs, products)) + abs(Fraction(targets[row])))
            slopes = [s + 2 * error * Fraction(x) for s, x in zip(slopes, inputs[row], strict=True)]
            sizes = [s + abs(2 * error * Fraction(x)) for s, x in zip(sizes, inputs[row], strict=True)]
        sums += sizes
        rate = Fraction(distribution.RATE) / distribution.ROWS
        weights = [w - rate * slope for w, slope in zip(weights, slopes, strict=True)]
        sums += weights
    return weights, sums


def test_the_expected_weights_are_those_of_exact_fractions() -> None:
    weights, _ = descent(list(range(distribution.ROWS)))
    assert distribution.expected_weights() == [float(w) for w in weights]
    assert [Fraction(float(w)) for w in weights] == weights


def test_no_sum_in_any_order_needs_more_bits_than_float32_has() -> None:
    _, sums = descent(list(range(distribution.ROWS)))
    # All are multiples of the finest unit among them, so any partial sum is one, and none is larger than the largest.
    for number in sums:
        finest = max(one.denominator for one in sums)
        assert abs(number) * finest < 2**SINGLE_BITS


def test_a_part_of_the_rows_gives_other_weights() -> None:
    half = distribution.ROWS // 2
    start = list(map(Fraction, distribution.START))
    found = [descent(part)[0] for part in (list(range(half)), list(range(half, distribution.ROWS)))]
    found += [[2 * w - s for w, s in zip(one, start, strict=True)] for one in found]
    assert all(distribution.expected_weights() != [float(w) for w in one] for one in found)


def measured(**changes: Any) -> dict[str, Any]:
    weights = distribution.expected_weights()
    return {"replicas": 2, "rows": [4, 4], "weights": [weights, weights], **changes}


@pytest.mark.parametrize(("devices", "replicas"), [(1, 2), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (16, 8)])
def test_every_real_device_has_a_replica_if_the_rows_can_be_divided(devices: int, replicas: int) -> None:
    assert distribution.replica_count(devices) == replicas


def test_exact_weights_pass() -> None:
    assert distribution.require_same(measured(), 2) == measured()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"replicas": 1}, "found 1 with"),
        ({"rows": [8, 8]}, "2 replicas with 4 rows each, found 2 with"),
        ({"weights": [distribution.expected_weights(), [0.0] * 4]}, r"in every replica, found \[0.0"),
        ({"weights": [[float("nan")] * 4]}, r"found \[nan"),
    ],
)
def test_anything_else_fails(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(CheckFailed, match=reason):
        distribution.require_same(measured(**changes), 2)


def test_addresses_differ() -> None:
    found = cluster.free_addresses(20)
    assert len(set(found)) == 20
    assert all(address.startswith("127.0.0.1:") for address in found)


def test_the_exported_module_is_tried_on_both_sides_of_its_kink() -> None:
    assert exports.expected() == [[9.0, 9.0], [0.0, 15.0]]
