"""Report → the statements about it: what was tested, with what was not, and the whole report."""

from __future__ import annotations

from dataclasses import dataclass

from tfimg.registry.statement import Statement, Subject
from tfimg.validation.report import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """Where a validation ran, beside what its report tells of the machine.

    `host` is what the publisher calls the machine, `engine` the container engine with its version, `version` tfimg's.
    """

    host: str
    engine: str
    version: str


def test_result(report: Report, *, subject: Subject, ran: Ran) -> Statement:
    """in-toto's test-result v0.1, and what that lacks: what was skipped and why, waived, unproven, where it ran, when.

    The report must be about the very bytes that the subject's digest names: the image, pulled by that digest.
    """
    raise NotImplementedError


def validation_report(report: Report, *, subject: Subject) -> Statement:
    """The report itself, with all evidence of every check."""
    raise NotImplementedError
