"""What a terminal shows while images are built and validated: with rich, which other output does without."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from tfimg.build import results
from tfimg.cli.output.console import drawing_lock
from tfimg.cli.output.summary import GroupEnded, Summary
from tfimg.cli.output.tables import COLOURS
from tfimg.core import events
from tfimg.core.text import format_duration, to_plain_text
from tfimg.engine.buildx import short_step
from tfimg.validation.report import OUTCOME_WIDTH, CheckResult, flatten


class Display:
    """Steps, checks and images on a terminal: those that run, each with a clock, below rows of what has ended.

    Images' threads call it; rich draws it in a thread of its own, and cuts what is higher than the screen.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic, *, verbose: bool = False) -> None:
        self.progress = Progress(
            SpinnerColumn(),
            _Clock(table_column=Column(width=11, justify="right", no_wrap=True)),
            _Bar(bar_width=10),
            _Words(),  # the only one that may shrink: of columns that do not wrap, rich cuts each a little
            console=console,
            get_time=clock,
            transient=True,
        )
        self._console, self._lock, self._summary = console, threading.RLock(), Summary(verbose=verbose)
        self._running: dict[str, TaskID] = {}
        self._transfers: dict[str, Transfer] = {}
        self._whole: Task | None = None
        self._ended: Counter[str] = Counter()

    def __call__(self, event: events.Event) -> None:
        """Take in an event."""
        with self._lock:
            match event:
                case events.ImageEvent(identifier=identifier, event=inner):
                    self._update_image(identifier, inner)
                case events.StepEvent() | events.LogEvent() | events.ProgressEvent():
                    self._update_step(event)
                case _:
                    self._update(event)
            for shown in self._summary.choose(event):
                self._print(shown)

    def _update_step(self, event: events.StepEvent | events.LogEvent | events.ProgressEvent) -> None:
        name = short_step(event.step)
        match event:
            case events.StepEvent(state="started"):
                self._start(name)
            case events.StepEvent():
                self._stop(name)
            case events.LogEvent(line=line):
                self._show(name, text=line)
            case events.ProgressEvent() if event.total:
                done, total = self._transfers.setdefault(name, Transfer()).add(event)
                self.show_amount(name, done, total, "MB")

    def _update(self, event: events.Event) -> None:
        match event:
            case results.ImagesQueued(identifiers=identifiers):
                self._count("images", total=len(identifiers))
            case results.ImageStarted(identifier=identifier):
                self._start(identifier)
            case results.ImageRequeued(identifier=identifier):
                self._stop(identifier)
            case results.ImageResult():
                self._stop(event.identifier)
                self._count("images", event.status)
            case events.ChecksPlanned(checks=checks):
                self._count("checks", total=len(checks))
            case events.CheckStarted(check=check):
                self._start(check)
            case CheckResult():
                self._stop(event.check)
                self._count("checks", event.outcome)

    def _update_image(self, identifier: str, event: events.Event) -> None:
        """Show an event of one image of several on that image's line."""
        match event:
            case events.StepEvent(step=step, state="started"):
                self._show(identifier, text=short_step(step))
            case events.LogEvent(step=step, line=line):
                self._show(identifier, text=f"{short_step(step)}: {line}")
            case events.ProgressEvent(step=step, what=what) if event.total:
                amount = format_amount(event.current, event.total)
                self._show(identifier, text=f"{short_step(step)}: {what} {amount}")
            case events.ChecksPlanned(checks=checks):
                self._show(identifier, total=len(checks), completed=0)
            case events.CheckStarted(check=check):
                self._show(identifier, text=check)
            case CheckResult():
                self._show(identifier, advance=1)

    def show_amount(self, name: str, done: int, total: int, unit: str) -> None:
        """Show how much of something is done: bytes for the unit MB, else a number."""
        self._show(name, completed=done, total=total or None, unit=unit)

    def _show(self, name: str, **fields: Any) -> None:
        if name in self._running:
            self.progress.update(self._running[name], **fields)

    def _start(self, name: str) -> None:
        self._stop(name)
        self._running[name] = self.progress.add_task(name, total=None, text="", unit=None)

    def _stop(self, name: str) -> None:
        self._transfers.pop(name, None)
        if name in self._running:
            self.progress.remove_task(self._running.pop(name))

    def _count(self, what: str, ended: str | None = None, total: int | None = None) -> None:
        """Show how many images or checks have ended, and how, on a line of their own."""
        if self._whole is None:
            task = self.progress.add_task(what, total=None, text="", unit=None)
            self._whole = next(each for each in self.progress.tasks if each.id == task)
        self._ended.update([ended] if ended else [])
        count, whole = self._ended.total(), total or self._whole.total
        self.progress.update(
            self._whole.id,
            total=whole,
            completed=count,
            description=f"{count} of {whole:.0f} {what}" if whole else f"{count} {what}",
            text=", ".join(f"{number} {state}" for state, number in self._ended.items()),
        )

    def _print(self, event: events.Event) -> None:
        """Print what stays of an event above what runs."""
        match event:
            case events.InfoEvent(text=text) | events.WarningEvent(text=text):
                print(text, file=sys.stderr, flush=True)
            case events.LogEvent(line=line):
                self._print_above(Text(to_plain_text(line), style="dim"))
            case events.StepEvent(state=state):
                self._print_row(state, event.seconds or 0.0, Text(to_plain_text(short_step(event.step))))
            case results.ImageRequeued(identifier=identifier, reason=reason):
                self._print_row("requeued", None, Text(to_plain_text(f"{identifier}  {reason}")))
            case results.ImageResult(status=status):
                self._print_row(status, event.seconds, Text(to_plain_text(f"{event.identifier}  {event.description}")))
            case CheckResult(outcome=outcome):
                self._print_row(outcome, event.seconds, describe_check(event))
            case GroupEnded(outcome=outcome):
                self._print_row(outcome, event.seconds, Text(to_plain_text(f"{event.group}: {event.counts}")))

    def _print_row(self, state: str, seconds: float | None, words: Text) -> None:
        self._print_above(ended_row(state, seconds, words))

    def _print_above(self, shown: RenderableType) -> None:
        with drawing_lock(self.progress):
            self._console.print(shown)


def ended_row(state: str, seconds: float | None, words: Text) -> Table:
    """Return a row for a step, a check or an image that has ended."""
    row = row_grid()
    row.add_row(Text(state, style=COLOURS.get(state, "yellow")), "" if seconds is None else f"{seconds:.1f} s", words)
    return row


class Transfer:
    """The parts of a transfer, which become known one after the other."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[int, int]] = {}

    def add(self, event: events.ProgressEvent) -> tuple[int, int]:
        """Return the bytes of all parts that are done, and all their bytes."""
        self._parts[event.what] = (event.current, max(event.total, event.current))
        done, total = (sum(amounts) for amounts in zip(*self._parts.values(), strict=True))
        return done, total


def format_amount(done: int, total: int) -> str:
    """Return for example `5 of 20 MB` for numbers of bytes."""
    return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"


def format_number(done: int, total: int) -> str:
    """Return for example `5 of 20`."""
    return f"{done} of {total}"


class _Bar(BarColumn):
    """A bar for what has a known end."""

    def render(self, task: Task) -> ProgressBar | str:  # type: ignore[override]
        return super().render(task) if task.total else ""


class _Clock(ProgressColumn):
    """How long it has run: a batch takes hours."""

    def render(self, task: Task) -> Text:
        return Text(format_duration(task.elapsed or 0.0))


class _Words(ProgressColumn):
    """The name of what runs, and what it does."""

    def render(self, task: Task) -> Text:
        words = [to_plain_text(" ".join(task.fields["text"].split()))]
        if task.fields["unit"] and task.total:
            is_bytes = task.fields["unit"] == "MB"
            words.insert(0, (format_amount if is_bytes else format_number)(int(task.completed), int(task.total)))
            if is_bytes and task.speed:
                words.append(f"{task.speed / 1e6:.0f} MB/s")
        text = (" ".join(words), "dim")
        return Text.assemble(to_plain_text(task.description), " ", text, no_wrap=True, overflow="ellipsis")


def row_grid() -> Table:
    """Return a table with columns for an outcome, its seconds, and text that folds."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=OUTCOME_WIDTH, no_wrap=True)
    table.add_column(width=8, justify="right", no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    return table


def describe_check(result: CheckResult) -> Text:
    """Return the check's name, and below it the reason and known cause of a failure."""
    group, dot, name = flatten(result.check).rpartition(".")
    text = Text.assemble((group + dot, "dim"), name)
    if result.reason:
        text.append(f"\n{to_plain_text(result.reason)}", style=COLOURS[result.outcome])
    for warning in result.warnings:
        text.append(f"\nwarning: {to_plain_text(warning)}", style="yellow")
    for known in result.explained:
        text.append(f"\ncause: {to_plain_text(known.cause)}\nwhat helps: {to_plain_text(known.fix)}", style="italic")
    return text
