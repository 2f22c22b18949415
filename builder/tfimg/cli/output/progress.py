"""Progress and transfers: events as JSON or lines, on a terminal as a display.

Functions import rich and pydantic, which a command that has nothing to do does without.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Self, get_args

from tfimg.build import results
from tfimg.cli.output.summary import GroupEnded, Summary
from tfimg.core import events
from tfimg.core.text import to_plain_text
from tfimg.engine.buildx import short_step

if TYPE_CHECKING:
    from tfimg.cli.context import Context
    from tfimg.cli.output.display import Display

FOR_PEOPLE = (events.InfoEvent, events.ChecksPlanned, results.ImagesQueued)
"""Events that are not printed as JSON: other events repeat them."""

STATUS_WIDTH = max(map(len, get_args(results.Status)))
"""Characters of the longest state of an image."""


@contextmanager
def render_events(context: Context, *, title: str = "build", verbose: bool = False) -> Iterator[events.OnEvent]:
    """Return the renderer for this terminal, file or program; `title` begins each line about a step.

    `verbose`: each step, each check and causes are shown, rather than stages and groups of checks.
    """
    if context.json:
        yield JsonLines()
    elif context.quiet:
        yield events.ignore
    elif display := _make_display(verbose=verbose):
        from tfimg.cli.output.console import live

        with live(display.progress):
            yield display
    else:
        summary = Summary(verbose=verbose)

        def print_line(event: events.Event) -> None:
            for line in (text_line(shown, title) for shown in summary.choose(event)):
                if line is not None:
                    print(line, file=sys.stderr, flush=True)

        yield print_line


TERMINAL_VARIABLES = {"FORCE_COLOR", "TTY_COMPATIBLE"}
"""Variables that make a terminal of a file for rich."""


def _make_display(*, verbose: bool = False) -> Display | None:
    """Return the display of standard error; None if that is no terminal."""
    if not (sys.stderr.isatty() or TERMINAL_VARIABLES & os.environ.keys()):
        return None
    from tfimg.cli.output.console import make_console
    from tfimg.cli.output.display import Display

    console = make_console(stderr=True)
    return Display(console, verbose=verbose) if console.is_terminal else None


class JsonLines:
    """Print every event as a JSON object on standard output."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, event: events.Event) -> None:
        """Print an event."""
        if not isinstance(event, FOR_PEOPLE):
            with self._lock:
                print(json.dumps(event.to_json()), flush=True)


def text_line(event: events.Event, title: str) -> str | None:
    """Return the line of an event that `Summary` chose in a log file; None for one that has no words."""
    match event:
        case events.InfoEvent(text=text) | events.WarningEvent(text=text):
            return text
        case events.LogEvent(line=line):
            return f"{title:5}  | {to_plain_text(line)}"
        case events.StepEvent():
            from tfimg.validation.report import OUTCOME_WIDTH

            seconds = f"{event.seconds:6.1f} s" if event.seconds is not None else " " * 8
            return f"{title:5}  {seconds}  {event.state:{OUTCOME_WIDTH}}  {short_step(event.step)}"
        case results.ImageStarted(identifier=identifier):
            return f"{'':8}  {'started':{STATUS_WIDTH}}  {identifier}"
        case results.ImageRequeued(identifier=identifier, reason=reason):
            return _one_line(f"{'':8}  {'requeued':{STATUS_WIDTH}}  {identifier}  {reason}")
        case results.ImageResult():
            words = f"{event.status:{STATUS_WIDTH}}  {event.identifier}  {event.description}"
            return _one_line(f"{event.seconds:6.1f} s  {words}")
        case events.Event(kind="check"):
            from tfimg.validation.report import CheckResult, check_line

            return check_line(event) if isinstance(event, CheckResult) else None
        case GroupEnded():
            from tfimg.validation.report import OUTCOME_WIDTH

            words = f"{event.outcome:{OUTCOME_WIDTH}}  {to_plain_text(event.group)}: {event.counts}"
            return f"check  {event.seconds:6.1f} s  {words}"
    return None


def _one_line(text: str) -> str:
    return " ".join(to_plain_text(text).splitlines())


SECONDS = 1.0
"""Time between two JSON events: an engine reports every layer several times a second."""

OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is."""


@contextmanager
def render_transfer(context: Context, title: str) -> Iterator[Callable[[events.ProgressEvent], None]]:
    """Return the renderer of a transfer: a bar on a terminal, a line for each tenth elsewhere, JSON every second."""
    from tfimg.cli.output.display import Transfer, format_amount

    transfer, last_event, last_tenth = Transfer(), -SECONDS, -1

    def print_progress(done: int, total: int) -> None:
        nonlocal last_event, last_tenth
        if context.json:
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
        yield lambda done, total: on_event(events.ProgressEvent(step=title, what=title, current=done, total=total))


def render_count(context: Context, what: str) -> AbstractContextManager[OnProgress]:
    """Return the renderer of a number of things, such as `wheels read`, out of all."""

    from tfimg.cli.output.display import format_number

    def print_progress(number: int, total: int) -> None:
        if number * 10 // total != (number - 1) * 10 // total:  # a line for every tenth
            context.say(f"{format_number(number, total)} {what}")

    return _show_amount(context, what, "number", print_progress)


QUIET_SECONDS = 1.0
"""Time from which a terminal shows what a command does before its answer."""


class Activity:
    """What a command does before its answer: on a terminal, from a second on, a line that vanishes at the end.

    A log has the title if `is_logged`.
    """

    def __init__(self, context: Context, title: str, *, is_logged: bool = False) -> None:
        self._line: LateLine | None = None
        if sys.stderr.isatty() and not context.json and not context.quiet:
            self._line = LateLine(title)
        elif is_logged:
            context.say(title)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def say(self, text: str) -> None:
        """Say what it does now."""
        if self._line:
            self._line.say(text)

    def end(self) -> None:
        """Remove the line; nothing is shown from then on."""
        if self._line:
            self._line.end()


class LateLine:
    """A line on the terminal, from some seconds on until it ends: in the display that is shown, or by itself."""

    def __init__(self, title: str, seconds: float | None = None) -> None:
        self._title, self._text, self._lock = title, "", threading.Lock()
        self._display: Display | None = None
        self._has_ended = False
        self._live = ExitStack()
        self._timer = threading.Timer(QUIET_SECONDS if seconds is None else seconds, self._show)
        self._timer.daemon = True
        self._timer.start()

    def say(self, text: str) -> None:
        """Show a text behind the title."""
        with self._lock:
            self._text = text
            if self._display:
                self._display(events.LogEvent(step=self._title, line=text))

    def end(self) -> None:
        """Remove the line; nothing is shown from then on."""
        self._timer.cancel()
        with self._lock:
            self._has_ended, self._display = True, None
            self._live.close()

    def _show(self) -> None:
        with self._lock:
            if self._has_ended or (display := _make_display()) is None:
                return
            from tfimg.cli.output.console import live, shown_progress

            if progress := shown_progress():
                task = progress.add_task(self._title, total=None, text=self._text, unit=None)
                self._live.callback(progress.remove_task, task)
                return
            display(events.StepEvent(step=self._title, state="started"))
            display(events.LogEvent(step=self._title, line=self._text))
            self._live.enter_context(live(display.progress))
            self._display = display


@contextmanager
def _show_amount(context: Context, title: str, unit: str, print_progress: OnProgress) -> Iterator[OnProgress]:
    """Return a function that moves a bar on a terminal, and `print_progress` elsewhere."""
    display = None if context.json or context.quiet else _make_display()
    if display is None:
        yield print_progress
        return
    from tfimg.cli.output.console import live

    display(events.StepEvent(step=title, state="started"))
    with live(display.progress):
        yield lambda done, total: display.show_amount(title, done, total, unit)
