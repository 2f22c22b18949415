"""Read the suite's event stream, which comes out of the image. Only complete events in their turn count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from tfimg.core.documents import Document, parse_json
from tfimg.engine.protocol import Exit, Line
from tfimg.validation.report import CheckResult, Explanation, Outcome

SECONDS = 4 * 3600.0
"""How long the whole suite may take. It ends each check in time itself; this is for an engine that hangs.

Minutes as a rule; but compiling TensorFlow's PTX for a newer GPU takes half an hour, more than once without a cache.
"""

KILLED = 128 + 9
"""Status of a container whose process got SIGKILL: from `docker kill`, or from the kernel."""

MOST_WORDS = 600
"""Characters of a process's last lines that are told."""

BAD = ("failed", "crashed", "timed-out")
"""Outcomes that nothing excuses."""

KEPT_LINES = 40
"""How many of the last lines on stderr are kept for the reason of a crash."""

KEPT_CHARACTERS = 10_000
"""Of each of these lines."""

MAX_CHECKS = 10_000
"""Checks that a suite may plan; ours has fewer than 100."""

MAX_CHARACTERS = 64 << 20
"""Characters of all events; those of the whole suite have less than a million."""

Name = Annotated[str, Field(max_length=1000)]
Names = Annotated[tuple[Name, ...], Field(max_length=MAX_CHECKS)]


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
    characters: int = 0

    def tell(
        self,
        said: Line | Exit,
        on_start: Callable[[str], None],
        on_plan: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> Iterator[CheckResult]:
        """Take in one line, or the end; yields the result that it completes."""
        if isinstance(said, Exit):
            self.exit = said
        elif said.stream == "stderr" or ((event := self._read(said.text)) is None or not self._in_turn(event)):
            self.errors = [*self.errors, said.text[-KEPT_CHARACTERS:]][-KEPT_LINES:]
        else:
            yield from self._event(event, on_start, on_plan)

    def _read(self, line: str) -> Event | None:
        """Return the event of a line; None for anything else, and beyond the limit of all events."""
        self.characters += len(line)
        return _event(line) if self.characters <= MAX_CHARACTERS else None

    def _event(
        self,
        event: Event,
        on_start: Callable[[str], None],
        on_plan: Callable[[Sequence[str]], None],
    ) -> Iterator[CheckResult]:
        match event:
            case _Suite():
                self.planned = list(event.checks)
                on_plan(self.planned)
                self.required, self.unproven = list(event.required), list(event.unproven)
                self.waived, self.environment = event.waived, event.environment
            case _Start():
                self.running = event.check
                on_start(event.check)
            case _End():
                self.running = None
                result = CheckResult(
                    check=event.check,
                    outcome=event.outcome,
                    reason=event.reason,
                    seconds=event.seconds,
                    evidence=event.evidence,
                    output=event.output,
                    explained=tuple(Explanation(**one.model_dump()) for one in event.explained),
                )
                self.results.append(result)
                yield result
            case _Done():
                self.code, self.complaint = event.code, event.problem

    def _in_turn(self, event: Event) -> bool:
        """Whether an event can come now: one beginning, then start and end of each planned check, then one end."""
        if isinstance(event, _Suite):
            return not self.planned and event.nonce == self.nonce
        if self.code is not None:
            return False
        if isinstance(event, _Start):
            return self.running is None and event.check in self.planned and event.check not in self._told
        if isinstance(event, _End):
            return event.check == self.running
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


def _event(line: str) -> Event | None:
    """Return the event of a line of the stream; None for anything else that came out there."""
    try:
        parse_json(line.encode())
        return EVENT.validate_json(line, strict=True)
    except ValueError:  # of this family are `InvalidDocument` and pydantic's errors
        return None
