"""Test results and validation reports as statements, and signed test results as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StringConstraints

from tfimg.core.documents import Document, InvalidDocument, validate
from tfimg.core.errors import TamperedError
from tfimg.evidence import statement as in_toto
from tfimg.evidence.policy import EvidenceLevel
from tfimg.evidence.statement import Statement, Subject, Time, digest_set, format_time, make_statement
from tfimg.matrix.schema import Device
from tfimg.validation.report import GPU_CHECK, Report

MAX_CHECKS = 10_000
"""Entries in each list of a test result. The full profile of the suite has 140 checks."""

MAX_TEXT = 4_096
"""Characters of a name or reason."""

ResultWord = Literal["PASSED", "WARNED", "FAILED"]
"""Words of test-result v0.1. It has none for skipped tests: a reader of this alone must not take a gap for a pass."""


Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Names = Annotated[tuple[Text, ...], Field(max_length=MAX_CHECKS)]


class ResultGpu(Document):
    """A GPU of the test's machine."""

    name: Text
    capability: Text


class SkippedCheck(Document):
    """A check without an answer."""

    name: Text
    reason: Text | None = None
    required: StrictBool


class ExemptCheck(Document):
    """A check that the level does not require, with the reason."""

    name: Text
    reason: Text


class ResultEnvironment(Document):
    """The machine of the test."""

    host: Text
    engine: Text
    kernel: Text | None = None
    gpus: tuple[ResultGpu, ...] = Field(default=(), max_length=MAX_CHECKS)
    driver: Text | None = None
    emulated: StrictBool = False


class SignedResult(Document):
    """The predicate of a signed test result, as `make_test_result` writes it."""

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
        """The level that the tests prove: for a GPU image, `validated` needs a machine that named its GPU."""
        saw_gpu = bool(self.environment.gpus) and GPU_CHECK in self.passed
        return "linked" if self.level == "validated" and self.device == "gpu" and not saw_gpu else self.level


def read_result(predicate: Mapping[str, Any], *, image: str) -> SignedResult:
    """Return the predicate of a signed test result as a value. Raises `TamperedError` for an invalid one."""
    try:
        return validate(SignedResult, predicate)
    except InvalidDocument as error:
        raise TamperedError(
            f"The test result of {image} is invalid: {error}.",
            next_step="Read it with a newer tfimg, or have the image validated again with `tfimg renew`.",
        ) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Where a validation ran: the publisher's name of the machine, the engine with its version, tfimg's version."""

    host: str
    engine: str
    version: str


def make_test_result(report: Report, *, subject: Subject, ran: RunContext) -> Statement:
    """Return in-toto's test-result v0.1, with tfimg's fields for what it lacks.

    The report has to be about the subject's digest: the image, pulled by that digest.
    """
    ended = datetime.fromisoformat(report.date)
    ran_checks = {result.check for result in report.results}
    skipped = [
        {"name": result.check, "reason": result.reason, "required": result.check in report.required}
        for result in report.results
        if result.outcome == "skipped"
    ]
    left_out = [
        {"name": name, "reason": "it was left out", "required": True}
        for name in report.required
        if name not in ran_checks
    ]
    result_word: ResultWord = "WARNED" if report.missing or report.unproven else "PASSED"
    suite = {"name": "suite", "digest": digest_set(report.suite), "annotations": {"version": ran.version}}
    lock = {"name": "lock", "digest": digest_set(report.lock), "annotations": {"identifier": report.identifier}}
    predicate = {
        "result": result_word if report.passed else "FAILED",
        "configuration": [suite, lock],
        "passedTests": [result.check for result in report.results if result.outcome == "passed"],
        "warnedTests": list(report.unproven),
        "failedTests": [result.check for result in report.results if result.outcome not in ("passed", "skipped")],
        "skippedTests": skipped + left_out,
        "waivedTests": [{"name": name, "reason": cause} for name, cause in report.waived.items()],
        "unprovenTests": [{"name": name, "reason": f"it needs {report.missing_hardware}"} for name in report.unproven],
        "problem": report.problem,
        "identifier": report.identifier,
        "device": report.device,
        "level": report.level,
        "profile": report.profile,
        "environment": {
            **report.environment,
            "host": ran.host,
            "engine": ran.engine,
            "tfimg": ran.version,
            "gpus": [{"name": name, "capability": f"sm_{sm.replace('.', '')}"} for name, sm in report.gpus],
            "driver": report.driver,
        },
        "startedOn": format_time(ended - timedelta(seconds=report.seconds)),
        "finishedOn": format_time(ended),
    }
    return make_statement(subject, in_toto.TEST_RESULT, predicate)


def make_report_statement(report: Report, *, subject: Subject) -> Statement:
    """Return the whole report as a statement."""
    return make_statement(subject, in_toto.REPORT, report.to_json())
