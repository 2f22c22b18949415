"""Tables of images and of the matrix: as many columns as the terminal has room for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from tfimg.cli.output.console import make_console
from tfimg.cli.output.tables import UNCUT, coloured, plain_table, print_table, table_text
from tfimg.core.levels import LEVELS
from tfimg.recipe.support import FULL_COLUMNS, SUPPORT_FORMS, Columns, Support, list_notes

IMAGE_FORMS = (
    ("IDENTIFIER", "CUDA", "CUDNN", "LIBTPU", "LEVEL", "PROVEN ON", "SUPPORTED UNTIL", "TAGS"),
    ("IDENTIFIER", "CUDA", "LEVEL", "PROVEN ON", "SUPPORTED UNTIL", "TAGS"),
    ("IDENTIFIER", "LEVEL", "PROVEN ON", "SUPPORTED UNTIL", "TAGS"),
    ("IDENTIFIER", "LEVEL", "SUPPORTED UNTIL", "TAGS"),
    ("IDENTIFIER", "LEVEL", "TAGS"),
    ("IDENTIFIER", "LEVEL"),
    ("IDENTIFIER",),
)
"""Columns of `tfimg list`, from a wide terminal to a narrow one."""


def print_images(rows: Sequence[Mapping[str, Any]], today: date) -> None:
    """Print what `tfimg list` shows; only tags fold."""
    tables = [_image_table(rows, columns, today) for columns in IMAGE_FORMS]
    _print_first_fitting(tables, lambda needed: needed.minimum)


def _image_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], today: date) -> Table:
    table = plain_table(*columns, folding=["TAGS"])
    for row in rows:
        notes = ("; emulated" if row["emulated"] else "") + ("; bare machine" if row["bare_machines"] else "")
        cells = {
            "IDENTIFIER": row["identifier"],
            **{name: row[name.lower()] or "-" for name in ("CUDA", "CUDNN", "LIBTPU")},
            "LEVEL": coloured(row["level"]) + notes,
            "PROVEN ON": row["base_kind"] or "-",
            "SUPPORTED UNTIL": format_supported_until(row["supported_until"], today),
            "TAGS": ", ".join(tag.rpartition(":")[2] for tag in row["tags"][1:]) or "-",
        }
        table.add_row(*(cells[column] for column in columns))
    return table


def format_supported_until(day: str | None, today: date) -> str:
    """Return the day of the first end of support, and whether it is over."""
    return f"{day}{' (ended)' if day < today.isoformat() else ''}" if day else "-"


def print_support(rows: Sequence[Support]) -> None:
    tables = [_support_table(rows, columns) for columns in SUPPORT_FORMS]
    _print_first_fitting(tables, lambda needed: needed.maximum)


def print_notes(rows: Sequence[Support]) -> None:
    notes = Table(box=None, show_header=False, pad_edge=False)
    for note in list_notes(rows):
        notes.add_row(escape(note))
    print_table(notes)


def support_text(rows: Sequence[Support]) -> str:
    """Return the support table and its notes as plain text for a file."""
    table = table_text(_support_table(rows, FULL_COLUMNS))
    return table + "\n" + "".join(f"{note}\n" for note in list_notes(rows))


def _support_table(rows: Sequence[Support], columns: Columns) -> Table:
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


def _print_first_fitting(tables: Sequence[Table], width: Callable[[Measurement], int]) -> None:
    """Print the first table whose width the terminal has, else the last one; the first for a file."""
    console = make_console()
    # Measured without the terminal's bound, which would make every table fit.
    unbound = console.options.update(max_width=UNCUT)
    fitting = (table for table in tables if width(Measurement.get(console, unbound, table)) <= console.width)
    print_table(next(fitting, tables[-1]) if console.is_terminal else tables[0])
