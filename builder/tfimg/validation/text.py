"""What a container said, made harmless for whoever looks at it: in a terminal, an XML file, a page, strict JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor movements and titles of a terminal (ECMA-48)."""

_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)  # fmt: skip
"""What XML 1.0 forbids, what moves a cursor, and what makes a line read in another order than it is written in."""


def plain(text: str) -> str:
    """Text without terminal sequences, each other unfit character written out: fonts have no signs for them."""
    return _UNFIT.sub(lambda found: _escape(ord(found[0])), _SEQUENCES.sub("", text))


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def strict(value: Any) -> Any:
    """A JSON value that every parser takes: words for NaN and the infinities, no halves of characters."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {strict(str(name)): strict(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [strict(one) for one in value]
    return value


def pretty(value: Any) -> str:
    """A piece of evidence for people: words and numbers as they are, flat lists on a line, the rest over several."""
    if isinstance(value, str | float):
        return plain(str(value))
    if value is None or value in ([], (), {}):
        return "none"
    if isinstance(value, list | tuple) and not any(isinstance(one, list | tuple | Mapping) for one in value):
        return ", ".join(map(pretty, value))
    return plain(json.dumps(strict(value), indent=2, ensure_ascii=False))


def duration(seconds: float) -> float:
    """Seconds as they can be drawn and added up: none of them below zero or endless."""
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0
