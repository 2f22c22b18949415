"""Tables and lists for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from io import StringIO
from typing import Any, Literal

from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tfimg.attestations.envelopes import name_predicate
from tfimg.cli.output.console import EscapingConsole, make_console
from tfimg.cli.output.fields import print_fields
from tfimg.core.levels import Level
from tfimg.core.text import to_plain_text
from tfimg.inspect.comparison import Comparison, describe_part, describe_total, format_percent, list_sections
from tfimg.inspect.inspection import Inspection, summarize
from tfimg.recipe.support import FULL_COLUMNS, SUPPORT_FORMS, Columns, Support, list_notes
from tfimg.validation.report import OUTCOME_WIDTH, CheckResult, Report, check_line, flatten, summary_fields

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
        notes = ("; emulated" if row["emulated"] else "") + ("; on the host" if row["host_machines"] else "")
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
    return re.sub("|".join(Level), lambda found: coloured(found[0]), text)


def _print_first_fitting(tables: Sequence[Table], width: Callable[[Measurement], int]) -> None:
    """Print the first table whose width the terminal has, else the last one; the first for a file."""
    console = make_console()
    # Measured without the terminal's bound, which would make every table fit.
    unbound = console.options.update(max_width=UNCUT)
    fitting = (table for table in tables if width(Measurement.get(console, unbound, table)) <= console.width)
    print_table(next(fitting, tables[-1]) if console.is_terminal else tables[0])


def row_grid() -> Table:
    """Return a table with columns for an outcome, its seconds, and text that folds."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=OUTCOME_WIDTH, no_wrap=True)
    table.add_column(width=8, justify="right", no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    return table


def result_table(results: Iterable[CheckResult]) -> Table:
    """Return a row for each check, with the outcome as a word and a colour."""
    table = row_grid()
    for result in results:
        word = Text(result.outcome, style=COLOURS[result.outcome])
        table.add_row(word, f"{result.seconds:.1f} s", describe_check(result))
    return table


def describe_check(result: CheckResult) -> Text:
    """Return the check's name, and below it the reason and known cause of a failure."""
    group, dot, name = flatten(result.check).rpartition(".")
    text = Text.assemble((group + dot, "dim"), name)
    if result.reason:
        text.append(f"\n{to_plain_text(result.reason)}", style=COLOURS[result.outcome])
    for warning in result.warnings:
        text.append(f"\nwarning: {to_plain_text(warning)}", style="yellow")
    for known in result.explained:
        text.append(f"\ncause: {to_plain_text(known.cause)}\nwhat helps: {to_plain_text(known.fix)}", style="italic")
    return text


def print_report(report: Report) -> None:
    """Print the checks of a report and its summary."""
    console = make_console()
    if console.is_terminal:
        console.print(result_table(report.results))
    else:
        for result in report.results:
            print(check_line(result))
    print()
    print_fields(summary_fields(report))


def print_comparison(comparison: Comparison) -> None:
    """Print the changes between two images, and what could not be compared."""
    for when, image in (("before", comparison.before), ("after ", comparison.after)):
        print(f"{when}  {to_plain_text(image.name)}  {image.digest}")
    if comparison.is_same_image:
        print("\nThey are the same image.")
        return
    for title, changes in list_sections(comparison):
        if changes:
            new = sum(change.before is None for change in changes)
            gone = sum(change.after is None for change in changes)
            counts = {"changed": len(changes) - new - gone, "new": new, "gone": gone}
            print(f"\n{title}: {', '.join(f'{count} {word}' for word, count in counts.items() if count)}")
            rows = [(change.name, change.before or "-", change.after or "-") for change in changes]
            print_rows(("NAME", "BEFORE", "AFTER"), rows, folding=("BEFORE", "AFTER"))
    print(f"\nSize, as it is sent: {describe_total(comparison)}")
    columns = ("PART", "BEFORE", "AFTER", "CHANGE")
    print_rows(columns, map(describe_part, comparison.sizes), right=("BEFORE", "AFTER"))
    if comparison.seconds:
        print("\nTimings")
        timings = [
            (one.check, f"{one.before:.1f} s", f"{one.after:.1f} s", format_percent(one.before, one.after))
            for one in (comparison.seconds, *comparison.timings)
        ]
        print_rows(("CHECK", "BEFORE", "AFTER", "CHANGE"), timings)
    for note in comparison.notes:
        print(f"\n{to_plain_text(note)}")


DIGEST_LENGTH = len("sha256:") + 12
"""Characters of a digest in a table, as Docker prints them."""


def print_inspection(image: Inspection, *, row: Mapping[str, Any] | None, now: datetime, has_keys: bool) -> None:
    """Print an image. `row` describes its row of the matrix; `has_keys`: keys were named to verify with."""
    print_fields(summarize(image, row, now))
    print("\nLayers, lowest first")
    layers = [
        (layer.digest[:DIGEST_LENGTH], f"{layer.size / 1e6:,.1f} MB", layer.part or "-", layer.holds)
        for layer in image.layers
    ]
    print_rows(("DIGEST", "SIZE", "PART", "HOLDS"), layers, folding=("HOLDS",), right=("SIZE",))
    if image.attestations:
        print("\nEvidence")
        unverified = "no: another key's" if has_keys else "no: no key was named"
        statements = [
            (name_predicate(one.kind), ", ".join(one.claims) or "-", "yes" if one.signer else unverified)
            for one in image.attestations
        ]
        print_rows(("STATEMENT", "SIGNED BY", "VERIFIED"), statements)
    elif not image.attestations_problem:
        print("\nEvidence: none is attached")
    contents = image.contents
    for title, versions in (
        ("NVIDIA libraries", contents.libraries),
        ("Python packages", contents.python),
        ("Debian packages", contents.debian),
    ):
        if versions:
            print(f"\n{title} ({len(versions)})")
            print_rows(("PACKAGE", "VERSION"), ((name, version or "-") for name, version in versions.items()))
