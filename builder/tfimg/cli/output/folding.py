"""Fold texts at blanks to the width of the terminal."""

from __future__ import annotations

import re
import shutil
import textwrap

MIN_COLUMNS = 20
"""In less room, the terminal breaks long lines better."""

JOINED = "\0"
"""Stands for a blank at which no line ends."""


def fold(text: str, *, indent: int = 0, max_columns: int = 1000) -> str:
    """Return a text that begins at a column, folded. Commands in backticks stay in one piece, for people to copy."""
    room = min(max_columns, shutil.get_terminal_size().columns) - indent
    if room < MIN_COLUMNS:
        return text
    joined = re.sub(r"`[^`\n]*`", lambda found: found[0].replace(" ", JOINED), text)
    lines = textwrap.wrap(joined, room, break_on_hyphens=False, break_long_words=False)
    return f"\n{'':{indent}}".join(lines).replace(JOINED, " ")


def fold_lines(text: str) -> str:
    """Return a text of several lines with each of them folded, at its own indentation."""
    found = ((line, len(line) - len(line.lstrip(" "))) for line in text.split("\n"))
    return "\n".join(line[:indent] + fold(line[indent:], indent=indent) for line, indent in found)
