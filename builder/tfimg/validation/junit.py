"""A report as JUnit XML. It is red exactly when the report is not green."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from io import BytesIO

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from tfimg.core.text import clamp_duration, to_plain_text, to_strict_json
from tfimg.validation.report import CheckResult, Report

PROPERTIES = ("identifier", "digest", "lock", "suite", "profile", "aim", "level", "verdict")


def format_junit(report: Report) -> str:
    """Return JUnit XML with a case for each check, and for each required check that did not run."""
    suite = TestSuite(to_plain_text(report.identifier))
    suite.timestamp = to_plain_text(report.date)[:19]  # the form has no place for the zone, which is UTC
    fault = {"fault": report.fault} if report.fault else {}
    for name, value in {**{name: getattr(report, name) for name in PROPERTIES}, **fault, **report.accelerator}.items():
        suite.add_property(name, to_plain_text(str(value)))
    suite.add_testcases(_make_cases(report))
    suite.time = clamp_duration(report.seconds)
    return format_suite(suite)


def format_suite(suite: TestSuite) -> str:
    """Return a suite as a document of its own."""
    document = JUnitXml("tfimg")
    document.add_testsuite(suite)
    buffer = BytesIO()
    document.write(buffer)
    return f"{buffer.getvalue().decode()}\n"


def _make_cases(report: Report) -> list[TestCase]:
    """A CI takes an absent case for success: whatever keeps a report from being green becomes a case of its own."""
    cases = [
        _make_case(result.check, _make_entry(result, result.check in report.required), result.seconds, result.output)
        for result in report.results
    ]
    ended = {result.check for result in report.results}
    errors = {check: "a required check did not run" for check in report.required if check not in ended}
    if report.problem is not None or not report.results:
        errors["suite.end"] = report.problem or "the suite reported no result"
    if report.missing and not errors and not any(case.is_failure or case.is_error for case in cases):
        errors["suite.level"] = f"not proven: {', '.join(report.missing)}"
    return cases + [_make_case(check, Error(to_plain_text(reason), "missing")) for check, reason in errors.items()]


def _make_case(
    check: str, entry: Error | Failure | Skipped | None, seconds: float = 0.0, output: Sequence[str] = ()
) -> TestCase:
    group, _, name = to_plain_text(check).rpartition(".")
    case = TestCase(name, group or "suite", clamp_duration(seconds))
    case.result = [entry] if entry else []
    if output:
        case.system_out = to_plain_text("\n".join(output))
    return case


def _make_entry(result: CheckResult, is_required: bool) -> Error | Failure | Skipped | None:
    reason = to_plain_text(result.reason or result.outcome)
    if result.outcome == "passed":
        return None
    entry: Error | Failure | Skipped
    if result.outcome == "failed":
        entry = Failure(reason, "failed")
    elif result.outcome == "skipped" and not is_required:
        entry = Skipped(reason, "skipped")
    else:
        prefix = "a required check did not run: " if result.outcome == "skipped" else ""
        entry = Error(f"{prefix}{reason}", result.outcome)
    entry.text = to_plain_text("\n".join(_describe(result)))
    return entry


def _describe(result: CheckResult) -> Iterator[str]:
    yield result.reason or result.outcome
    for known in result.explained:
        yield f"fault: {known.fault}\ncause: {known.cause}\nproof: {known.proof}\nremedy: {known.remedy}"
    for name, value in result.evidence.items():
        yield f"{name}: {json.dumps(to_strict_json(value), ensure_ascii=False)}"
