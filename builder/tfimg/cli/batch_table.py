"""A run over many images on a terminal: what runs and what waits as a table; what has ended scrolls away above it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.table import Table as Grid
from rich.text import Text

from tfimg.build.pipeline import Progress
from tfimg.build.results import Result, Status, counts
from tfimg.cli.results import count_words
from tfimg.cli.steps import short
from tfimg.core.text import to_plain_text
from tfimg.engine.protocol import BuildEvent, LogEvent, ProgressEvent, Resources, StageEvent
from tfimg.validation.report import CheckResult, Outcome

WIDTH = max(map(len, get_args(Status)))
"""Of the column of states."""

COLOURS: dict[str, str] = {
    "built": "green",
    "unchanged": "cyan",
    "failed": "red",
    "unbuildable": "red",
    "interrupted": "yellow",
}

LINES = 3
"""Of a terminal's height that are left to what is below and above the table."""


@dataclass(kw_only=True)
class Row:
    """An image whose turn it is; a `Progress` that remembers the last of what it was told."""

    began: float
    building: bool = True
    step: str = ""
    total: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    # One for the whole turn: a new one would stand still.
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))

    # The methods of `tfimg.build.pipeline.Progress`.

    def build(self, event: BuildEvent) -> None:  # noqa: D102
        if isinstance(event, StageEvent) and event.state == "started":
            self.step = short(event.step)
        elif isinstance(event, LogEvent):
            self.step = f"{short(event.step)}: {event.line}"
        elif isinstance(event, ProgressEvent) and event.total:
            self.step = f"{short(event.step)}: {event.what} {event.current / 1e6:.0f} of {event.total / 1e6:.0f} MB"

    def planned(self, checks: Sequence[str]) -> None:  # noqa: D102
        self.building, self.total = False, len(checks)

    def check_started(self, check: str) -> None:  # noqa: D102
        self.building, self.step = False, check

    def check_ended(self, result: CheckResult) -> None:  # noqa: D102
        self.outcomes.append(result.outcome)

    @property
    def told(self) -> Text:
        """What it is at, and how far its checks are."""
        text = to_plain_text(" ".join(self.step.split()))
        if self.building:
            return Text(text)
        far = f" of {self.total}" if self.total else ""
        return Text.assemble(f"{len(self.outcomes)}{far} checks, ", count_words(self.outcomes), f"  {text}")


class Table:
    """The whole of a run. Drawn by a thread of rich's, told by those of the images."""

    def __init__(
        self,
        keep: Callable[[RenderableType], None],
        waiting: Sequence[str],
        *,
        height: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keep, self._height, self._clock = keep, height, clock
        self._lock = threading.RLock()
        self._began = clock()
        self._waiting = dict.fromkeys(waiting)
        self._running: dict[str, Row] = {}
        self._results: list[Result] = []
        self._rooms: dict[str, Resources] = {}

    # The methods of `tfimg.build.schedule.Listener`.

    def item(self, identifier: str) -> Progress:  # noqa: D102
        return self._running[identifier]

    def started(self, identifier: str, engine: str) -> None:  # noqa: ARG002, D102
        with self._lock:
            self._waiting.pop(identifier, None)
            self._running[identifier] = Row(began=self._clock())

    def requeued(self, identifier: str, reason: str) -> None:  # noqa: D102
        with self._lock:
            self._running.pop(identifier, None)
            self._waiting = {identifier: None, **self._waiting}
        self._keep(Text(f"{identifier} goes to another engine: {to_plain_text(reason)}", style="yellow"))

    def pruned(self, engine: str) -> None:  # noqa: D102
        self._keep(Text(f"Room was made on the disk of {engine}", style="yellow"))

    def room(self, engine: str, left: Resources) -> None:  # noqa: D102
        with self._lock:
            self._rooms[engine] = left

    def ended(self, result: Result) -> None:  # noqa: D102
        with self._lock:
            self._waiting.pop(result.identifier, None)
            self._running.pop(result.identifier, None)
            self._results.append(result)
        self._keep(ended_row(result))

    def __rich__(self) -> Group:
        with self._lock:
            return Group(self._table(), self._summary())

    def _table(self) -> Grid:
        table = _grid("ellipsis")
        room = max(1, self._height() - LINES)
        for identifier, row in list(self._running.items())[:room]:
            row.spinner.update(text="building" if row.building else "checking")
            table.add_row(row.spinner, f"{self._clock() - row.began:.1f} s", identifier, row.told)
        hidden = max(0, len(self._running) - room)
        left = room - len(self._running)
        if hidden:
            table.add_row("", "", f"and {hidden} more are being made", "")
        shown = list(self._waiting)[: max(0, left - (len(self._waiting) > left))]
        for identifier in shown:
            table.add_row(Text("waiting", style="dim"), "", Text(identifier, style="dim"), "")
        if len(self._waiting) > len(shown):
            more = f"and {len(self._waiting) - len(shown)} more"
            table.add_row(Text("waiting", style="dim"), "", Text(more, style="dim"), "")
        return table

    def _summary(self) -> Text:
        """Counts, time, and what the disks have left."""
        done, total = len(self._results), len(self._results) + len(self._running) + len(self._waiting)
        words = [Text(f"{done} of {total} images")]
        words += [Text(f"{count} {status}", style=COLOURS[status]) for status, count in counts(self._results).items()]
        words.append(Text(elapsed(self._clock() - self._began)))
        words += [
            Text(f"{room.disk_bytes / 1e9:.1f} GB free") for room in self._rooms.values() if room.disk_bytes is not None
        ]
        return Text("  ").join(words)


def elapsed(seconds: float) -> str:
    """A time for people: `12.3 s`, `3 min 05 s`, `1 h 02 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def ended_row(result: Result) -> Grid:
    """An image's end, in the columns of those that still run."""
    table = _grid("fold")
    state = Text(result.status, style=COLOURS[result.status])
    table.add_row(state, f"{result.seconds:.1f} s", Text(result.identifier), Text(to_plain_text(verdict(result))))
    return table


def verdict(result: Result) -> str:
    """What an image's turn came to, in a few words or in its reason."""
    if result.failure:
        return result.reason or "" if result.status == "failed" else result.failure.what
    if result.status == "unchanged":
        return str(result.level)
    passed = f"{result.checks} check{'' if result.checks == 1 else 's'} passed"
    return f"{result.level}, {'shown before' if result.reused else passed}"


def _grid(overflow: Literal["fold", "ellipsis"]) -> Grid:
    """Columns for state, seconds, image, and the rest; `overflow` is what becomes of that where it is long."""
    table = Grid.grid(padding=(0, 2, 0, 0))
    table.add_column(width=WIDTH, no_wrap=True)
    table.add_column(width=8, justify="right", no_wrap=True)
    table.add_column(width=24, no_wrap=True, overflow="ellipsis")
    table.add_column(overflow=overflow, no_wrap=overflow == "ellipsis", ratio=1)
    return table
