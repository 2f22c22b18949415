"""What a container said, made harmless for whoever looks at it: in a terminal, an XML file, a page, strict JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from tfimg.core.printable import escape_unprintable

_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor movements and titles of a terminal (ECMA-48)."""


def plain(text: str) -> str:
    """Text without terminal sequences, each other unprintable character written out: XML 1.0 forbids most of them."""
    return escape_unprintable(_SEQUENCES.sub("", text))


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
