"""Tables and lists for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from typing import Literal

from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tfimg.cli.output.console import EscapingConsole, make_console
from tfimg.core.text import to_plain_text

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

Cell = str | Text

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
    console = EscapingConsole(file=StringIO(), width=UNCUT, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def plain_table(*columns: str, folding: Sequence[str] = (), right: Sequence[str] = ()) -> Table:
    """Return a table without a frame, which `grep` and `awk` can read. Columns that are `folding` may wrap."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, no_wrap=column not in folding, overflow="fold", justify=justify)
    return table


def print_rows(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, folding: Sequence[str] = (), right: Sequence[str] = ()
) -> None:
    """Print a table of styled `Text` and of plain text, each cell on one line."""
    table = plain_table(*columns, folding=folding, right=right)
    for row in rows:
        table.add_row(
            *(cell if isinstance(cell, Text) else Text(" ".join(to_plain_text(cell).splitlines())) for cell in row)
        )
    print_table(table)


def print_first_fitting(tables: Iterable[Table], width: Callable[[Measurement], int]) -> None:
    """Print the first table whose width the terminal has, else the last one; the first for a file.

    Tables after it are not made: each of `tfimg list` takes 30 ms.
    """
    console = make_console()
    # Measured without the terminal's bound, which would make every table fit.
    unbound = console.options.update(max_width=UNCUT)
    for table in tables:
        if not console.is_terminal or width(Measurement.get(console, unbound, table)) <= console.width:
            break
    print_table(table)
