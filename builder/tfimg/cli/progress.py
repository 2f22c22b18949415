"""A build and a validation while they run: live on a terminal, lines elsewhere, events under --json."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table

from tfimg.cli.context import Context
from tfimg.cli.show import coloured
from tfimg.engine.protocol import BuildEvent, LogEvent, StageEvent
from tfimg.validation.report import CheckResult


class Progress(Protocol):
    """Who is told what happens."""

    def build(self, event: BuildEvent) -> None:
        """Something happened in the build."""

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
    progress = _Live()
    with Live(progress, console=console, refresh_per_second=8, transient=True) as live:
        progress.keep = live.console.print
        yield progress


def short(step: str) -> str:
    """A build step in a few words: `tensorflow`, `packages: copy`, `exporting to image`."""
    if match := re.match(r"\[(\S+)(?: \d+/\d+)?\] (\w+)", step):
        stage, verb = match[1], match[2]
        if verb == "COPY" and (source := re.search(r"--from=(\S+)", step)):
            return f"{source[1]}: copy into the image"
        if stage == "internal":
            return step.partition("] ")[2].partition(" for ")[0]
        return {
            "RUN": stage,
            "FROM": f"{stage}: pull",
            "WORKDIR": "image: settings",
            "ADD": f"{stage}: unpack",
        }.get(verb, f"{stage}: {verb.lower()}")
    return step


def dull(event: StageEvent) -> bool:
    """Whether a step that has ended is BuildKit's own housekeeping, in which nobody waited."""
    housekeeping = event.step.startswith("[internal]") or short(event.step).endswith(
        (": link", ": pull", ": settings")
    )
    return event.state != "failed" and (event.seconds or 0) < 0.1 and housekeeping


class _Events:
    """Every event as a JSON line."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def build(self, event: BuildEvent) -> None:
        kind = {StageEvent: "step", LogEvent: "log"}.get(type(event), "progress")
        self._context.emit({"event": kind, **asdict(event)})

    def check_started(self, check: str) -> None:
        self._context.emit({"event": "check-started", "check": check})

    def check_ended(self, result: CheckResult) -> None:
        self._context.emit({"event": "check", **asdict(result)})


class _Lines:
    """One line when something ends: what a log file wants."""

    def build(self, event: BuildEvent) -> None:
        if isinstance(event, StageEvent) and event.state != "started" and not dull(event):
            seconds = f"{event.seconds:6.1f} s" if event.seconds is not None else " " * 8
            print(f"build  {seconds}  {event.state:7}  {short(event.step)}", file=sys.stderr, flush=True)

    def check_started(self, check: str) -> None:
        pass

    def check_ended(self, result: CheckResult) -> None:
        reason = f"  {result.reason}" if result.reason else ""
        print(
            f"check  {result.seconds:6.1f} s  {result.outcome:7}  {result.check}{reason}",
            file=sys.stderr,
            flush=True,
        )


class _Live:
    """What runs now, each with a clock; what has ended scrolls away above."""

    def __init__(self) -> None:
        self.keep: object = print
        self._running: dict[str, tuple[float, str]] = {}

    def build(self, event: BuildEvent) -> None:
        name = short(event.step)
        if isinstance(event, LogEvent):
            self._say(name, event.line)
        elif isinstance(event, StageEvent) and event.state == "started":
            self._running[name] = (time.monotonic(), "")
        elif isinstance(event, StageEvent):
            self._running.pop(name, None)
            if dull(event):
                return
            colour = {"done": "green", "cached": "cyan", "failed": "red"}[event.state]
            self._end(f"[{colour}]{event.state:7}[/]", event.seconds or 0.0, name)
        elif event.total:
            self._say(name, f"{event.what} {event.current / 1e6:.0f} of {event.total / 1e6:.0f} MB")

    def check_started(self, check: str) -> None:
        self._running[check] = (time.monotonic(), "")

    def check_ended(self, result: CheckResult) -> None:
        self._running.pop(result.check, None)
        word = coloured(result.outcome) + " " * max(0, 7 - len(result.outcome))
        self._end(word, result.seconds, result.check, result.reason or "")

    def _say(self, name: str, text: str) -> None:
        if name in self._running:
            self._running[name] = (self._running[name][0], text)

    def _end(self, word: str, seconds: float, name: str, note: str = "") -> None:
        assert callable(self.keep)  # noqa: S101
        self.keep(f"{word} {seconds:6.1f} s  {escape(name)}" + (f"  [dim]{escape(note)}[/]" if note else ""))

    def __rich__(self) -> Table:
        table = Table.grid(padding=(0, 1))
        for name, (start, text) in self._running.items():
            clock = f"{time.monotonic() - start:6.1f} s"
            table.add_row(Spinner("dots"), clock, escape(name), f"[dim]{escape(text[:80])}[/]")
        return table
