"""Progress of a transfer or a count: a bar on a terminal, lines elsewhere, for a transfer JSON lines for programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tfimg.cli.context import Context
from tfimg.cli.output.console import live, make_console
from tfimg.cli.output.progress import Display, Transfer, format_amount, format_number
from tfimg.core.events import ProgressEvent, StepEvent

SECONDS = 1.0
"""Time between two JSON events: an engine reports every layer several times a second."""

OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is."""


@contextmanager
def render_transfer(context: Context, title: str) -> Iterator[Callable[[ProgressEvent], None]]:
    """Return the renderer of a transfer: a bar on a terminal, a line for each tenth elsewhere, JSON every second."""
    transfer, last_event, last_tenth = Transfer(), -SECONDS, -1

    def print_progress(done: int, total: int) -> None:
        nonlocal last_event, last_tenth
        if context.command.json:
            if time.monotonic() - last_event >= SECONDS:
                last_event = time.monotonic()
                context.emit({"event": "progress", "step": title, "current": done, "total": total})
        elif total and done * 10 // total > last_tenth:
            last_tenth = done * 10 // total
            context.say(f"{title}: {format_amount(done, total)}")

    with _show_amount(context, title, "MB", print_progress) as show:
        yield lambda event: show(*transfer.add(event))


@contextmanager
def render_file(context: Context, title: str) -> Iterator[OnProgress]:
    """Return the renderer of the bytes of one file that are done, and of all its bytes."""
    with render_transfer(context, title) as on_event:
        yield lambda done, total: on_event(ProgressEvent(step=title, what=title, current=done, total=total))


def render_count(context: Context, what: str) -> AbstractContextManager[OnProgress]:
    """Return the renderer of a number of things, such as `wheels read`, out of all."""

    def print_progress(number: int, total: int) -> None:
        if number * 10 // total != (number - 1) * 10 // total:  # a line for every tenth
            context.say(f"{format_number(number, total)} {what}")

    return _show_amount(context, what, "number", print_progress)


@contextmanager
def _show_amount(context: Context, title: str, unit: str, print_progress: OnProgress) -> Iterator[OnProgress]:
    """Return a function that moves a bar on a terminal, and `print_progress` elsewhere."""
    console = make_console(stderr=True)
    if context.command.json or context.command.quiet or not console.is_terminal:
        yield print_progress
        return
    display = Display(console)
    display(StepEvent(step=title, state="started"))
    with live(display.progress):
        yield lambda done, total: display.show_amount(title, done, total, unit)
