"""Report → nothing, or the error that its verdict amounts to."""

from __future__ import annotations

from collections.abc import Mapping

from tfimg.core.errors import (
    TfimgError,
    UnsuitableHost,
    ValidationAborted,
    ValidationCrashed,
    ValidationFailed,
    ValidationIncomplete,
    ValidationTimedOut,
)
from tfimg.validation.report import Report, Verdict

ENDINGS: Mapping[Verdict, type[TfimgError]] = {
    "failed": ValidationFailed,
    "crashed": ValidationCrashed,
    "timed-out": ValidationTimedOut,
    "skipped": ValidationIncomplete,
    "broken": ValidationAborted,
}
"""What an image that is not green ends a command with."""


MOST = 3
"""Checks that the last sentence tells; each has been told when it ended."""


def _short(reason: str) -> str:
    return reason if len(reason) <= 300 else f"{reason[:299]}…"


def raise_for_verdict(
    report: Report, *, subject: str, consequence: str, details: str = "--report FILE keeps the whole evidence."
) -> None:
    """Raise the verdict's error if an image is not green; `UnsuitableHost` where the machine is at fault.

    `subject` begins the message, `consequence` says what the failure means for the image's tags, `details` where the
    whole report is.
    """
    if report.passed:
        return
    told = "; ".join(f"{one.check} {one.outcome}: {_short(one.reason or '')}" for one in report.unsuccessful[:MOST])
    if len(report.unsuccessful) > MOST:
        told += f"; and {len(report.unsuccessful) - MOST} more, told above"
    known = {one.signature: one for result in report.unsuccessful for one in result.explained}
    if report.problem:
        found = f", but {report.problem}" + (f". {told}" if told else "")
        next_step = (
            "Try again; if it breaks at the same check, the image is at fault."
            if report.results
            else "Look inside with `docker run --rm -it --entrypoint sh IMAGE`."
        )
    else:
        found = f", and {len(report.unsuccessful)} of {len(report.results)} checks did not pass. {told}"
        next_step = " ".join(one.remedy for one in known.values()) or details
    causes = "".join(f" Known cause ({one.fault}): {one.cause}" for one in known.values())
    kind = UnsuitableHost if report.fault == "host" else ENDINGS[report.verdict]
    raise kind(f"{subject}{found}{causes}", next_step=f"{consequence} {next_step}")
