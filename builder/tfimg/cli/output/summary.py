"""What people read of a build or validation while it runs, on a terminal and elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfimg.core import events
from tfimg.engine.buildx import is_detail, is_housekeeping

if TYPE_CHECKING:
    from tfimg.validation.report import CheckResult, Outcome

MAX_OUTPUT = 10_000
"""Lines that are kept of a running step; `pip` writes 2,000 of a large compilation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupEnded(events.Event):
    """All checks of a group have ended: its worst outcome, the seconds of its checks, and for example `3 passed`."""

    kind = "group"
    group: str
    outcome: Outcome
    seconds: float
    counts: str


class Summary:
    """Choose what is shown of events: a stage or a group of checks that has ended, and all of what failed.

    `verbose`: each step, each check, and the causes of choices.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._planned: Counter[str] = Counter()
        self._results: dict[str, list[CheckResult]] = {}
        self._output: dict[str, list[events.LogEvent]] = {}
        self._failed: set[str] = set()
        self._shown: set[tuple[str, str]] = set()

    def choose(self, event: events.Event) -> Iterator[events.Event]:
        """Yield what is shown now: nothing, the event, or more of what came before it."""
        match event:
            case events.InfoEvent(text=text, cause=cause):
                yield replace(event, text=f"{text}: {cause}", cause=None) if cause and self._verbose else event
            case events.LogEvent(step=step):
                if step in self._failed:
                    yield event
                else:
                    lines = self._output.setdefault(step, [])
                    lines.append(event)
                    del lines[:-MAX_OUTPUT]
            case events.StepEvent():
                yield from self._choose_step(event)
            case events.ChecksPlanned(checks=checks):
                self._planned, self._results = Counter(map(_name_group, checks)), {}
            case events.Event(kind="check"):
                from tfimg.validation.report import CheckResult

                if isinstance(event, CheckResult):
                    yield from self._choose_check(event)
            case _:
                yield event

    def _choose_step(self, event: events.StepEvent) -> Iterator[events.Event]:
        if event.state == "started":
            return
        output = self._output.pop(event.step, [])
        if event.state == "failed":
            self._failed.add(event.step)
            yield from output
        # Builds within one build share steps, and BuildKit reports a step again that it finds in its cache.
        is_again = event.step.startswith("[") and (event.step, event.state) in self._shown
        if is_housekeeping(event) if self._verbose else (is_again or is_detail(event)):
            return
        if event.state in ("done", "cached"):
            self._shown |= {(event.step, "done"), (event.step, "cached")}
        yield event

    def _choose_check(self, result: CheckResult) -> Iterator[events.Event]:
        group = _name_group(result.check)
        if self._verbose or result.outcome != "passed" or result.warnings or group not in self._planned:
            yield result
        results = self._results.setdefault(group, [])
        results.append(result)
        if not self._verbose and len(results) == self._planned[group]:
            from tfimg.validation.report import WORST_FIRST, count_outcomes

            counts = count_outcomes(one.outcome for one in results)
            yield GroupEnded(
                group=group,
                outcome=next((outcome for outcome in WORST_FIRST if outcome in counts), "passed"),
                seconds=sum(one.seconds for one in results),
                counts=", ".join(f"{number} {outcome}" for outcome, number in counts.items()),
            )


def _name_group(check: str) -> str:
    return check.partition(".")[0]
