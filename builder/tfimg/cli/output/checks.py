"""Results of checks as rows of a table, and the whole of a report."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from tfimg.cli.output.console import make_console
from tfimg.cli.output.fields import print_fields
from tfimg.cli.output.tables import COLOURS
from tfimg.core.text import to_plain_text
from tfimg.validation.report import OUTCOME_WIDTH, CheckResult, Report, check_line, flatten, summary_fields


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
        text.append(f"\ncause: {to_plain_text(known.cause)}\nwhat helps: {to_plain_text(known.remedy)}", style="italic")
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
