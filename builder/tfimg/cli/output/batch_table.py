"""A build of many images on a terminal, live."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from rich.console import Group
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tfimg.build import results
from tfimg.cli.output.checks import count_words
from tfimg.cli.output.console import PrintRow
from tfimg.core import events
from tfimg.core.text import format_duration, to_plain_text
from tfimg.engine.docker.steps import short_step
from tfimg.validation.report import CheckResult, Outcome

STATUS_WIDTH = max(map(len, get_args(results.Status)))
"""Width of the column of states."""

COLOURS = {
    "built": "green",
    "unchanged": "cyan",
    "recorded": "cyan",
    "failed": "red",
    "unbuildable": "yellow",
    "interrupted": "yellow",
}

MARGIN_LINES = 3
"""Lines of a terminal that are left to what is below and above the table."""


@dataclass(kw_only=True)
class Row:
    """An image that is being built or validated."""

    began: float
    building: bool = True
    step: str = ""
    total: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    # One for the whole turn: a new one would stand still.
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))

    def update(self, event: events.Event) -> None:
        """Take in an event of the image."""
        match event:
            case events.StepEvent(step=step, state="started"):
                self.step = short_step(step)
            case events.LogEvent(step=step, line=line):
                self.step = f"{short_step(step)}: {line}"
            case events.ProgressEvent(step=step, total=total) if total:
                amount = f"{event.current / 1e6:.0f} of {total / 1e6:.0f} MB"
                self.step = f"{short_step(step)}: {event.what} {amount}"
            case events.ChecksPlanned(checks=checks):
                self.building, self.total = False, len(checks)
            case events.CheckStarted(check=check):
                self.building, self.step = False, check
            case CheckResult(outcome=outcome):
                self.outcomes.append(outcome)

    @property
    def description(self) -> Text:
        """The current step, and how many checks have ended."""
        text = to_plain_text(" ".join(self.step.split()))
        if self.building:
            return Text(text)
        total = f" of {self.total}" if self.total else ""
        return Text.assemble(f"{len(self.outcomes)}{total} checks, ", count_words(self.outcomes), f"  {text}")


class LiveBatch:
    """Show images that run and wait as a table; print a row for each that has ended.

    Images' threads call it; rich draws it in a thread of its own. `height` returns the terminal's.
    """

    def __init__(
        self, print_row: PrintRow, *, height: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._print_row, self._height, self._clock = print_row, height, clock
        self._lock = threading.RLock()
        self._began = clock()
        self._waiting: dict[str, None] = {}
        self._running: dict[str, Row] = {}
        self._results: list[results.ImageResult] = []

    def __call__(self, event: events.Event) -> None:
        """Take in an event."""
        with self._lock:
            self._update(event)
        match event:
            case results.ImageResult():
                self._print_row(result_row(event))
            case results.ImageRequeued(identifier=identifier, reason=reason):
                self._print_row(Text(f"{identifier} goes to another engine: {to_plain_text(reason)}", style="yellow"))

    def _update(self, event: events.Event) -> None:
        match event:
            case results.ImagesQueued(identifiers=identifiers):
                self._waiting = dict.fromkeys(identifiers)
            case results.ImageStarted(identifier=identifier):
                self._waiting.pop(identifier, None)
                self._running[identifier] = Row(began=self._clock())
            case events.ImageEvent(identifier=identifier, event=inner) if identifier in self._running:
                self._running[identifier].update(inner)
            case results.ImageRequeued(identifier=identifier):
                self._running.pop(identifier, None)
                self._waiting = {identifier: None, **self._waiting}
            case results.ImageResult(identifier=identifier):
                self._waiting.pop(identifier, None)
                self._running.pop(identifier, None)
                self._results.append(event)

    def __rich__(self) -> Group:
        with self._lock:
            return Group(self._table(), self._summary())

    def _table(self) -> Table:
        table = _grid("ellipsis")
        lines = max(1, self._height() - MARGIN_LINES)
        for identifier, row in list(self._running.items())[:lines]:
            row.spinner.update(text="building" if row.building else "checking")
            table.add_row(row.spinner, f"{self._clock() - row.began:.1f} s", identifier, row.description)
        if len(self._running) > lines:
            table.add_row("", "", f"and {len(self._running) - lines} more are being made", "")
        lines -= len(self._running)
        names = list(self._waiting)[: max(0, lines - (len(self._waiting) > lines))]
        if len(self._waiting) > len(names):
            names.append(f"and {len(self._waiting) - len(names)} more")
        for name in names:
            table.add_row(Text("waiting", style="dim"), "", Text(name, style="dim"), "")
        return table

    def _summary(self) -> Text:
        done, total = len(self._results), len(self._results) + len(self._running) + len(self._waiting)
        counts = results.count_by_status(self._results)
        return Text("  ").join(
            [
                Text(f"{done} of {total} images"),
                *(Text(f"{count} {status}", style=COLOURS[status]) for status, count in counts.items()),
                Text(format_duration(self._clock() - self._began)),
            ]
        )


def result_row(result: results.ImageResult) -> Table:
    """Return a row for an image that has ended, in the columns of those that run."""
    table = _grid("fold")
    state = Text(result.status, style=COLOURS[result.status])
    table.add_row(state, f"{result.seconds:.1f} s", Text(result.identifier), Text(to_plain_text(result.description)))
    return table


def _grid(overflow: Literal["fold", "ellipsis"]) -> Table:
    """Return columns for state, seconds, image, and text that folds or is cut."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=STATUS_WIDTH, no_wrap=True)
    table.add_column(width=8, justify="right", no_wrap=True)
    table.add_column(width=24, no_wrap=True, overflow="ellipsis")
    table.add_column(overflow=overflow, no_wrap=overflow == "ellipsis", ratio=1)
    return table
