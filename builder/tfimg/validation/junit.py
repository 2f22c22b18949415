"""A report as JUnit XML. It is red exactly when the report is not green."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from tfimg.core.text import clamp_duration, to_plain_text, to_strict_json
from tfimg.validation.report import CheckResult, Report

PROPERTIES = ("identifier", "digest", "lock", "suite", "profile", "aim", "level", "verdict")


def junit(report: Report) -> str:
    """Return JUnit XML with a case for each check, and for each required check that did not run."""
    suite = TestSuite(to_plain_text(report.identifier))
    suite.timestamp = to_plain_text(report.date)[:19]  # the form has no place for the zone, which is UTC
    fault = {"fault": report.fault} if report.fault else {}
    for name, value in {**{name: getattr(report, name) for name in PROPERTIES}, **fault, **report.accelerator}.items():
        suite.add_property(name, to_plain_text(str(value)))
    suite.add_testcases(_cases(report))
    suite.time = clamp_duration(report.seconds)
    document = JUnitXml("tfimg")
    document.add_testsuite(suite)
    buffer = BytesIO()
    document.write(buffer)
    return f"{buffer.getvalue().decode()}\n"


def _cases(report: Report) -> list[TestCase]:
    """A CI takes an absent case for success: whatever keeps a report from being green becomes a case of its own."""
    cases = [_check_case(result, required=result.check in report.required) for result in report.results]
    ended = {result.check for result in report.results}
    cases += [_error_case(check, "a required check did not run") for check in report.required if check not in ended]
    if report.problem is not None or not report.results:
        cases.append(_error_case("suite.end", report.problem or "the suite reported no result"))
    if report.missing and not any(case.is_failure or case.is_error for case in cases):
        cases.append(_error_case("suite.level", f"not shown: {', '.join(report.missing)}"))
    return cases


def _check_case(result: CheckResult, *, required: bool) -> TestCase:
    case = _case(result.check, clamp_duration(result.seconds))
    if entry := _entry(result, required=required):
        entry.text = to_plain_text("\n".join(_describe(result)))
        case.result = [entry]
    if result.output:
        case.system_out = to_plain_text("\n".join(result.output))
    return case


def _error_case(check: str, reason: str) -> TestCase:
    case = _case(check)
    case.result = [Error(to_plain_text(reason), "missing")]
    return case


def _case(check: str, seconds: float = 0.0) -> TestCase:
    group, _, name = to_plain_text(check).rpartition(".")
    return TestCase(name, group or "suite", seconds)


def _entry(result: CheckResult, *, required: bool) -> Error | Failure | Skipped | None:
    reason = to_plain_text(result.reason or result.outcome)
    match result.outcome:
        case "passed":
            return None
        case "skipped":
            text = f"a required check did not run: {reason}"
            return Error(text, "skipped") if required else Skipped(reason, "skipped")
        case "failed":
            return Failure(reason, "failed")
        case outcome:
            return Error(reason, outcome)


def _describe(result: CheckResult) -> Iterator[str]:
    yield result.reason or result.outcome
    for known in result.explained:
        yield f"fault: {known.fault}\ncause: {known.cause}\nproof: {known.proof}\nremedy: {known.remedy}"
    for name, value in result.evidence.items():
        yield f"{name}: {json.dumps(to_strict_json(value), ensure_ascii=False)}"
