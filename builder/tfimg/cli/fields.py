"""Print fields, one per line. Without rich, whose import takes longer than `resolve`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfimg.cli.streams import print_styled
from tfimg.core.text import to_plain_text

BOLD = "1"
"""The SGR code."""


def print_fields(row: Mapping[str, Any]) -> None:
    """Print names and values, one per line; None is left out."""
    lines_by_name = {name: _format_lines(value) for name, value in row.items() if value is not None}
    width = max(map(len, lines_by_name), default=0)
    for name, lines in lines_by_name.items():
        print_styled(name, BOLD)
        first, *rest = lines or [""]
        print(f"{'':{width - len(name)}}  {first}".rstrip())
        for line in rest:
            print(f"{'':{width}}  {line}".rstrip())


def _format_lines(value: object) -> list[str]:
    if isinstance(value, list):
        return [line for one in value for line in _format_lines(one)]
    if isinstance(value, dict):
        return [f"{name} {one}" for name, one in value.items() if one is not None]
    return to_plain_text(str(value)).split("\n")
