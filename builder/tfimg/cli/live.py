"""A build and a validation on a terminal, while they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tfimg.cli.results import WIDTH, count_words, result_table, row_grid
from tfimg.cli.steps import dull, short
from tfimg.core.text import to_plain_text
from tfimg.engine.protocol import BuildEvent, LogEvent, StageEvent
from tfimg.validation.report import CheckResult, Outcome


class Running:
    """What runs now, each with a clock, and how far the suite is; what has ended scrolls away above as rows."""

    def __init__(self, keep: Callable[[RenderableType], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._keep = keep
        self._clock = clock
        self._running: dict[str, tuple[float, str]] = {}
        self._began: float | None = None
        self._total: int | None = None
        self._outcomes: list[Outcome] = []

    # The methods of `tfimg.cli.progress.Progress`.

    def build(self, event: BuildEvent) -> None:  # noqa: D102
        name = short(event.step)
        if isinstance(event, LogEvent):
            self._say(name, event.line)
        elif isinstance(event, StageEvent) and event.state == "started":
            self._running[name] = (self._clock(), "")
        elif isinstance(event, StageEvent):
            self._running.pop(name, None)
            if not dull(event):
                self._keep(step_row(event))
        elif event.total:
            self._say(name, f"{event.current / 1e6:.0f} of {event.total / 1e6:.0f} MB {event.what}")

    def planned(self, checks: Sequence[str]) -> None:  # noqa: D102
        self._began, self._total = self._clock(), len(checks)

    def check_started(self, check: str) -> None:  # noqa: D102
        self._began = self._began or self._clock()
        self._running[check] = (self._clock(), "")

    def check_ended(self, result: CheckResult) -> None:  # noqa: D102
        self._running.pop(result.check, None)
        self._outcomes.append(result.outcome)
        self._keep(result_table([result]))

    def _say(self, name: str, text: str) -> None:
        if name in self._running:
            self._running[name] = (self._running[name][0], text)

    def __rich__(self) -> Group:
        clocks = Table.grid(padding=(0, 2, 0, 0))
        clocks.add_column(width=WIDTH, justify="right")
        clocks.add_column(width=8, justify="right", no_wrap=True)
        clocks.add_column()  # the only one that may shrink: of columns that do not wrap, rich cuts each a little
        for name, (start, text) in self._running.items():
            told = Text.assemble(
                to_plain_text(name), " ", (to_plain_text(text), "dim"), no_wrap=True, overflow="ellipsis"
            )
            clocks.add_row(Spinner("dots"), f"{self._clock() - start:.1f} s", told)
        return Group(clocks, *([self._bar(self._began)] if self._began is not None else []))

    def _bar(self, began: float) -> Table:
        """How many checks have ended, of how many, and how."""
        done, total = len(self._outcomes), self._total
        bar = Table.grid(padding=(0, 2, 0, 0))
        count = f"{done} of {total}" if total else f"{done} checks"
        cells: list[RenderableType] = [count, f"{self._clock() - began:.1f} s", count_words(self._outcomes)]
        if total:
            cells.insert(1, ProgressBar(total=total, completed=done, width=20))
        bar.add_row(*cells)
        return bar


def step_row(event: StageEvent) -> Table:
    """A build step's end, in the columns of the checks that follow it."""
    row = row_grid()
    colour = {"done": "green", "cached": "cyan", "damaged": "yellow", "failed": "red"}[event.state]
    row.add_row(
        Text(event.state, style=colour), f"{event.seconds or 0.0:.1f} s", Text(to_plain_text(short(event.step)))
    )
    return row
