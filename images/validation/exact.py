"""The verdict on answers that leave no room for rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def require_equal(found: Mapping[str, Any], expected: Mapping[str, Any], cause: str, **evidence: Any) -> None:
    """Raise CheckFailed, with the cause and all answers, when one is missing or not the expected one."""
    wrong = [
        f"{name} as {value!r}, found {found.get(name)!r}"
        for name, value in expected.items()
        if found.get(name) != value
    ]
    if wrong:
        raise CheckFailed(f"expected {'; '.join(wrong)}: {cause}", answers=dict(found), **evidence)
