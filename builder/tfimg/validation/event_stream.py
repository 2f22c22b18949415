"""Read the suite's event stream, which the image writes: only complete events in the right order count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from tfimg.core.documents import Document, parse_json
from tfimg.core.events import ChecksPlanned, CheckStarted
from tfimg.engine.protocol import Exit, Line
from tfimg.validation.report import CheckResult, Explanation, Outcome

SUITE_SECONDS = 4 * 3600.0
"""Limit of the whole suite, for an engine that hangs: the suite itself limits each check.

Minutes are usual; but compiling TensorFlow's PTX for a newer GPU takes half an hour, more than once without a cache.
"""

SIGKILL_STATUS = 128 + 9
"""Status of a container whose process got SIGKILL: from `docker kill`, or from the kernel."""

MAX_REASON = 600
"""Characters of a process's last lines in the reason of a crash."""

FAILURES = ("failed", "crashed", "timed-out")

MAX_ERROR_LINES, MAX_ERROR_LINE = 40, 10_000
"""Last lines of stderr that are kept for the reason of a crash, and characters of each."""

MAX_CHECKS = 10_000
"""Checks that a suite may plan; ours has fewer than 100."""

MAX_CHARACTERS = 64 << 20
"""Characters of all events; those of the whole suite have less than a million."""

Name = Annotated[str, Field(max_length=1000)]
Names = Annotated[tuple[Name, ...], Field(max_length=MAX_CHECKS)]


SuiteEvent = ChecksPlanned | CheckStarted | CheckResult
"""What a caller learns of a running suite."""


class _Suite(Document):
    event: Literal["suite"]
    checks: Names
    required: Names
    unproven: Names
    waived: dict[Name, str]
    environment: dict[str, Any]
    nonce: str = ""


class _Start(Document):
    event: Literal["start"]
    check: Name


class _Explained(Document):
    model_config = ConfigDict(frozen=True, extra="forbid")

    signature: str
    fault: Literal["image", "host"]
    cause: str
    proof: str
    remedy: str


class _End(Document):
    event: Literal["end"]
    check: Name
    outcome: Outcome
    seconds: Annotated[float, Field(ge=0, lt=86_400)]
    evidence: dict[str, Any]
    output: tuple[str, ...]
    explained: tuple[_Explained, ...]
    reason: str | None = None


class _Done(Document):
    event: Literal["done"]
    code: int
    problem: str | None


Event = _Suite | _Start | _End | _Done
EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


@dataclass(kw_only=True, slots=True)
class EventStream:
    """State of one run of the suite, from the events so far.

    `nonce` was given to this run alone: a recorded stream of another run does not have it.
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
    suite_problem: str | None = None
    exit: Exit | None = None
    timed_out: bool = False
    unfinished: list[str] = field(default_factory=list)
    characters: int = 0

    def feed(self, item: Line | Exit) -> Iterator[SuiteEvent]:
        """Process one line or the end of the process, and yield the event that it completes."""
        if isinstance(item, Exit):
            self.exit = item
        elif item.stream == "stderr" or ((event := self._parse(item.text)) is None or not self._is_expected(event)):
            self.errors = [*self.errors, item.text[-MAX_ERROR_LINE:]][-MAX_ERROR_LINES:]
        else:
            yield from self._process(event)

    def _parse(self, line: str) -> Event | None:
        self.characters += len(line)
        if self.characters > MAX_CHARACTERS:
            return None
        try:
            parse_json(line.encode())
            return EVENT.validate_json(line, strict=True)
        except ValueError:  # of this family are `InvalidDocument` and pydantic's errors
            return None

    def _is_expected(self, event: Event) -> bool:
        """Whether an event can come now: one beginning, then start and end of each planned check, then one end."""
        if isinstance(event, _Suite):
            return not self.planned and event.nonce == self.nonce
        if self.code is not None:
            return False
        if isinstance(event, _Start):
            return self.running is None and event.check in self.planned and event.check not in self._ended
        if isinstance(event, _End):
            return event.check == self.running
        return bool(self.planned) and self.running is None

    def _process(self, event: Event) -> Iterator[SuiteEvent]:
        match event:
            case _Suite():
                self.planned = list(event.checks)
                self.required, self.unproven = list(event.required), list(event.unproven)
                self.waived, self.environment = event.waived, event.environment
                yield ChecksPlanned(checks=event.checks)
            case _Start():
                self.running = event.check
                yield CheckStarted(check=event.check)
            case _End():
                self.running = None
                explained = tuple(Explanation(**known.model_dump()) for known in event.explained)
                fields = event.model_dump(exclude={"event", "explained"})
                yield self._add(CheckResult(explained=explained, **fields))
            case _Done():
                self.code, self.suite_problem = event.code, event.problem

    @property
    def _ended(self) -> set[str]:
        return {result.check for result in self.results}

    def finish(self) -> Iterator[CheckResult]:
        """Yield results for the checks that did not end: the running one, and those after it."""
        self.unfinished = [name for name in self.planned if name not in self._ended]
        for check in self.unfinished:
            outcome: Outcome = "skipped"
            reason = "the suite ended before it"
            if check == self.running:
                outcome = "timed-out" if self.timed_out else "crashed"
                reason = f"it did not end within {SUITE_SECONDS:.0f} s" if self.timed_out else self._describe_exit()
            yield self._add(CheckResult(check=check, outcome=outcome, reason=reason, seconds=0.0, evidence={}))

    def _add(self, result: CheckResult) -> CheckResult:
        self.results.append(result)
        return result

    def _describe_exit(self) -> str:
        if self.exit and self.exit.out_of_memory:
            return "the kernel killed it for lack of memory"
        status = f"the process ended with status {self.exit.status}" if self.exit else "the process is gone"
        if self.exit and self.exit.status == SIGKILL_STATUS:
            status += ", killed from outside"
        output = " ".join(self.errors[-3:]).strip()
        return f"{status}: {output[-MAX_REASON:] or 'no output'}"

    @property
    def problem(self) -> str | None:
        """Reason why the suite is incomplete or contradicts itself; None if it ran to its end."""
        if self.timed_out:
            return f"the suite did not end within {SUITE_SECONDS:.0f} s"
        if not self.planned:
            return f"the suite did not start: {self._describe_exit()}"
        if self.code is None:
            return f"the suite did not reach its end: {self._describe_exit()}"
        if self.exit is None or self.exit.status != self.code:
            return f"the suite reported its end, and then {self._describe_exit()}"
        if self.unfinished:
            return f"the suite reported its end without having run {', '.join(self.unfinished)}"
        if self.code == 0 and any(result.outcome in FAILURES for result in self.results):
            return "the suite reported success in spite of failed checks"
        return self.suite_problem
