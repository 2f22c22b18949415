"""How far a transfer of an image is: a bar on a terminal, a line for every tenth elsewhere, events under --json."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from tfimg.cli.console import live, make_console
from tfimg.cli.context import Context
from tfimg.core.events import ProgressEvent

SECONDS = 1.0
"""Between two events for programs: an engine tells every layer several times a second."""


@dataclass(kw_only=True)
class Sum:
    """Bytes of all layers together, which grow while more layers become known."""

    layers: dict[str, tuple[int, int]] = field(default_factory=dict)

    def take(self, event: ProgressEvent) -> tuple[int, int]:
        """Bytes so far, and of how many."""
        self.layers[event.what] = (event.current, max(event.total, event.current))
        return sum(current for current, _ in self.layers.values()), sum(of for _, of in self.layers.values())


@contextmanager
def transfer(context: Context, title: str) -> Iterator[Callable[[ProgressEvent], None]]:
    """Follow one: what it yields is to be told of every event."""
    console = make_console(stderr=True)
    if context.arguments.json:
        yield _events(context, title)
    elif not console.is_terminal:
        yield _lines(context, title)
    else:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with live(Progress(*columns, console=console, transient=True)) as progress:
            task, whole = progress.add_task(title, total=None), Sum()

            def told(event: ProgressEvent) -> None:
                current, of = whole.take(event)
                progress.update(task, completed=current, total=of or None)

            yield told


def _events(
    context: Context, title: str, clock: Callable[[], float] = time.monotonic
) -> Callable[[ProgressEvent], None]:
    whole, last = Sum(), -SECONDS

    def told(event: ProgressEvent) -> None:
        nonlocal last
        current, of = whole.take(event)
        if clock() - last >= SECONDS:
            last = clock()
            context.emit({"event": "progress", "step": title, "current": current, "total": of})

    return told


def _lines(context: Context, title: str) -> Callable[[ProgressEvent], None]:
    whole, tenth = Sum(), -1

    def told(event: ProgressEvent) -> None:
        nonlocal tenth
        current, of = whole.take(event)
        if of and (now := current * 10 // of) > tenth:
            tenth = now
            context.say(f"{title}: {current / 1e6:.0f} of {of / 1e6:.0f} MB")

    return told
