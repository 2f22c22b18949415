"""Results of checks as lines of text and as rows of a table; a report in a few fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from rich.table import Table
from rich.text import Text

from tfimg.cli.console import make_console
from tfimg.cli.fields import print_fields
from tfimg.cli.show import COLOURS
from tfimg.core.text import to_plain_text
from tfimg.validation.report import CheckResult, Outcome, Report

WIDTH = max(map(len, get_args(Outcome)))
"""Width of the column of outcomes, at least."""


def check_line(result: CheckResult) -> str:
    """Return a check's result on one line, for `grep` and logs."""
    reason = f"  {_flat(result.reason)}" if result.reason else ""
    warnings = "".join(f"  warning: {_flat(warning)}" for warning in result.warnings)
    return f"check  {result.seconds:6.1f} s  {result.outcome:{WIDTH}}  {_flat(result.check)}{reason}{warnings}"


def _flat(text: str) -> str:
    return " ".join(to_plain_text(text).split())


def row_grid() -> Table:
    """Return a table with columns for an outcome, its seconds, and text that folds."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=WIDTH, no_wrap=True)
    table.add_column(width=8, justify="right", no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    return table


def result_table(results: Iterable[CheckResult]) -> Table:
    """Return a row for each check, with the outcome as a word and a colour."""
    table = row_grid()
    for result in results:
        word = Text(result.outcome, style=COLOURS[result.outcome])
        table.add_row(word, f"{result.seconds:.1f} s", _description(result))
    return table


def _description(result: CheckResult) -> Text:
    """Return the check's name, and below it the reason and known cause of a failure."""
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
    """Return for example `53 passed, 2 failed`, each in its colour."""
    counts = Counter(outcomes)
    words = [
        Text(f"{counts[outcome]} {outcome}", style=COLOURS[outcome]) for outcome in get_args(Outcome) if counts[outcome]
    ]
    return Text(", ").join(words)


def summary_fields(report: Report) -> Mapping[str, Any]:
    """Return the summary of a report, for `print_fields`."""
    finished = {result.check for result in report.results}
    return {
        "verdict": to_plain_text(f"{report.verdict}: {report.problem}" if report.problem else report.verdict),
        "image": to_plain_text(report.identifier),
        "digest": to_plain_text(report.digest),
        "checks": count_words(result.outcome for result in report.results).plain or "none",
        "level": report.level if report.level == report.aim else f"{report.level}, not {report.aim}",
        "at fault": report.fault,
        "did not run": [to_plain_text(check) for check in report.missing if check not in finished] or None,
        "waived": [to_plain_text(f"{check}: {why}") for check, why in report.waived.items()] or None,
        "unproven": [to_plain_text(check) for check in report.unproven] or None,
        "profile": report.profile,
        **{name: to_plain_text(value) for name, value in report.accelerator.items()},
        "date": f"{to_plain_text(report.date)}, {report.seconds:.1f} s",
    }


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


def level_words(report: Report) -> str:
    """Return the level of a report, and what a higher one still needs."""
    if report.missing:
        skipped = f"{len(report.missing)} of {len(report.required)} checks that {report.aim} needs were left out"
        return f"{report.level}; {skipped} by --profile, --only or --skip"
    if not report.unproven:
        return report.level
    words = f"{report.level}; unproven without {report.missing_hardware}: {', '.join(report.unproven)}"
    return words if report.aim == "validated" else f"{words}, and on {report.missing_hardware} whatever ran on the CPU"
