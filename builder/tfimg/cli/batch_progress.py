"""A run over many images while it lasts: a table on a terminal, lines elsewhere, events under --json."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live

from tfimg.build.pipeline import Progress
from tfimg.build.results import Result
from tfimg.build.schedule import Listener
from tfimg.cli.batch_table import WIDTH, Table, verdict
from tfimg.cli.console import live, make_console
from tfimg.cli.context import Context
from tfimg.cli.progress import Events
from tfimg.core.text import to_plain_text, to_strict_json
from tfimg.engine.protocol import BuildEvent, Resources
from tfimg.validation.report import CheckResult


def follow_all(context: Context, waiting: Sequence[str]) -> AbstractContextManager[Listener]:
    """The listener that fits where we are, for the images that are to be made."""
    if context.arguments.json:
        return _plainly(AsEvents(context.emit))
    console = make_console(stderr=True)
    return _live(console, waiting) if console.is_terminal else _plainly(AsLines(total=len(waiting)))


@contextmanager
def _plainly(listener: Listener) -> Iterator[Listener]:
    yield listener


@contextmanager
def _live(console: Console, waiting: Sequence[str]) -> Iterator[Listener]:
    table = Table(console.print, waiting, height=lambda: console.height)
    with live(Live(table, console=console, refresh_per_second=4, transient=True)):
        yield table


class AsEvents:
    """Every event as a JSON line, with the image that it is about."""

    def __init__(self, emit: Callable[[object], None]) -> None:
        self._emit = emit
        self._lock = threading.Lock()

    def _tell(self, identifier: str | None, document: dict[str, Any]) -> None:
        with self._lock:
            self._emit({"event": document["event"], "identifier": identifier, **to_strict_json(document)})

    # The methods of `tfimg.build.schedule.Listener`.

    def item(self, identifier: str) -> Progress:  # noqa: D102
        return Events(lambda document: self._tell(identifier, document))

    def started(self, identifier: str, engine: str) -> None:  # noqa: D102
        self._tell(identifier, {"event": "started", "engine": engine})

    def requeued(self, identifier: str, reason: str) -> None:  # noqa: D102
        self._tell(identifier, {"event": "requeued", "reason": reason})

    def pruned(self, engine: str) -> None:  # noqa: D102
        self._tell(None, {"event": "pruned", "engine": engine})

    def room(self, engine: str, left: Resources) -> None:  # noqa: D102
        pass  # asked every few seconds; nobody wants it in a log

    def ended(self, result: Result) -> None:  # noqa: D102
        self._tell(result.identifier, {"event": "result", **result.to_json()})


class AsLines:
    """A line when an image's turn begins and one when it ends: what a log file wants."""

    def __init__(self, total: int) -> None:
        self._total, self._ended = total, 0
        self._lock = threading.Lock()

    def _tell(self, text: str) -> None:
        print(" ".join(to_plain_text(text).splitlines()), file=sys.stderr, flush=True)

    # The methods of `tfimg.build.schedule.Listener`.

    def item(self, identifier: str) -> Progress:  # noqa: ARG002, D102
        return Silent()

    def started(self, identifier: str, engine: str) -> None:  # noqa: ARG002, D102
        self._tell(f"{'':8}  {'started':{WIDTH}}  {identifier}")

    def requeued(self, identifier: str, reason: str) -> None:  # noqa: D102
        self._tell(f"{'':8}  {'requeued':{WIDTH}}  {identifier}  {reason}")

    def pruned(self, engine: str) -> None:  # noqa: D102
        self._tell(f"{'':8}  {'pruned':{WIDTH}}  {engine}")

    def room(self, engine: str, left: Resources) -> None:  # noqa: D102
        pass

    def ended(self, result: Result) -> None:  # noqa: D102
        self._tell(f"{result.seconds:6.1f} s  {result.status:{WIDTH}}  {result.identifier}  {verdict(result)}")


class Silent:
    """Listens to an image's build and checks, and says nothing."""

    # The methods of `tfimg.build.pipeline.Progress`.

    def build(self, event: BuildEvent) -> None:  # noqa: D102
        pass

    def planned(self, checks: Sequence[str]) -> None:  # noqa: D102
        pass

    def check_started(self, check: str) -> None:  # noqa: D102
        pass

    def check_ended(self, result: CheckResult) -> None:  # noqa: D102
        pass
