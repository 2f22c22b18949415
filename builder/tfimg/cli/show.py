"""Results for people: tables and fields, coloured on a terminal, plain elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

COLOURS = {
    "passed": "green", "failed": "red", "crashed": "red", "timed-out": "red", "skipped": "yellow",
    "validated": "green", "linked": "cyan", "built": "yellow", "declared": "dim",
}  # fmt: skip


def coloured(word: str) -> str:
    """A status word in its colour."""
    return f"[{COLOURS.get(word, 'default')}]{word}[/]"


def print_table(table: Table) -> None:
    """Print a table on standard output; never cut where nobody looks at a terminal."""
    console = Console()
    if not console.is_terminal:
        console.width = 1000
    console.print(table)


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


def print_fields(row: Mapping[str, Any]) -> None:
    """One thing's fields, a line each; what it does not have is left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in row.items():
        if value is not None:
            table.add_row(f"[bold]{name}[/]", escape(_text(value)))
    print_table(table)


def _text(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(map(_text, value))
    if isinstance(value, dict):
        return "\n".join(f"{name} {one}" for name, one in value.items() if one is not None)
    return str(value)


def size(count: int | None) -> str:
    """Bytes for people, in units of 10^6."""
    return "not known" if count is None else f"{count / 1e6:,.0f} MB"
