"""What the suite says line by line → results. Only whole events are believed; silence is never good news."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from tfimg.engine.protocol import Exit, Line
from tfimg.validation.report import CheckResult, Outcome

SECONDS = 600.0
"""How long the whole suite may take. On two cores it took 5 to 13 s, on TensorFlow 2.15.1 to 2.21.0."""

KEPT_LINES = 40
"""How many of the last lines on stderr are kept for the reason of a crash."""


@dataclass(kw_only=True, slots=True)
class Story:
    """What the suite has said so far. It believes only whole events; silence is never good news."""

    planned: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    running: str | None = None
    results: list[CheckResult] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    ended: bool = False
    exit: Exit | None = None
    timed_out: bool = False

    def tell(self, said: Line | Exit, on_start: Callable[[str], None]) -> Iterator[CheckResult]:
        """Take in one line, or the end; yields the result that it completes."""
        if isinstance(said, Exit):
            self.exit = said
        elif said.stream == "stderr" or (event := _event(said.text)) is None:
            self.errors = [*self.errors, said.text][-KEPT_LINES:]
        else:
            yield from self._event(event, on_start)

    def _event(self, event: Mapping[str, Any], on_start: Callable[[str], None]) -> Iterator[CheckResult]:
        if event["event"] == "suite":
            self.planned = list(event["checks"])
            self.unproven = list(event.get("unproven", ()))
        elif event["event"] == "start":
            self.running = event["check"]
            on_start(event["check"])
        elif event["event"] == "end":
            self.running = None
            result = CheckResult(
                check=event["check"], outcome=event["outcome"], reason=event.get("reason"),
                seconds=event["seconds"], evidence=event["evidence"],
            )  # fmt: skip
            self.results.append(result)
            yield result
        elif event["event"] == "done":
            self.ended = True

    def unfinished(self) -> Iterator[CheckResult]:
        """Results for the checks that the suite did not end itself: the one that ran, and those behind it."""
        told = {result.check for result in self.results}
        for check in [name for name in self.planned if name not in told]:
            if check == self.running and self.timed_out:
                result = _result(check, "timed-out", f"it did not end within the suite's {SECONDS:.0f} s")
            elif check == self.running:
                result = _result(check, "crashed", self._last_words())
            else:
                result = _result(check, "skipped", "the suite ended before it")
            self.results.append(result)
            yield result

    def _last_words(self) -> str:
        if self.exit and self.exit.out_of_memory:
            return "the kernel killed it for lack of memory"
        status = f"the process ended with status {self.exit.status}" if self.exit else "the process is gone"
        return f"{status}: {' '.join(self.errors[-3:]).strip() or 'it said nothing'}"

    @property
    def problem(self) -> str | None:
        """Why this is not the story of a whole suite, or None when it is one."""
        if self.timed_out:
            return f"the suite did not end within {SECONDS:.0f} s"
        if not self.planned:
            return f"the suite did not start: {self._last_words()}"
        if not self.ended:
            return f"the suite did not reach its end: {self._last_words()}"
        honest = 1 if any(result.outcome == "failed" for result in self.results) else 0
        if self.exit is None or self.exit.status != honest:
            return f"the suite told its end, and then {self._last_words()}"
        return None


def _result(check: str, outcome: Any, reason: str) -> CheckResult:
    return CheckResult(check=check, outcome=outcome, reason=reason, seconds=0.0, evidence={})


def _event(line: str) -> dict[str, Any] | None:
    """A line of the stream, or None for anything else that came out there."""
    try:
        event = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        return None
    return event if isinstance(event, dict) and _is_whole(event) else None


def _is_whole(event: Mapping[str, Any]) -> bool:
    """Whether an event has its fields; half of one would otherwise be believed by halves."""
    match event:
        case {"event": "suite", "checks": [*checks]}:
            return all(isinstance(check, str) for check in checks)
        case {"event": "start", "check": str()} | {"event": "done"}:
            return True
        case {
            "event": "end",
            "check": str(),
            "outcome": str(outcome),
            "seconds": int() | float(),
            "evidence": {},
        }:
            return outcome in get_args(Outcome) and isinstance(event.get("reason"), str | None)
    return False
