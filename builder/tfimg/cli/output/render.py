"""Choose the renderer of a command's events: live on a terminal, lines of text elsewhere, JSON lines for programs."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.live import Live

from tfimg.build import results
from tfimg.cli.output.batch_table import STATUS_WIDTH, LiveBatch
from tfimg.cli.output.console import live, make_console
from tfimg.cli.output.live import LiveImage
from tfimg.core.events import ChecksPlanned, Event, Message, Note, OnEvent, StepEvent, ignore
from tfimg.core.text import to_plain_text
from tfimg.engine.docker.steps import is_housekeeping, short_step
from tfimg.validation.report import CheckResult
from tfimg.validation.report_text import OUTCOME_WIDTH, check_line

FOR_PEOPLE = (Message, ChecksPlanned, results.ImagesQueued)
"""Events that are not printed as JSON: other events repeat them."""


@contextmanager
def render_events(*, as_json: bool, quiet: bool = False, title: str = "build", many: bool = False) -> Iterator[OnEvent]:
    """Return the renderer for this terminal, file or program; `title` begins each line about a step.

    `many`: the events are those of many images.
    """
    console = make_console(stderr=True)
    if as_json:
        yield JsonLines()
    elif quiet:
        yield ignore
    elif not console.is_terminal:

        def print_line(event: Event) -> None:
            if (line := text_line(event, title)) is not None:
                print(line, file=sys.stderr, flush=True)

        yield print_line
    else:
        display = LiveBatch(console.print, height=lambda: console.height) if many else LiveImage(console.print)

        def on_event(event: Event) -> None:
            if isinstance(event, Message | Note):
                print(event.text, file=sys.stderr, flush=True)
            else:
                display(event)

        with live(Live(display, console=console, refresh_per_second=4 if many else 8, transient=True)):
            yield on_event


class JsonLines:
    """Print every event as a JSON object on standard output."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Print an event."""
        if not isinstance(event, FOR_PEOPLE):
            with self._lock:
                print(json.dumps(event.to_json()), flush=True)


def text_line(event: Event, title: str) -> str | None:
    """Return the line of an event in a log file; None for an event that is neither a message nor an end."""
    match event:
        case Message(text=text) | Note(text=text):
            return text
        case StepEvent() if event.state != "started" and not is_housekeeping(event):
            seconds = f"{event.seconds:6.1f} s" if event.seconds is not None else " " * 8
            return f"{title:5}  {seconds}  {event.state:{OUTCOME_WIDTH}}  {short_step(event.step)}"
        case CheckResult():
            return check_line(event)
        case results.ImageStarted(identifier=identifier):
            return f"{'':8}  {'started':{STATUS_WIDTH}}  {identifier}"
        case results.ImageRequeued(identifier=identifier, reason=reason):
            return _one_line(f"{'':8}  {'requeued':{STATUS_WIDTH}}  {identifier}  {reason}")
        case results.ImageResult():
            words = f"{event.status:{STATUS_WIDTH}}  {event.identifier}  {event.description}"
            return _one_line(f"{event.seconds:6.1f} s  {words}")
    return None


def _one_line(text: str) -> str:
    return " ".join(to_plain_text(text).splitlines())
