"""What the suite says on its standard output, event by event, for tests of who listens to it."""

import json
from typing import Any

from tfimg.engine.interface import Exit, Line

EXPLAINED = {"issue": "s", "fault": "host", "cause": "c", "proof": "p", "fix": "r"}


def suite(*checks: str, **others: Any) -> dict[str, Any]:
    """The first event; every check is required."""
    required = {"checks": list(checks), "required": list(checks), "waived": {"z": "for a test"}, "unproven": []}
    return {"event": "suite", "schema": 2, **required, "environment": {"cores": 2}, **others}


def start(check: str) -> dict[str, Any]:
    """A check begins."""
    return {"event": "start", "check": check}


def end(check: str, outcome: str = "passed", reason: str | None = None, **others: Any) -> dict[str, Any]:
    """A check has ended."""
    ended = {"event": "end", "check": check, "outcome": outcome, "reason": reason, "seconds": 0.5}
    return {**ended, "measured": {"n": 1}, "output": ["a line"], "explained": [], **others}


def done_event(code: int = 0, problem: str | None = None) -> dict[str, Any]:
    """The last event."""
    return {"event": "done", "seconds": 1.0, "code": code, "problem": problem}


def line(event: dict[str, Any]) -> Line:
    """An event as it is heard."""
    return Line(stream="stdout", text=json.dumps(event))


def make_output(*events: dict[str, Any], status: int = 0) -> list[Line | Exit]:
    """A whole run_output."""
    return [*map(line, events), Exit(status=status, out_of_memory=False)]
