"""Raise the error that a report's verdict amounts to."""

from __future__ import annotations

from collections.abc import Mapping

from tfimg.core import errors
from tfimg.validation.report import Report, Verdict

ERRORS: Mapping[Verdict, type[errors.TfimgError]] = {
    "failed": errors.ValidationFailed,
    "crashed": errors.ValidationCrashed,
    "timed-out": errors.ValidationTimedOut,
    "skipped": errors.ValidationIncomplete,
    "broken": errors.ValidationAborted,
}

MAX_LISTED, MAX_REASON = 3, 300
"""Checks that the message names, and characters of each reason; each check was reported when it ended."""


def raise_for_verdict(
    report: Report, *, subject: str, consequence: str, details: str = "--report FILE keeps the whole evidence."
) -> None:
    """Raise the verdict's error if an image is not green; `UnsuitableHost` where the machine is at fault.

    `subject` begins the message, `consequence` says what the failure means for the image's tags, `details` where the
    whole report is.
    """
    if report.passed:
        return
    known = {one.signature: one for result in report.unsuccessful for one in result.explained}
    checks = _list_checks(report)
    if report.problem:
        found = f", but {report.problem}" + (f". {checks}" if checks else "")
        next_step = "Look inside with `docker run --rm -it --entrypoint sh IMAGE`."
        if report.results:
            next_step = "Try again; if it breaks at the same check, the image is at fault."
    else:
        found = f", and {len(report.unsuccessful)} of {len(report.results)} checks did not pass. {checks}"
        next_step = " ".join(one.remedy for one in known.values()) or details
    causes = "".join(f" Known cause ({one.fault}): {one.cause}" for one in known.values())
    error = errors.UnsuitableHost if report.fault == "host" else ERRORS[report.verdict]
    raise error(f"{subject}{found}{causes}", next_step=f"{consequence} {next_step}")


def _list_checks(report: Report) -> str:
    words = []
    for result in report.unsuccessful[:MAX_LISTED]:
        reason = " ".join((result.reason or "").split())  # a traceback has lines
        reason = reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 1]}…"
        words.append(f"{result.check} {result.outcome}: {reason}")
    more = len(report.unsuccessful) - MAX_LISTED
    return "; ".join(words) + (f"; and {more} more, see above" if more > 0 else "")
