"""Results for people: tables and fields, coloured on a terminal, plain elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any, Literal

from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tfimg.cli.console import make_console
from tfimg.core.levels import LEVELS
from tfimg.core.text import to_plain_text
from tfimg.recipe.support import Support
from tfimg.recipe.support_table import (
    FULL_COLUMNS,
    MAIN_COLUMNS,
    MINIMAL_COLUMNS,
    SHORT_COLUMNS,
    STACKED_COLUMNS,
    Columns,
)

COLOURS = {
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

UNCUT = 1000
"""Columns that every table fits into."""


def coloured(word: str) -> str:
    """Return a status word with the markup of its colour."""
    return f"[{COLOURS.get(word, 'default')}]{word}[/]"


def print_table(table: Table) -> None:
    """Print a table on standard output; nothing of it is cut: on a narrow terminal, cells fold.

    They fold between words where the longest word of each column has room, so that names can be copied.
    """
    console = make_console()
    if not console.is_terminal:
        print(table_text(table), end="")
        return
    unbound = console.options.update(max_width=UNCUT)
    needed = Measurement.get(console, unbound, table)
    if needed.maximum > console.width:
        spare = console.width - needed.minimum
        for column in table.columns:
            column.no_wrap, column.overflow = False, "fold"
            if needed.minimum <= console.width:
                # rich shares out too little room evenly, and would split the words of the widest column.
                cells = [Measurement.get(console, unbound, cell) for cell in (column.header, *column.cells)]
                least, most = max(cell.minimum for cell in cells), max(cell.maximum for cell in cells)
                column.width = min(most, least + spare)
                spare -= column.width - least
    console.print(table)


def table_text(table: Table) -> str:
    """Return a table as plain text, not cut and without trailing spaces."""
    console = make_console(file=StringIO(), width=UNCUT)
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def plain_table(*columns: str) -> Table:
    """Return a table without a frame, which `grep` and `awk` can read."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column != "TAGS")
    return table


def print_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    folding: Sequence[str] = (),
    right: Sequence[str] = (),
) -> None:
    """Print a table of plain text and of styled `Text`. Columns that are `folding` may wrap on any terminal."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, no_wrap=column not in folding, overflow="fold", justify=justify)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(to_plain_text(cell)) for cell in row))
    print_table(table)


IMAGE_FORMS = (
    ("IDENTIFIER", "CUDA", "CUDNN", "LIBTPU", "LEVEL", "TAGS"),
    ("IDENTIFIER", "CUDA", "LEVEL", "TAGS"),
    ("IDENTIFIER", "LEVEL", "TAGS"),
    ("IDENTIFIER", "LEVEL"),
    ("IDENTIFIER",),
)
"""Columns of `tfimg list`, from a wide terminal to a narrow one."""


def print_images(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what `tfimg list` shows: as many columns as the terminal has room for without splitting a name."""
    console = make_console()
    unbound = console.options.update(max_width=UNCUT)
    tables = [image_table(rows, columns) for columns in IMAGE_FORMS]
    fitting = (table for table in tables if Measurement.get(console, unbound, table).minimum <= console.width)
    print_table(next(fitting, tables[-1]) if console.is_terminal else tables[0])


def image_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    """Return the table of images with some of its columns."""
    table = plain_table(*columns)
    for row in rows:
        bare = "; bare machine" if row["bare_machines"] else ""
        cells = {
            "IDENTIFIER": row["identifier"],
            **{name: row[name.lower()] or "-" for name in ("CUDA", "CUDNN", "LIBTPU")},
            "LEVEL": coloured(row["level"]) + bare,
            "TAGS": ", ".join(tag.rpartition(":")[2] for tag in row["tags"][1:]) or "-",
        }
        table.add_row(*(cells[column] for column in columns))
    return table


def print_support(rows: Sequence[Support]) -> None:
    """Print as many columns of the support table as the terminal has room for."""
    console = make_console()
    tables = [
        support_table(rows, columns)
        for columns in (FULL_COLUMNS, SHORT_COLUMNS, STACKED_COLUMNS, MAIN_COLUMNS, MINIMAL_COLUMNS)
    ]
    # Measured without the terminal's bound, which would make every table fit.
    unbound = console.options.update(width=1000)
    fitting = (table for table in tables if console.measure(table, options=unbound).maximum <= console.width)
    print_table(next(fitting, tables[-1]) if console.is_terminal else tables[0])


def support_table(rows: Sequence[Support], columns: Columns) -> Table:
    """Return the support table with some columns."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for name, _ in columns:
        table.add_column(name.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(_colour_levels(name, escape(text(row))) for name, text in columns))
    return table


def _colour_levels(column: str, text: str) -> str:
    if column != "proven":
        return text
    return re.sub("|".join(LEVELS), lambda found: coloured(found[0]), text)


def print_notes(notes: Sequence[str]) -> None:
    """Print sentences below a table, one per line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for note in notes:
        table.add_row(escape(note))
    print_table(table)


def size(count: int | None) -> str:
    """Format bytes in units of 10^6."""
    return "not known" if count is None else f"{count / 1e6:,.0f} MB"
