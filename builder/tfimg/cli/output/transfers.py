"""Progress of a transfer or a count: a bar on a terminal, lines elsewhere, for a transfer JSON lines for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from tfimg.cli.console import live, make_console
from tfimg.cli.context import Context
from tfimg.core.events import ProgressEvent

SECONDS = 1.0
"""Time between two JSON events: an engine reports every layer several times a second."""


class TransferTotal:
    """Add up the bytes of all layers, which grow while more layers become known."""

    def __init__(self) -> None:
        self._layers: dict[str, tuple[int, int]] = {}

    def add(self, event: ProgressEvent) -> tuple[int, int]:
        """Return the bytes that are done and the bytes in total."""
        self._layers[event.what] = (event.current, max(event.total, event.current))
        return sum(done for done, _ in self._layers.values()), sum(total for _, total in self._layers.values())


@contextmanager
def render_transfer(context: Context, title: str) -> Iterator[Callable[[ProgressEvent], None]]:
    """Return the renderer of a transfer's events."""
    console, total_bytes = make_console(stderr=True), TransferTotal()
    if context.command.json or context.command.quiet or not console.is_terminal:
        yield _line_renderer(context, title, total_bytes)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with live(Progress(*columns, console=console, transient=True)) as progress:
        task = progress.add_task(title, total=None)

        def on_event(event: ProgressEvent) -> None:
            done, total = total_bytes.add(event)
            progress.update(task, completed=done, total=total or None)

        yield on_event


def _line_renderer(context: Context, title: str, total_bytes: TransferTotal) -> Callable[[ProgressEvent], None]:
    """Print a JSON event every second, or a line for every tenth."""
    last_event, last_tenth = -SECONDS, -1

    def on_event(event: ProgressEvent) -> None:
        nonlocal last_event, last_tenth
        done, total = total_bytes.add(event)
        if context.command.json:
            if time.monotonic() - last_event >= SECONDS:
                last_event = time.monotonic()
                context.emit({"event": "progress", "step": title, "current": done, "total": total})
        elif total and done * 10 // total > last_tenth:
            last_tenth = done * 10 // total
            context.say(f"{title}: {done / 1e6:.0f} of {total / 1e6:.0f} MB")

    return on_event


@contextmanager
def render_count(context: Context, what: str) -> Iterator[Callable[[int, int], None]]:
    """Return the renderer of a number of things, such as `wheels read`, out of all."""
    console = make_console(stderr=True)
    if context.command.json or context.command.quiet or not console.is_terminal:

        def on_progress(number: int, total: int) -> None:
            if number * 10 // total != (number - 1) * 10 // total:  # a line for every tenth
                context.say(f"{number} of {total} {what}")

        yield on_progress
        return
    with live(Progress(console=console, transient=True)) as progress:
        task = progress.add_task(what, total=None)
        yield lambda number, total: progress.update(task, completed=number, total=total)
