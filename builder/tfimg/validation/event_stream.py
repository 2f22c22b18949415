"""Read the suite's event stream, which the image writes: only complete events in the right order count."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, TypeAdapter

from tfimg.core.documents import Document, parse_json
from tfimg.core.events import ChecksPlanned, CheckStarted
from tfimg.engine.protocol import Exit, Line
from tfimg.validation.report import CheckResult, Outcome

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


class Plan(Document):
    """The suite's first event: its checks, and the machine as it sees it."""

    checks: Names
    required: Names
    unproven: Names
    waived: dict[Name, str]
    environment: dict[str, Any]
    nonce: str = ""


NOTHING_PLANNED = Plan(checks=(), required=(), unproven=(), waived={}, environment={})


class Done(Document):
    """The suite's last event."""

    code: int
    problem: str | None


Event = (
    Annotated[Plan, Tag("suite")]
    | Annotated[CheckStarted, Tag("start")]
    | Annotated[CheckResult, Tag("end")]
    | Annotated[Done, Tag("done")]
)
EVENT: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Discriminator(lambda value: value.get("event") if isinstance(value, dict) else None)]
)


@dataclass(kw_only=True, slots=True)
class EventStream:
    """State of one run of the suite, from the events so far.

    `nonce` was given to this run alone: a recorded stream of another run does not have it.
    """

    nonce: str = ""
    plan: Plan = NOTHING_PLANNED
    running: str | None = None
    results: list[CheckResult] = field(default_factory=list)
    done: Done | None = None
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_ERROR_LINES))
    exit: Exit | None = None
    timed_out: bool = False
    unfinished: list[str] = field(default_factory=list)
    characters: int = 0

    def feed(self, item: Line | Exit) -> Iterator[SuiteEvent]:
        """Process one line or the end of the process, and yield the event that it completes.

        An event counts when it can come: one plan, then start and end of each planned check, then one end.
        """
        if isinstance(item, Exit):
            self.exit = item
            return
        is_idle = self.running is None and self.done is None
        match self._parse(item.text) if item.stream == "stdout" else None:
            case Plan() as plan if not self.plan.checks and plan.nonce == self.nonce:
                self.plan = plan
                yield ChecksPlanned(checks=plan.checks)
            case CheckStarted() as start if is_idle and start.check in self._pending():
                self.running = start.check
                yield start
            case CheckResult() as result if result.check == self.running:
                self.running = None
                self.results.append(result)
                yield result
            case Done() as done if is_idle and self.plan.checks:
                self.done = done
            case _:
                self.errors.append(item.text[-MAX_ERROR_LINE:])

    def _parse(self, line: str) -> Event | None:
        self.characters += len(line)
        if self.characters > MAX_CHARACTERS:
            return None
        try:
            parse_json(line.encode())
            return EVENT.validate_json(line, strict=True)
        except ValueError:  # of this family are `InvalidDocument` and pydantic's errors
            return None

    def _pending(self) -> list[str]:
        """Return the planned checks that did not end."""
        ended = {result.check for result in self.results}
        return [check for check in self.plan.checks if check not in ended]

    def finish(self) -> Iterator[CheckResult]:
        """Yield results for the checks that did not end: the running one, and those after it."""
        self.unfinished = self._pending()
        for check in self.unfinished:
            outcome: Outcome = "skipped"
            reason = "the suite ended before it"
            if check == self.running:
                outcome = "timed-out" if self.timed_out else "crashed"
                reason = f"it did not end within {SUITE_SECONDS:.0f} s" if self.timed_out else self._describe_exit()
            result = CheckResult(check=check, outcome=outcome, reason=reason, seconds=0.0, evidence={})
            self.results.append(result)
            yield result

    def _describe_exit(self) -> str:
        if self.exit and self.exit.out_of_memory:
            return "the kernel killed it for lack of memory"
        status = f"the process ended with status {self.exit.status}" if self.exit else "the process ended"
        if self.exit and self.exit.status == SIGKILL_STATUS:
            status += ", killed from outside"
        output = " ".join(list(self.errors)[-3:]).strip()
        return f"{status}: {output[-MAX_REASON:] or 'no output'}"

    @property
    def problem(self) -> str | None:
        """Reason why the suite is incomplete or contradicts itself; None if it ran to its end."""
        if self.timed_out:
            return f"the suite did not end within {SUITE_SECONDS:.0f} s"
        if not self.plan.checks:
            return f"the suite did not start: {self._describe_exit()}"
        if self.done is None:
            return f"the suite did not reach its end: {self._describe_exit()}"
        if self.exit is None or self.exit.status != self.done.code:
            return f"the suite reported its end, and then {self._describe_exit()}"
        if self.unfinished:
            return f"the suite reported its end without having run {', '.join(self.unfinished)}"
        if self.done.code == 0 and any(result.outcome in FAILURES for result in self.results):
            return "the suite reported success in spite of failed checks"
        return self.done.problem
