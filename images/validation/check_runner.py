"""Run one check and make the event of its end."""

from __future__ import annotations

import ctypes
import signal
import sys
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

from contract import CheckFailed, CheckSkipped
from stream import jsonable

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from contract import Check, Facts, Measured

    Verdict = tuple[str, str | None, Measured]

TRACEBACK_LINES = 20
MAX_REASON = 1500  # characters: a program's output may be part of it


def run_check(name: str, check: Check, facts: Facts, clock: Callable[[], float] = time.monotonic) -> dict[str, Any]:
    """Run a check and return the event of its end. `clock` returns seconds."""
    began = clock()
    outcome, reason, measured = _verdict(check, facts)
    _flush()
    return make_end_event(name, outcome, reason, clock() - began, measured)


def make_end_event(
    name: str, outcome: str, reason: str | None, seconds: float = 0.0, measured: Measured | None = None
) -> dict[str, Any]:
    """Return the event of a check's end."""
    if reason is not None and len(reason) > MAX_REASON:
        reason = f"{reason[:MAX_REASON]} …"
    event: dict[str, Any] = {"event": "end", "check": name, "outcome": outcome, "reason": reason}
    return {**event, "seconds": round(seconds, 3), "measured": jsonable(measured or {})}


def describe_exit(status: int) -> str:
    """Describe a return code of `subprocess`, which is negative for a signal."""
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
    return f"signal {-status} ({name})"


def _verdict(check: Check, facts: Facts) -> Verdict:
    try:
        return "passed", None, check.run(facts)
    except CheckSkipped as skipped:
        return "skipped", str(skipped), {}
    except CheckFailed as failed:
        return "failed", failed.reason, failed.measured
    # A library that calls sys.exit() must not take the checks after it along.
    except (Exception, SystemExit) as error:
        lines = traceback.format_exc().splitlines()[-TRACEBACK_LINES:]
        return "failed", f"{type(error).__name__}: {error}", {"traceback": lines}


def _flush() -> None:
    """Flush the buffers of Python and C, so that the output of a check is read before the event of its end."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the check closed it
            stream.flush()
    ctypes.CDLL(None).fflush(None)
