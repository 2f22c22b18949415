"""Test results of genuine statements, as typed values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, StrictBool, StringConstraints

from tfimg.core.documents import Document, InvalidDocument, validate
from tfimg.core.errors import TamperedError
from tfimg.evidence.policy import EvidenceLevel
from tfimg.evidence.statement import REPORT, TEST_RESULT, Statement, Subject, digest_set, format_time, make_statement
from tfimg.matrix.schema import Device
from tfimg.validation.report import GPU_CHECK, Report

MAX_CHECKS = 10_000
"""Entries in each list of a test result. The full profile of the suite has 140 checks."""

MAX_TEXT = 4_096
"""Characters of a name or reason."""

YEARS = range(2015, 2100)
"""Years that a test may have ended in: from TensorFlow's first release, and far from the ends of the calendar."""


def _text_only(value: object) -> object:
    if not isinstance(value, str):  # pydantic also takes seconds since 1970
        raise ValueError("it is not an RFC 3339 time")
    return value


def _bounded(time: datetime) -> datetime:
    if time.year not in YEARS:
        raise ValueError(f"its year is not between {YEARS.start} and {YEARS.stop - 1}")
    return time.astimezone(UTC)


Time = Annotated[AwareDatetime, BeforeValidator(_text_only), AfterValidator(_bounded)]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Names = Annotated[tuple[Text, ...], Field(max_length=MAX_CHECKS)]


class ResultGpu(Document):
    """A GPU that it ran on."""

    name: Text
    capability: Text


class SkippedCheck(Document):
    """A check that gave no answer."""

    name: Text
    reason: Text | None = None
    required: StrictBool


class ExemptCheck(Document):
    """A check that a level did without, and why."""

    name: Text
    reason: Text


class ResultEnvironment(Document):
    """The machine that it ran on."""

    host: Text
    engine: Text
    kernel: Text | None = None
    gpus: tuple[ResultGpu, ...] = Field(default=(), max_length=MAX_CHECKS)
    driver: Text | None = None


class SignedResult(Document):
    """A test result, as `tfimg.evidence.results` writes them."""

    result: ResultWord
    identifier: Text
    device: Device
    level: EvidenceLevel
    passed: Names = Field(alias="passedTests")
    failed: Names = Field(alias="failedTests")
    skipped: tuple[SkippedCheck, ...] = Field(alias="skippedTests", max_length=MAX_CHECKS)
    waived: tuple[ExemptCheck, ...] = Field(alias="waivedTests", max_length=MAX_CHECKS)
    unproven: tuple[ExemptCheck, ...] = Field(alias="unprovenTests", max_length=MAX_CHECKS)
    began: Time = Field(alias="startedOn")
    ended: Time = Field(alias="finishedOn")
    environment: ResultEnvironment

    @property
    def missing(self) -> tuple[SkippedCheck, ...]:
        """The required checks that were skipped."""
        return tuple(check for check in self.skipped if check.required)

    @property
    def is_pass(self) -> bool:
        """Whether tests passed, none failed, and no required one was skipped, whatever `result` claims."""
        return self.result != "FAILED" and bool(self.passed) and not self.failed and not self.missing

    @property
    def proven_level(self) -> EvidenceLevel:
        """The level that the tests show. On a GPU, only those of a machine that named its GPU show `validated`."""
        saw_gpu = bool(self.environment.gpus) and GPU_CHECK in self.passed
        return "linked" if self.level == "validated" and self.device == "gpu" and not saw_gpu else self.level


def read_result(predicate: Mapping[str, Any], *, image: str) -> SignedResult:
    """Return the predicate of a signed test result as a value. Raises `TamperedError` for one of another form."""
    try:
        return validate(SignedResult, predicate)
    except InvalidDocument as error:
        raise TamperedError(
            f"The test result of {image} is invalid: {error}.",
            next_step="Read it with a newer tfimg, or have the image validated again with `tfimg renew`.",
        ) from None


ResultWord = Literal["PASSED", "WARNED", "FAILED"]
"""Of test-result v0.1, which has no skipped tests: a reader of this alone must not take a gap for a pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Where a validation ran, beside what its report tells of the machine.

    `host` is what the publisher calls the machine, `engine` the container engine with its version, `version` tfimg's,
    and so its suite's.
    """

    host: str
    engine: str
    version: str


def make_test_result(report: Report, *, subject: Subject, ran: RunContext) -> Statement:
    """in-toto's test-result v0.1, and what that lacks: what was skipped and why, waived, unproven, where it ran, when.

    The report must be about the very bytes that the subject's digest names: the image, pulled by that digest.
    """
    green = [one.check for one in report.results if one.outcome == "passed"]
    red = [one.check for one in report.results if one.outcome not in ("passed", "skipped")]
    ended = datetime.fromisoformat(report.date)
    predicate = {
        "result": _result(report),
        "configuration": [
            {"name": "suite", "digest": digest_set(report.suite), "annotations": {"version": ran.version}},
            {
                "name": "lock",
                "digest": digest_set(report.lock),
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
        "startedOn": format_time(ended - timedelta(seconds=report.seconds)),
        "finishedOn": format_time(ended),
    }
    return make_statement(subject, TEST_RESULT, predicate)


def make_report_statement(report: Report, *, subject: Subject) -> Statement:
    """The report itself, with all evidence of every check."""
    return make_statement(subject, REPORT, report.to_json())


def _result(report: Report) -> ResultWord:
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


def _environment(report: Report, ran: RunContext) -> dict[str, Any]:
    return {
        **report.environment,
        "host": ran.host,
        "engine": ran.engine,
        "tfimg": ran.version,
        "gpus": [{"name": name, "capability": f"sm_{one.replace('.', '')}"} for name, one in report.gpus],
        "driver": report.driver,
    }
