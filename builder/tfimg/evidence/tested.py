"""Report → the statements about it: what was tested, with what was not, and the whole report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from tfimg.evidence.statement import REPORT, TEST_RESULT, Statement, Subject, digests, moment, statement
from tfimg.validation.report import Report

Result = Literal["PASSED", "WARNED", "FAILED"]
"""Of test-result v0.1, which has no skipped tests: a reader of this alone must not take a gap for a pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """Where a validation ran, beside what its report tells of the machine.

    `host` is what the publisher calls the machine, `engine` the container engine with its version, `version` tfimg's,
    and so its suite's.
    """

    host: str
    engine: str
    version: str


def test_result(report: Report, *, subject: Subject, ran: Ran) -> Statement:
    """in-toto's test-result v0.1, and what that lacks: what was skipped and why, waived, unproven, where it ran, when.

    The report must be about the very bytes that the subject's digest names: the image, pulled by that digest.
    """
    green = [one.check for one in report.results if one.outcome == "passed"]
    red = [one.check for one in report.results if one.outcome not in ("passed", "skipped")]
    ended = datetime.fromisoformat(report.date)
    predicate = {
        "result": _result(report),
        "configuration": [
            {"name": "suite", "digest": digests(report.suite), "annotations": {"version": ran.version}},
            {
                "name": "lock",
                "digest": digests(report.lock),
                "annotations": {"identifier": report.identifier},
            },
        ],
        "passedTests": green,
        "warnedTests": list(report.unproven),
        "failedTests": red,
        "skippedTests": list(_skipped(report)),
        "waivedTests": [{"name": name, "reason": reason} for name, reason in report.waived.items()],
        "unprovenTests": [{"name": name, "reason": f"it needs {report.missing_hardware}"} for name in report.unproven],
        "problem": report.problem,
        "identifier": report.identifier,
        "device": report.device,
        "level": report.level,
        "profile": report.profile,
        "environment": _environment(report, ran),
        "startedOn": moment(ended - timedelta(seconds=report.seconds)),
        "finishedOn": moment(ended),
    }
    return statement(subject, TEST_RESULT, predicate)


def validation_report(report: Report, *, subject: Subject) -> Statement:
    """The report itself, with all evidence of every check."""
    return statement(subject, REPORT, report.to_json())


def _result(report: Report) -> Result:
    if not report.passed:
        return "FAILED"
    return "WARNED" if report.missing or report.unproven else "PASSED"


def _skipped(report: Report) -> Iterator[dict[str, Any]]:
    """Yield checks without an answer: those that were skipped, and those that a level requires and that did not run."""
    told = {one.check for one in report.results}
    for one in report.results:
        if one.outcome == "skipped":
            yield {"name": one.check, "reason": one.reason, "required": one.check in report.required}
    for name in report.required:
        if name not in told:
            yield {"name": name, "reason": "it was left out", "required": True}


def _environment(report: Report, ran: Ran) -> dict[str, Any]:
    return {
        **report.environment,
        "host": ran.host,
        "engine": ran.engine,
        "tfimg": ran.version,
        "gpus": [{"name": name, "capability": f"sm_{one.replace('.', '')}"} for name, one in report.gpus],
        "driver": report.driver,
    }
