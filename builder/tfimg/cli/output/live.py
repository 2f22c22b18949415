"""One image's build, validation or publication on a terminal, live."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tfimg.cli.output.checks import count_words, result_table, row_grid
from tfimg.cli.output.console import PrintRow
from tfimg.core.events import ChecksPlanned, CheckStarted, Event, LogEvent, ProgressEvent, StepEvent
from tfimg.core.text import to_plain_text
from tfimg.engine.docker.steps import is_housekeeping, short_step
from tfimg.validation.report import CheckResult, Outcome
from tfimg.validation.report_text import OUTCOME_WIDTH


class LiveImage:
    """Show steps and checks that run, each with a clock; print a row for each that has ended."""

    def __init__(self, print_row: PrintRow, clock: Callable[[], float] = time.monotonic) -> None:
        self._print_row = print_row
        self._clock = clock
        self._running: dict[str, tuple[float, str]] = {}
        self._checks_began: float | None = None
        self._total: int | None = None
        self._outcomes: list[Outcome] = []

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        match event:
            case LogEvent(step=step, line=text):
                self._describe(short_step(step), text)
            case ProgressEvent(step=step, total=total) if total:
                self._describe(short_step(step), f"{event.current / 1e6:.0f} of {total / 1e6:.0f} MB {event.what}")
            case StepEvent(state="started"):
                self._running[short_step(event.step)] = (self._clock(), "")
            case StepEvent():
                self._running.pop(short_step(event.step), None)
                if not is_housekeeping(event):
                    self._print_row(step_row(event))
            case ChecksPlanned(checks=checks):
                self._checks_began, self._total = self._clock(), len(checks)
            case CheckStarted(check=check):
                self._checks_began = self._checks_began or self._clock()
                self._running[check] = (self._clock(), "")
            case CheckResult():
                self._running.pop(event.check, None)
                self._outcomes.append(event.outcome)
                self._print_row(result_table([event]))

    def _describe(self, name: str, text: str) -> None:
        if name in self._running:
            self._running[name] = (self._running[name][0], text)

    def __rich__(self) -> Group:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=OUTCOME_WIDTH, justify="right")
        table.add_column(width=8, justify="right", no_wrap=True)
        table.add_column()  # the only one that may shrink: of columns that do not wrap, rich cuts each a little
        for name, (began, text) in self._running.items():
            words = Text.assemble(
                to_plain_text(name), " ", (to_plain_text(text), "dim"), no_wrap=True, overflow="ellipsis"
            )
            table.add_row(Spinner("dots"), f"{self._clock() - began:.1f} s", words)
        return Group(table, *([self._bar(self._checks_began)] if self._checks_began is not None else []))

    def _bar(self, began: float) -> Table:
        done, total = len(self._outcomes), self._total
        cells: list[RenderableType] = [f"{done} of {total}" if total else f"{done} checks"]
        if total:
            cells.append(ProgressBar(total=total, completed=done, width=20))
        bar = Table.grid(padding=(0, 2, 0, 0))
        bar.add_row(*cells, f"{self._clock() - began:.1f} s", count_words(self._outcomes))
        return bar


def step_row(event: StepEvent) -> Table:
    """Return a row for a step that has ended, in the columns of the checks that follow it."""
    row = row_grid()
    colours = {"done": "green", "cached": "cyan", "failed": "red"}
    row.add_row(
        Text(event.state, style=colours.get(event.state, "yellow")),
        f"{event.seconds or 0.0:.1f} s",
        Text(to_plain_text(short_step(event.step))),
    )
    return row
