"""A report as one HTML page, which loads nothing and needs no script: for a phone, a mail, an archive."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from tfimg.core.text import clamp_duration, format_value, to_plain_text
from tfimg.validation.report import CheckResult, Outcome, Report
from tfimg.validation.report_text import count_outcomes

Light = Literal["green", "amber", "red"]

SIGNS: Mapping[Outcome, str] = {"passed": "✓", "failed": "✗", "crashed": "!", "timed-out": "…", "skipped": "-"}
"""For readers who do not see colours, or print in black."""

LIGHTS: Mapping[Light, str] = {"green": "✓", "amber": "-", "red": "✗"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A check on the page. The grid links to `anchor`; `part` is the length of the bar in percent."""

    result: CheckResult
    anchor: str
    group: str
    name: str
    part: float
    seconds: str
    required: bool


def format_page(report: Report) -> str:
    """Return the page. Everything that came out of a container is text, also if it looks like markup."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_escape,
    )
    environment.filters |= {"pretty": format_value}
    template = environment.from_string(files("tfimg.validation").joinpath("report.html.j2").read_text("utf-8"))
    checks = list_rows(report)
    groups: dict[str, list[Row]] = {}
    for row in checks:
        groups.setdefault(row.group, []).append(row)
    anchors = {row.result.check: row.anchor for row in checks}
    return template.render(
        report=report,
        rows=checks,
        groups=groups,
        signs=SIGNS,
        anchors=anchors,
        bad=[row.result.check for row in checks if row.result in report.unsuccessful],
        absent=[check for check in report.missing if check not in anchors],
        counts=count_outcomes(result.outcome for result in report.results).items(),
        light=choose_light(report),
        sign=LIGHTS[choose_light(report)],
        summary=summarize(report),
    )


def _escape(value: Any) -> Any:
    """Escape control characters in every expression of the template; its own markup is not a plain `str`."""
    return to_plain_text(value) if type(value) is str else value


def choose_light(report: Report) -> Light:
    """Return green if all that the level requires passed, amber if some of it did not run, red if something failed."""
    if not report.passed:
        return "red"
    return "amber" if report.missing else "green"


def summarize(report: Report) -> str:
    """Return the report in a sentence or two."""
    if report.problem:
        return f"The suite did not reach its end: {report.problem}."
    passed = sum(result.outcome == "passed" for result in report.results)
    text = f"{passed} of {len(report.results)} checks passed."
    if report.fault:
        text += f" The {report.fault} is at fault."
    if report.passed and report.missing:
        text += f" {len(report.missing)} required checks did not run, so {report.aim} is not proven."
    if report.unproven:
        text += f" {len(report.unproven)} more need {report.missing_hardware}."
    return text


def list_rows(report: Report) -> list[Row]:
    """Return every check, with all bars on one scale."""
    longest = max((clamp_duration(result.seconds) for result in report.results), default=0.0) or 1.0
    anchors: Counter[str] = Counter()
    checks = []
    for result in report.results:
        group, _, name = to_plain_text(result.check).rpartition(".")
        anchor = re.sub(r"[^a-zA-Z0-9_.-]", "-", result.check)
        anchors[anchor] += 1
        seconds = clamp_duration(result.seconds)
        row = Row(
            result=result,
            anchor=anchor if anchors[anchor] == 1 else f"{anchor}--{anchors[anchor]}",
            group=group or "other",
            name=name,
            part=round(100 * seconds / longest, 1),
            seconds=f"{seconds:.2f} s",
            required=result.check in report.required,
        )
        checks.append(row)
    return checks
