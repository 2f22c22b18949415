"""Results of checks for people: the rows that scroll by while a suite runs, and the same rows of a kept report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from rich.table import Table
from rich.text import Text

from tfimg.cli.show import COLOURS
from tfimg.core.text import to_plain_text
from tfimg.validation.report import CheckResult, Outcome, Report

WIDTH = max(map(len, get_args(Outcome)))
"""Of the column of outcomes."""


def line(result: CheckResult) -> str:
    """A check's end on one line, which `grep` finds and a log keeps."""
    reason = f"  {_flat(result.reason)}" if result.reason else ""
    warnings = "".join(f"  warning: {_flat(warning)}" for warning in result.warnings)
    return f"check  {result.seconds:6.1f} s  {result.outcome:{WIDTH}}  {_flat(result.check)}{reason}{warnings}"


def _flat(text: str) -> str:
    return " ".join(to_plain_text(text).split())


def row_grid() -> Table:
    """Columns for a word on how something ended, how long it took, and the rest, which folds where it is long."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=WIDTH, no_wrap=True)
    table.add_column(width=8, justify="right", no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    return table


def result_table(results: Iterable[CheckResult]) -> Table:
    """A row for each check, with the outcome as a word and a colour."""
    table = row_grid()
    for result in results:
        word = Text(result.outcome, style=COLOURS[result.outcome])
        table.add_row(word, f"{result.seconds:.1f} s", _told(result))
    return table


def _told(result: CheckResult) -> Text:
    """The check's name, and below it why it did not pass and what is known about that."""
    group, dot, name = _flat(result.check).rpartition(".")
    text = Text.assemble((group + dot, "dim"), name)
    if result.reason:
        text.append(f"\n{to_plain_text(result.reason)}", style=COLOURS[result.outcome])
    for warning in result.warnings:
        text.append(f"\nwarning: {to_plain_text(warning)}", style="yellow")
    for known in result.explained:
        text.append(f"\ncause: {to_plain_text(known.cause)}\nwhat helps: {to_plain_text(known.remedy)}", style="italic")
    return text


def count_words(outcomes: Iterable[Outcome]) -> Text:
    """`53 passed, 2 failed`, each in its colour."""
    counts = Counter(outcomes)
    words = [
        Text(f"{counts[outcome]} {outcome}", style=COLOURS[outcome]) for outcome in get_args(Outcome) if counts[outcome]
    ]
    return Text(", ").join(words)


def summary_fields(report: Report) -> Mapping[str, Any]:
    """What a report amounts to, for `print_fields`."""
    told = {result.check for result in report.results}
    return {
        "verdict": to_plain_text(f"{report.verdict}: {report.problem}" if report.problem else report.verdict),
        "image": to_plain_text(report.identifier),
        "digest": to_plain_text(report.digest),
        "checks": count_words(result.outcome for result in report.results).plain or "none",
        "level": report.level if report.level == report.aim else f"{report.level}, not {report.aim}",
        "at fault": report.fault,
        "did not run": [to_plain_text(check) for check in report.missing if check not in told] or None,
        "waived": [to_plain_text(f"{check}: {why}") for check, why in report.waived.items()] or None,
        "unproven": [to_plain_text(check) for check in report.unproven] or None,
        "profile": report.profile,
        **{name: to_plain_text(value) for name, value in report.accelerator.items()},
        "date": f"{to_plain_text(report.date)}, {report.seconds:.1f} s",
    }
