"""Fields for people, without a library."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from tfimg.cli.output.streams import print_styled
from tfimg.core.text import to_plain_text

BOLD = "1"
"""The SGR code."""

MIN_ROOM = 30
"""Columns from which text is folded; terminals break lines in less room better."""


def print_fields(row: Mapping[str, Any]) -> None:
    """Print names and values, one per line; None is left out."""
    lines_by_name = {name: _format_lines(value) for name, value in row.items() if value is not None}
    margin = max(map(len, lines_by_name), default=0) + 2
    for name, lines in lines_by_name.items():
        print_styled(name, BOLD)
        first, *rest = [folded for line in lines or [""] for folded in _fold(line, margin)]
        has_room = first.startswith(" " * (len(name) + 2))
        print(first[len(name) :].rstrip() if has_room else f"\n{first}")
        for line in rest:
            print(line.rstrip())


def _fold(text: str, margin: int) -> list[str]:
    """Return a text as lines that begin at a column, folded between words on a terminal.

    A line with a longer word than there is room for begins further to the left.
    """
    columns = shutil.get_terminal_size().columns
    room = columns - margin
    if not sys.stdout.isatty() or len(text) <= room or room < MIN_ROOM:
        return [" " * margin + text]
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    return [" " * min(margin, max(0, columns - len(line))) + line for line in lines]


def _format_lines(value: object) -> list[str]:
    if isinstance(value, list):
        return [line for one in value for line in _format_lines(one)]
    if isinstance(value, dict):
        return [f"{name} {one}" for name, one in value.items() if one is not None]
    return to_plain_text(str(value)).split("\n")
