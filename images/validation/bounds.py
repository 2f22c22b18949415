"""Bounds of rounding errors, and the errors raised for results beyond them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from contract import Measured

# Half the distance from 1 to the next number: 2**-p for p significant bits (IEEE 754; bfloat16 has 8 of them).
ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SINGLE = ROUNDOFF["float32"]


def gamma(count: int, roundoff: float = SINGLE) -> float:
    """Relative error of `count` rounded operations, n u / (1 - n u).

    A sum of n products, in any order of summation, is wrong by at most gamma(n) times the sum of their absolute
    values (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM 2002, lemma 3.1, eq. 3.5).
    """
    return count * roundoff / (1 - count * roundoff)


def over(found: Any, expected: Any, bound: Any) -> float:
    """The largest error of a NumPy array, in units of its bound; NaN when there is one."""
    return float((abs(found - expected) / bound).max())


def require_within(measured: Measured, cause: str) -> Measured:
    """What was measured. Raises CheckFailed when anything in its `error_over_bound` is above 1 or no number."""
    # Asked this way round, a NaN fails too.
    wrong = [f"{name} at {ratio:.3g} times" for name, ratio in measured["error_over_bound"].items() if not ratio <= 1]
    if wrong:
        raise CheckFailed(
            f"expected every error within its rounding bound, found {', '.join(wrong)} the bound: {cause}",
            **measured,
        )
    return measured


def require_equal(found: Mapping[str, Any], expected: Mapping[str, Any], cause: str, **measured: Any) -> None:
    """Raise CheckFailed, with the cause and all answers, when one is missing or not the expected one."""
    wrong = [
        f"{name} as {value!r}, found {found.get(name)!r}"
        for name, value in expected.items()
        if found.get(name) != value
    ]
    if wrong:
        raise CheckFailed(f"expected {'; '.join(wrong)}: {cause}", answers=dict(found), **measured)
