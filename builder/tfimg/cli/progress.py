"""A build and a validation while they run: live on a terminal, lines elsewhere, events under --json."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.live import Live

from tfimg.build.pipeline import Progress
from tfimg.cli.console import live, make_console
from tfimg.cli.context import Context
from tfimg.cli.live import Running
from tfimg.cli.results import WIDTH, line
from tfimg.cli.steps import dull, short
from tfimg.core.text import to_strict_json
from tfimg.engine.protocol import BuildEvent, LogEvent, StageEvent
from tfimg.validation.report import CheckResult


def follow(context: Context, what: str = "build") -> AbstractContextManager[Progress]:
    """The progress that fits where we are; `what` is done begins each line that is no check's."""
    if context.arguments.json:
        return _plainly(Events(context.emit))
    console = make_console(stderr=True)
    return _live(console) if console.is_terminal else _plainly(_Lines(what))


@contextmanager
def _plainly(progress: Progress) -> Iterator[Progress]:
    yield progress


@contextmanager
def _live(console: Console) -> Iterator[Progress]:
    progress = Running(console.print)
    with live(Live(progress, console=console, refresh_per_second=8, transient=True)):
        yield progress


class Events:
    """Every event as a JSON object."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit = emit

    # The methods of `tfimg.build.pipeline.Progress`.

    def build(self, event: BuildEvent) -> None:  # noqa: D102
        kind = {StageEvent: "step", LogEvent: "log"}.get(type(event), "progress")
        self._emit({"event": kind, **asdict(event)})

    def planned(self, checks: Sequence[str]) -> None:  # noqa: D102
        pass  # each of them is told when it starts

    def check_started(self, check: str) -> None:  # noqa: D102
        self._emit({"event": "check-started", "check": check})

    def check_ended(self, result: CheckResult) -> None:  # noqa: D102
        self._emit({"event": "check", **to_strict_json(asdict(result))})


class _Lines:
    """One line when something ends: what a log file wants."""

    def __init__(self, what: str) -> None:
        self._what = what

    def build(self, event: BuildEvent) -> None:
        if isinstance(event, StageEvent) and event.state != "started" and not dull(event):
            seconds = f"{event.seconds:6.1f} s" if event.seconds is not None else " " * 8
            print(
                f"{self._what:5}  {seconds}  {event.state:{WIDTH}}  {short(event.step)}",
                file=sys.stderr,
                flush=True,
            )

    def planned(self, checks: Sequence[str]) -> None:
        pass

    def check_started(self, check: str) -> None:
        pass

    def check_ended(self, result: CheckResult) -> None:
        print(line(result), file=sys.stderr, flush=True)
