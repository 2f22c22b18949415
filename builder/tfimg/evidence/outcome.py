"""Test results of genuine statements, as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, StrictBool, StringConstraints

from tfimg.core.documents import Document, InvalidDocument, validate
from tfimg.core.errors import TamperedError
from tfimg.evidence.policy import Required
from tfimg.evidence.tested import Result
from tfimg.matrix.schema import Device
from tfimg.validation.report import GPU_CHECK

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


class Gpu(Document):
    """A GPU that it ran on."""

    name: Text
    capability: Text


class Skipped(Document):
    """A check that gave no answer."""

    name: Text
    reason: Text | None = None
    required: StrictBool


class Without(Document):
    """A check that a level did without, and why."""

    name: Text
    reason: Text


class Where(Document):
    """The machine that it ran on."""

    host: Text
    engine: Text
    kernel: Text | None = None
    gpus: tuple[Gpu, ...] = Field(default=(), max_length=MAX_CHECKS)
    driver: Text | None = None


class Outcome(Document):
    """A test result, as `tfimg.evidence.tested` writes them."""

    result: Result
    identifier: Text
    device: Device
    level: Required
    passed: Names = Field(alias="passedTests")
    failed: Names = Field(alias="failedTests")
    skipped: tuple[Skipped, ...] = Field(alias="skippedTests", max_length=MAX_CHECKS)
    waived: tuple[Without, ...] = Field(alias="waivedTests", max_length=MAX_CHECKS)
    unproven: tuple[Without, ...] = Field(alias="unprovenTests", max_length=MAX_CHECKS)
    began: Time = Field(alias="startedOn")
    ended: Time = Field(alias="finishedOn")
    environment: Where

    @property
    def missing(self) -> tuple[Skipped, ...]:
        """The required checks that were skipped."""
        return tuple(check for check in self.skipped if check.required)

    @property
    def is_pass(self) -> bool:
        """Whether tests passed, none failed, and no required one was skipped, whatever `result` claims."""
        return self.result != "FAILED" and bool(self.passed) and not self.failed and not self.missing

    @property
    def shown(self) -> Required:
        """The level that the tests show. On a GPU, only those of a machine that named its GPU show `validated`."""
        saw_gpu = bool(self.environment.gpus) and GPU_CHECK in self.passed
        return "linked" if self.level == "validated" and self.device == "gpu" and not saw_gpu else self.level


def read_outcome(predicate: Mapping[str, Any], *, image: str) -> Outcome:
    """Return the predicate of a signed test result as a value. Raises `TamperedError` for one of another form."""
    try:
        return validate(Outcome, predicate)
    except InvalidDocument as error:
        raise TamperedError(
            f"The test result of {image} is invalid: {error}.",
            next_step="Read it with a newer tfimg, or have the image validated again with `tfimg renew`.",
        ) from None
