"""Make text and values from outside safe for terminals, XML, HTML and strict JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor movements and titles of a terminal (ECMA-48)."""


def to_plain_text(text: str) -> str:
    """Text without terminal sequences, each other unprintable character written out: XML 1.0 forbids most of them."""
    return escape_unprintable(_SEQUENCES.sub("", text))


def to_strict_json(value: Any) -> Any:
    """A JSON value that every parser takes: words for NaN and the infinities, no halves of characters."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {to_strict_json(str(name)): to_strict_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_strict_json(one) for one in value]
    return value


def format_value(value: Any) -> str:
    """A piece of evidence for people: words and numbers as they are, flat lists on a line, the rest over several."""
    if isinstance(value, str | float):
        return to_plain_text(str(value))
    if value is None or value in ([], (), {}):
        return "none"
    if isinstance(value, list | tuple) and not any(isinstance(one, list | tuple | Mapping) for one in value):
        return ", ".join(map(format_value, value))
    return to_plain_text(json.dumps(to_strict_json(value), indent=2, ensure_ascii=False))


def clamp_duration(seconds: float) -> float:
    """Seconds as they can be drawn and added up: none of them below zero or endless."""
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def escape_unprintable(text: str) -> str:
    """Write out every character that Unicode calls unprintable, except line ends and tabs.

    These are controls (C0, C1, the escape character), format characters (bidirectional overrides, zero-width signs),
    separators other than the space, surrogates, and what is unassigned: the rule of `str.isprintable`.
    """
    return "\n".join(line if line.isprintable() else "".join(map(_escape, line)) for line in text.split("\n"))


def _escape(char: str) -> str:
    if char.isprintable() or char == "\t":
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
