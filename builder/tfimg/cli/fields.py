"""One thing's fields, a line each. Without rich, whose import would take most of the time that `resolve` takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any


def print_fields(row: Mapping[str, Any]) -> None:
    """Print names and values below each other; what is None is left out."""
    told = {name: _lines(value) for name, value in row.items() if value is not None}
    width = max(map(len, told), default=0)
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for name, lines in told.items():
        shown = f"\x1b[1m{name}\x1b[0m{' ' * (width - len(name))}" if bold else f"{name:{width}}"
        for number, line in enumerate(lines or [""]):
            print(f"{' ' * width if number else shown}  {line}".rstrip())


def _lines(value: object) -> list[str]:
    if isinstance(value, list):
        return [line for one in value for line in _lines(one)]
    if isinstance(value, dict):
        return [f"{name} {one}" for name, one in value.items() if one is not None]
    return str(value).split("\n")
