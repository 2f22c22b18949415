"""Results for people: tables and fields, coloured on a terminal, plain elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from tfimg.cli.console import make_console
from tfimg.recipe.describe import LEVELS
from tfimg.recipe.support import Support
from tfimg.recipe.support_text import COLUMNS, FEW, LEAST, NARROW, SHORT, Columns

COLOURS = {
    "passed": "green", "failed": "red", "crashed": "red", "timed-out": "red", "skipped": "yellow",
    "validated": "green", "linked": "cyan", "built": "yellow", "declared": "dim",
}  # fmt: skip

UNCUT = 1000
"""Columns that every table fits into."""


def coloured(word: str) -> str:
    """A status word in its colour."""
    return f"[{COLOURS.get(word, 'default')}]{word}[/]"


def print_table(table: Table) -> None:
    """Print a table on standard output; nothing of it is cut: on a narrow terminal, cells fold."""
    console = make_console()
    if console.is_terminal:
        if Measurement.get(console, console.options.update(max_width=UNCUT), table).maximum > console.width:
            for column in table.columns:
                column.no_wrap, column.overflow = False, "fold"
        console.print(table)
    else:
        print(table_text(table), end="")


def table_text(table: Table) -> str:
    """A table as plain text, uncut and without blanks at the ends of lines."""
    console = make_console(file=StringIO(), width=UNCUT)
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def plain_table(*columns: str) -> Table:
    """A table without a frame, which `grep` and `awk` can read."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column != "TAGS")
    return table


def image_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """What `tfimg list` shows."""
    table = plain_table("IDENTIFIER", "CUDA", "CUDNN", "LIBTPU", "LEVEL", "TAGS")
    for row in rows:
        names = ", ".join(tag.rpartition(":")[2] for tag in row["tags"][1:])
        optional = [row[key] or "-" for key in ("cuda", "cudnn", "libtpu")]
        table.add_row(row["identifier"], *optional, coloured(row["level"]), names or "-")
    return table


def print_support(rows: Sequence[Support]) -> None:
    """What `tfimg matrix` shows: as much of the support table as the terminal has room for."""
    console = make_console()
    tables = [support_table(rows, columns) for columns in (COLUMNS, SHORT, NARROW, FEW, LEAST)]
    # Measured without the terminal's bound, which would make every table fit.
    unbound = console.options.update(width=1000)
    fitting = (table for table in tables if console.measure(table, options=unbound).maximum <= console.width)
    print_table(next(fitting, tables[-1]) if console.is_terminal else tables[0])


def support_table(rows: Sequence[Support], columns: Columns) -> Table:
    """The support table with some of its forms' columns."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name, _ in columns:
        table.add_column(name.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(_with_colour(name, escape(text(row))) for name, text in columns))
    return table


def _with_colour(column: str, text: str) -> str:
    if column != "proven":
        return text
    return re.sub("|".join(LEVELS), lambda found: coloured(found[0]), text)


def print_notes(notes: Sequence[str]) -> None:
    """Sentences below a table, a line each where nobody looks at a terminal."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for note in notes:
        table.add_row(escape(note))
    print_table(table)


def size(count: int | None) -> str:
    """Bytes for people, in units of 10^6."""
    return "not known" if count is None else f"{count / 1e6:,.0f} MB"
