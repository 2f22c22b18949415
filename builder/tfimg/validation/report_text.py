"""Reports in words: a line for each check, a summary in a few fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from tfimg.core.text import to_plain_text
from tfimg.validation.report import CheckResult, Outcome, Report

OUTCOME_WIDTH = max(map(len, get_args(Outcome)))
"""Characters of the longest outcome."""


def check_line(result: CheckResult) -> str:
    """Return a check's result on one line, for `grep` and logs."""
    reason = f"  {flatten(result.reason)}" if result.reason else ""
    warnings = "".join(f"  warning: {flatten(warning)}" for warning in result.warnings)
    return (
        f"check  {result.seconds:6.1f} s  {result.outcome:{OUTCOME_WIDTH}}  {flatten(result.check)}{reason}{warnings}"
    )


def flatten(text: str) -> str:
    """Return a text on one line, without control characters."""
    return " ".join(to_plain_text(text).split())


def count_outcomes(outcomes: Iterable[Outcome]) -> Mapping[Outcome, int]:
    """Return the number of checks of each outcome that occurs."""
    counts = Counter(outcomes)
    return {outcome: counts[outcome] for outcome in get_args(Outcome) if counts[outcome]}


def summary_fields(report: Report) -> Mapping[str, Any]:
    """Return the summary of a report by the names of its fields."""
    counts = count_outcomes(result.outcome for result in report.results)
    finished = {result.check for result in report.results}
    return {
        "verdict": to_plain_text(f"{report.verdict}: {report.problem}" if report.problem else report.verdict),
        "image": to_plain_text(report.identifier),
        "digest": to_plain_text(report.digest),
        "checks": ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "none",
        "level": report.level if report.level == report.aim else f"{report.level}, not {report.aim}",
        "at fault": report.fault,
        "did not run": [to_plain_text(check) for check in report.missing if check not in finished] or None,
        "waived": [to_plain_text(f"{check}: {why}") for check, why in report.waived.items()] or None,
        "unproven": [to_plain_text(check) for check in report.unproven] or None,
        "profile": report.profile,
        **{name: to_plain_text(value) for name, value in report.accelerator.items()},
        "date": f"{to_plain_text(report.date)}, {report.seconds:.1f} s",
    }


def level_words(report: Report) -> str:
    """Return the level of a report, and what a higher one still needs."""
    if report.missing:
        skipped = f"{len(report.missing)} of {len(report.required)} checks that {report.aim} needs were left out"
        return f"{report.level}; {skipped} by --profile, --only or --skip"
    if not report.unproven:
        return report.level
    words = f"{report.level}; unproven without {report.missing_hardware}: {', '.join(report.unproven)}"
    return words if report.aim == "validated" else f"{words}, and on {report.missing_hardware} whatever ran on the CPU"
