"""A report as JUnit XML, which every CI shows. It is red there exactly when the report is not green."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from tfimg.core.text import clamp_duration, to_plain_text, to_strict_json
from tfimg.validation.report import CheckResult, Report

Ending = Error | Failure | Skipped


def junit(report: Report) -> str:
    """The report's JUnit XML: one suite, a case for each check and for each thing that should have been one."""
    suite = TestSuite(to_plain_text(report.identifier))
    suite.timestamp = to_plain_text(report.date)[:19]  # the form has no place for the zone, which is UTC
    for name, value in _properties(report):
        suite.add_property(name, to_plain_text(value))
    suite.add_testcases(_cases(report))
    suite.time = clamp_duration(report.seconds)
    whole = JUnitXml("tfimg")
    whole.add_testsuite(suite)
    buffer = BytesIO()
    whole.write(buffer)
    return f"{buffer.getvalue().decode()}\n"


def _properties(report: Report) -> Iterator[tuple[str, str]]:
    for name in ("identifier", "digest", "lock", "suite", "profile", "aim", "level", "verdict"):
        yield name, str(getattr(report, name))
    if report.fault:
        yield "fault", report.fault
    yield from report.accelerator.items()


def _cases(report: Report) -> list[TestCase]:
    """CI believes silence: whatever keeps a report from being green becomes a case of its own."""
    cases = [_case(result, required=result.check in report.required) for result in report.results]
    told = {result.check for result in report.results}
    cases += [_wrong(check, "a required check did not run") for check in report.required if check not in told]
    if report.problem is not None or not report.results:
        cases.append(_wrong("suite.end", report.problem or "the suite told no result"))
    if report.missing and not any(case.is_failure or case.is_error for case in cases):
        cases.append(_wrong("suite.level", f"not shown: {', '.join(report.missing)}"))
    return cases


def _case(result: CheckResult, *, required: bool) -> TestCase:
    case = _named(result.check, clamp_duration(result.seconds))
    if ending := _ending(result, required=required):
        ending.text = to_plain_text("\n".join(_told(result)))
        case.result = [ending]
    if result.output:
        case.system_out = to_plain_text("\n".join(result.output))
    return case


def _named(check: str, seconds: float = 0.0) -> TestCase:
    group, _, name = to_plain_text(check).rpartition(".")
    return TestCase(name, group or "suite", seconds)


def _wrong(check: str, reason: str) -> TestCase:
    case = _named(check)
    case.result = [Error(to_plain_text(reason), "missing")]
    return case


def _ending(result: CheckResult, *, required: bool) -> Ending | None:
    reason = to_plain_text(result.reason or result.outcome)
    if result.outcome == "passed":
        return None
    if result.outcome == "skipped" and required:
        return Error(f"a required check did not run: {reason}", "skipped")
    if result.outcome == "skipped":
        return Skipped(reason, result.outcome)
    return Failure(reason, result.outcome) if result.outcome == "failed" else Error(reason, result.outcome)


def _told(result: CheckResult) -> Iterator[str]:
    """What a person reads first when a case is red."""
    yield result.reason or result.outcome
    for known in result.explained:
        yield f"fault: {known.fault}\ncause: {known.cause}\nproof: {known.proof}\nremedy: {known.remedy}"
    for name, value in result.evidence.items():
        yield f"{name}: {json.dumps(to_strict_json(value), ensure_ascii=False)}"
