"""Runs checks one after the other and tells each start and each end as an event."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from contract import CheckFailed, CheckSkipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from contract import Check, Evidence, Facts

    Emit = Callable[[dict[str, Any]], None]
    Verdict = tuple[str, str | None, Evidence]

SCHEMA = 1
TRACEBACK_LINES = 20


def select(checks: Mapping[str, Check], patterns: Sequence[str]) -> dict[str, Check]:
    """The checks whose name fits any of the shell patterns, in table order; all of them without patterns.

    Raises ValueError for a pattern that fits nothing: a typing error must not look like a good image.
    """
    useless = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in checks)]
    if useless:
        raise ValueError(f"no check is named {', '.join(useless)}; the checks are {', '.join(checks)}")
    return {
        name: check
        for name, check in checks.items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def applicable(checks: Mapping[str, Check], facts: Facts) -> dict[str, Check]:
    """The checks for the device that is claimed, and for no higher level than the one to prove.

    Those of a higher level are not told as skipped, as nobody asked for them, but as `unproven`.
    """
    return {
        name: check
        for name, check in checks.items()
        if facts.device is None or facts.device in check.devices
        if facts.level == "validated" or check.level == "linked"
    }


def unproven(checks: Mapping[str, Check], facts: Facts) -> list[str]:
    """The checks that this level leaves out: they need the accelerator."""
    asked = applicable(checks, facts)
    return [name for name in applicable(checks, replace(facts, level="validated")) if name not in asked]


def claim_stdout() -> Emit:
    """Keep standard output for events, and send whatever else writes to it to standard error.

    The descriptor itself is moved, because C++ libraries and child processes do not go through `sys.stdout`.
    """
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "w", encoding="ascii", newline="\n")
    os.dup2(2, 1)

    def emit(event: dict[str, Any]) -> None:
        print(json.dumps(event), file=stream, flush=True)

    return emit


def run(
    checks: Mapping[str, Check],
    facts: Facts,
    emit: Emit,
    clock: Callable[[], float] = time.monotonic,
    unproven: Sequence[str] = (),
) -> int:
    """Run the checks in order; 0 when none failed, else 1. `clock` counts seconds; `unproven` is told beside them."""
    began = clock()
    emit({"event": "suite", "schema": SCHEMA, "checks": list(checks), "unproven": list(unproven)})
    outcomes = [_run_one(name, check, facts, emit, clock) for name, check in checks.items()]
    emit({"event": "done", "seconds": _since(began, clock)})
    return 1 if "failed" in outcomes else 0


def _run_one(name: str, check: Check, facts: Facts, emit: Emit, clock: Callable[[], float]) -> str:
    emit({"event": "start", "check": name})
    began = clock()
    outcome, reason, evidence = _judge(check, facts)
    emit(
        {
            "event": "end",
            "check": name,
            "outcome": outcome,
            "reason": reason,
            "seconds": _since(began, clock),
            "evidence": _jsonable(evidence),
        }
    )
    return outcome


def _judge(check: Check, facts: Facts) -> Verdict:
    try:
        return "passed", None, check.run(facts)
    except CheckSkipped as skipped:
        return "skipped", str(skipped), {}
    except CheckFailed as failed:
        return "failed", failed.reason, failed.evidence
    # A library that calls sys.exit() must not take the checks after it along.
    except (Exception, SystemExit) as error:
        lines = traceback.format_exc().splitlines()[-TRACEBACK_LINES:]
        return "failed", f"{type(error).__name__}: {error}", {"traceback": lines}


def _since(began: float, clock: Callable[[], float]) -> float:
    return round(clock() - began, 3)


def _jsonable(value: object) -> object:
    """Evidence as strict JSON: a NaN or a NumPy scalar must not cost the result it belongs to."""
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)
