"""What the suite says line by line → results. Only whole events are believed; silence is never good news."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from tfimg.engine.protocol import Exit, Line
from tfimg.validation.report import CheckResult, Explanation, Outcome

SECONDS = 3600.0
"""How long the whole suite may take. It ends each check in time itself; this is for an engine that hangs."""

KILLED = 128 + 9
"""Status of a container whose process got SIGKILL: from `docker kill`, or from the kernel."""

MOST_WORDS = 600
"""Characters of a process's last lines that are told."""

BAD = ("failed", "crashed", "timed-out")
"""Outcomes that nothing excuses."""

KEPT_LINES = 40
"""How many of the last lines on stderr are kept for the reason of a crash."""


@dataclass(kw_only=True, slots=True)
class Story:
    """What the suite has said so far. It believes only whole events that are in their turn; silence is no good news.

    `nonce` is what this run was told alone: a stream that was recorded before does not have it.
    """

    nonce: str = ""
    planned: list[str] = field(default_factory=list)
    required: list[str] = field(default_factory=list)
    waived: dict[str, str] = field(default_factory=dict)
    unproven: list[str] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    running: str | None = None
    results: list[CheckResult] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    code: int | None = None
    complaint: str | None = None
    exit: Exit | None = None
    timed_out: bool = False
    untold: list[str] = field(default_factory=list)

    def tell(
        self,
        said: Line | Exit,
        on_start: Callable[[str], None],
        on_plan: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> Iterator[CheckResult]:
        """Take in one line, or the end; yields the result that it completes."""
        if isinstance(said, Exit):
            self.exit = said
        elif said.stream == "stderr" or ((event := _event(said.text)) is None or not self._in_turn(event)):
            self.errors = [*self.errors, said.text][-KEPT_LINES:]
        else:
            yield from self._event(event, on_start, on_plan)

    def _event(
        self,
        event: Mapping[str, Any],
        on_start: Callable[[str], None],
        on_plan: Callable[[Sequence[str]], None],
    ) -> Iterator[CheckResult]:
        if event["event"] == "suite":
            self.planned = list(event["checks"])
            on_plan(self.planned)
            self.required, self.unproven = list(event["required"]), list(event["unproven"])
            self.waived, self.environment = dict(event["waived"]), dict(event["environment"])
        elif event["event"] == "start":
            self.running = event["check"]
            on_start(event["check"])
        elif event["event"] == "end":
            self.running = None
            result = CheckResult(
                check=event["check"], outcome=event["outcome"], reason=event.get("reason"),
                seconds=event["seconds"], evidence=event["evidence"], output=tuple(event["output"]),
                explained=tuple(Explanation(**one) for one in event["explained"]),
            )  # fmt: skip
            self.results.append(result)
            yield result
        elif event["event"] == "done":
            self.code, self.complaint = event["code"], event["problem"]

    def _in_turn(self, event: Mapping[str, Any]) -> bool:
        """Whether an event can come now: one beginning, then start and end of each planned check, then one end."""
        if event["event"] == "suite":
            return not self.planned and event.get("nonce", "") == self.nonce
        if self.code is not None:
            return False
        if event["event"] == "start":
            return (
                self.running is None and event["check"] in self.planned and event["check"] not in self._told
            )
        if event["event"] == "end":
            return bool(event["check"] == self.running)
        return bool(self.planned) and self.running is None

    @property
    def _told(self) -> set[str]:
        return {result.check for result in self.results}

    def unfinished(self) -> Iterator[CheckResult]:
        """Results for the checks that the suite did not end itself: the one that ran, and those behind it."""
        self.untold = [name for name in self.planned if name not in self._told]
        for check in self.untold:
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
        if self.exit and self.exit.status == KILLED:
            status += ", killed from outside"
        words = " ".join(self.errors[-3:]).strip()
        return f"{status}: {words[-MOST_WORDS:] or 'it said nothing'}"

    @property
    def problem(self) -> str | None:
        """Why this is not the story of a whole suite, or None when it is one."""
        if self.timed_out:
            return f"the suite did not end within {SECONDS:.0f} s"
        if not self.planned:
            return f"the suite did not start: {self._last_words()}"
        if self.code is None:
            return f"the suite did not reach its end: {self._last_words()}"
        if self.exit is None or self.exit.status != self.code:
            return f"the suite told its end, and then {self._last_words()}"
        if self.untold:
            return f"the suite told its end without having run {', '.join(self.untold)}"
        if self.code == 0 and any(result.outcome in BAD for result in self.results):
            return "the suite told that all is well, and told of checks that did not pass"
        return self.complaint


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
        case {
            "event": "suite",
            "checks": [*checks],
            "required": [*required],
            "unproven": [*unproven],
            "waived": {},
            "environment": {},
        }:
            return all(isinstance(check, str) for check in (*checks, *required, *unproven))
        case {"event": "start", "check": str()} | {"event": "done", "code": int(), "problem": str() | None}:
            return True
        case {
            "event": "end",
            "check": str(),
            "outcome": str(outcome),
            "seconds": int() | float(),
            "evidence": {},
            "output": [*output],
            "explained": [*explained],
        }:
            told = all(isinstance(line, str) for line in output) and all(_explains(one) for one in explained)
            return told and outcome in get_args(Outcome) and isinstance(event.get("reason"), str | None)
    return False


def _explains(one: object) -> bool:
    names = [field.name for field in fields(Explanation)]
    return (
        isinstance(one, dict) and list(one) == names and all(isinstance(text, str) for text in one.values())
    )
