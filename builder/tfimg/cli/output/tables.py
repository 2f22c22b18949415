"""Tables for people, without rich, whose import and layout of 258 rows took 20 times as long as a bare interpreter."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any
from unicodedata import east_asian_width

from tfimg.cli.output.streams import unescaped, without_styles
from tfimg.core.text import escape_unprintable, to_plain_text

COLOURS = {
    "done": "green",
    "cached": "cyan",
    "unchanged": "cyan",
    "recorded": "cyan",
    "passed": "green",
    "failed": "red",
    "crashed": "red",
    "timed-out": "red",
    "skipped": "yellow",
    "validated": "green",
    "linked": "cyan",
    "built": "yellow",
    "declared": "dim",
}
"""State → its colour, by rich's name."""

CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
"""Style → SGR code."""


class Table:
    """A table without a frame, which `grep` and `awk` can read; a cell may have several lines.

    On a narrow terminal, the columns that are `folding` fold between words, so that names can be copied. `colours` are
    those of words, by column; `gap` is the number of blanks between columns.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        folding: Collection[str] = (),
        right: Collection[str] = (),
        colours: Mapping[str, Mapping[str, str]] | None = None,
        gap: int = 2,
    ) -> None:
        self._rows = [list(map(escape_unprintable, row)) for row in (columns, *rows)]
        self._folds = [name in folding for name in columns]
        self._right = [name in right for name in columns]
        self._colours = [(colours or {}).get(name, {}) for name in columns]
        self._gap = gap
        cells = ["\n".join(column) for column in zip(*self._rows, strict=True)]
        self._least = [max(map(_width, cell.split()), default=0) for cell in cells]
        self._most = [max(map(_width, cell.split("\n"))) for cell in cells]

    @property
    def width(self) -> int:
        """The columns of a terminal that has room for it: for every word if columns may fold, else for every line."""
        return self._sum(self._least if any(self._folds) else self._most)

    def _sum(self, widths: Sequence[int]) -> int:
        return sum(widths) + self._gap * (len(widths) - 1)

    def render(self, room: int | None = None, *, is_styled: bool = False) -> str:
        """Return its lines without trailing blanks. They fit into `room` columns; None: nothing folds."""
        widths = self._most if room is None else self._fit(room)
        lines: list[str] = []
        for row in self._rows:
            head = is_styled and not lines
            folded = [_fold_cell(cell, width) for cell, width in zip(row, widths, strict=True)]
            for parts in zip_longest(*folded, fillvalue=""):
                cells = []
                for text, width, right, colours in zip(parts, widths, self._right, self._colours, strict=True):
                    blanks = " " * (width - _width(text))
                    styled = _style(text, "bold") if head else _colour_words(text, colours) if is_styled else text
                    cells.append(blanks + styled if right else styled + blanks)
                lines.append((" " * self._gap).join(cells).rstrip())
        return "\n".join([*lines, ""])

    def _fit(self, room: int) -> list[int]:
        """Return widths for a terminal: only columns that are `folding` fold, if they have room for their words."""
        widths = [low if folds else high for folds, low, high in zip(self._folds, self._least, self._most, strict=True)]
        widths = widths if self._sum(widths) <= room else list(self._least)
        while self._sum(widths) > room and max(widths) > 1:
            widths[widths.index(max(widths))] -= 1
        for number, most in enumerate(self._most):
            widths[number] += max(0, min(most - widths[number], room - self._sum(widths)))
        return widths


def _width(text: str) -> int:
    """Return the columns of a text; letters of East Asian scripts take two."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(one) in "WF") for one in text)


def _fold_cell(text: str, width: int) -> list[str]:
    if _width(text) <= width:
        return [text]
    lines = text.split("\n")
    return [part for line in lines for part in textwrap.wrap(line, width, break_on_hyphens=False) or [""]]


def _style(text: str, name: str) -> str:
    return f"\x1b[{CODES[name]}m{text}\x1b[0m" if text else ""


def _colour_words(text: str, colours: Mapping[str, str]) -> str:
    return re.sub("|".join(colours), lambda word: _style(word[0], colours[word[0]]), text) if colours else text


def print_table(tables: Iterable[Table]) -> None:
    """Print the first table that the terminal has room for, else the last one; for a file, the first.

    Those after it are not made.
    """
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for table in tables:
        if room is None or table.width <= room:
            break
    unescaped(sys.stdout).write(table.render(room, is_styled=room is not None and not without_styles()))


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], **options: Any) -> None:
    """Print a table of text from outside, each cell on one line; `options` are those of `Table`."""
    cells = [[" ".join(to_plain_text(cell).splitlines()) for cell in row] for row in rows]
    print_table([Table(columns, cells, **options)])
