"""A build and a validation while they run: live on a terminal, lines elsewhere, events under --json."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import Protocol

from rich.console import Console
from rich.live import Live

from tfimg.cli.context import Context
from tfimg.cli.live import Running
from tfimg.cli.results import WIDTH, line
from tfimg.cli.steps import dull, short
from tfimg.engine.protocol import BuildEvent, LogEvent, StageEvent
from tfimg.validation.report import CheckResult
from tfimg.validation.text import strict


class Progress(Protocol):
    """Who is told what happens."""

    def build(self, event: BuildEvent) -> None:
        """Something happened in the build."""

    def planned(self, checks: Sequence[str]) -> None:
        """The suite has said which checks it will run."""

    def check_started(self, check: str) -> None:
        """A check begins."""

    def check_ended(self, result: CheckResult) -> None:
        """A check has ended."""


def follow(context: Context) -> AbstractContextManager[Progress]:
    """The progress that fits where we are."""
    if context.arguments.json:
        return _plainly(_Events(context))
    console = Console(stderr=True)
    return _live(console) if console.is_terminal else _plainly(_Lines())


@contextmanager
def _plainly(progress: Progress) -> Iterator[Progress]:
    yield progress


@contextmanager
def _live(console: Console) -> Iterator[Progress]:
    progress = Running(console.print)
    with Live(progress, console=console, refresh_per_second=8, transient=True):
        yield progress


class _Events:
    """Every event as a JSON line."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def build(self, event: BuildEvent) -> None:
        kind = {StageEvent: "step", LogEvent: "log"}.get(type(event), "progress")
        self._context.emit({"event": kind, **asdict(event)})

    def planned(self, checks: Sequence[str]) -> None:
        pass  # each of them is told when it starts

    def check_started(self, check: str) -> None:
        self._context.emit({"event": "check-started", "check": check})

    def check_ended(self, result: CheckResult) -> None:
        self._context.emit({"event": "check", **strict(asdict(result))})


class _Lines:
    """One line when something ends: what a log file wants."""

    def build(self, event: BuildEvent) -> None:
        if isinstance(event, StageEvent) and event.state != "started" and not dull(event):
            seconds = f"{event.seconds:6.1f} s" if event.seconds is not None else " " * 8
            print(
                f"build  {seconds}  {event.state:{WIDTH}}  {short(event.step)}", file=sys.stderr, flush=True
            )

    def planned(self, checks: Sequence[str]) -> None:
        pass

    def check_started(self, check: str) -> None:
        pass

    def check_ended(self, result: CheckResult) -> None:
        print(line(result), file=sys.stderr, flush=True)
