"""One thing's fields, a line each. Without rich, whose import would take most of the time that `resolve` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfimg.cli.streams import print_styled

BOLD = "1"
"""The SGR code."""


def print_fields(row: Mapping[str, Any]) -> None:
    """Print names and values below each other; what is None is left out."""
    told = {name: _lines(value) for name, value in row.items() if value is not None}
    width = max(map(len, told), default=0)
    for name, lines in told.items():
        print_styled(name, BOLD)
        first, *rest = lines or [""]
        print(f"{'':{width - len(name)}}  {first}".rstrip())
        for line in rest:
            print(f"{'':{width}}  {line}".rstrip())


def _lines(value: object) -> list[str]:
    if isinstance(value, list):
        return [line for one in value for line in _lines(one)]
    if isinstance(value, dict):
        return [f"{name} {one}" for name, one in value.items() if one is not None]
    return str(value).split("\n")
