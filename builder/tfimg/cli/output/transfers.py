"""Progress of a transfer or a count: a bar on a terminal, lines elsewhere, for a transfer JSON lines for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, TextColumn, TransferSpeedColumn

from tfimg.cli.context import Context
from tfimg.cli.output.console import live, make_console
from tfimg.core.events import ProgressEvent

SECONDS = 1.0
"""Time between two JSON events: an engine reports every layer several times a second."""

Show = Callable[[int, int], None]
"""Shows how much is done, and how much there is."""


@contextmanager
def render_transfer(context: Context, title: str) -> Iterator[Callable[[ProgressEvent], None]]:
    """Return the renderer of a transfer's events: of all layers, which become known one after the other."""
    layers: dict[str, tuple[int, int]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with _choose(context, title, _lines(context, title), *columns) as show:

        def on_event(event: ProgressEvent) -> None:
            layers[event.what] = (event.current, max(event.total, event.current))
            show(sum(done for done, _ in layers.values()), sum(total for _, total in layers.values()))

        yield on_event


def _lines(context: Context, title: str) -> Show:
    """Return a function that prints a JSON event every second, or a line for every tenth."""
    last_event, last_tenth = -SECONDS, -1

    def show(done: int, total: int) -> None:
        nonlocal last_event, last_tenth
        if context.command.json:
            if time.monotonic() - last_event >= SECONDS:
                last_event = time.monotonic()
                context.emit({"event": "progress", "step": title, "current": done, "total": total})
        elif total and done * 10 // total > last_tenth:
            last_tenth = done * 10 // total
            context.say(f"{title}: {done / 1e6:.0f} of {total / 1e6:.0f} MB")

    return show


@contextmanager
def render_file(context: Context, title: str) -> Iterator[Show]:
    """Return the renderer of the bytes of one file that are done, and of all its bytes."""
    with render_transfer(context, title) as on_event:
        yield lambda done, total: on_event(ProgressEvent(step=title, what=title, current=done, total=total))


def render_count(context: Context, what: str) -> AbstractContextManager[Show]:
    """Return the renderer of a number of things, such as `wheels read`, out of all."""

    def show(number: int, total: int) -> None:
        if number * 10 // total != (number - 1) * 10 // total:  # a line for every tenth
            context.say(f"{number} of {total} {what}")

    return _choose(context, what, show)


@contextmanager
def _choose(context: Context, title: str, show: Show, *columns: ProgressColumn) -> Iterator[Show]:
    """Return a function that moves a bar on a terminal, `show` elsewhere."""
    console = make_console(stderr=True)
    if context.command.json or context.command.quiet or not console.is_terminal:
        yield show
        return
    with live(Progress(*columns, console=console, transient=True)) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
