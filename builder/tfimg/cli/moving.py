"""Bytes on their way: a bar on a terminal, a line now and then elsewhere, events under --json."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tfimg.cli.context import Context

SECONDS = 10.0
"""Between two lines of a log."""

EVENT_SECONDS = 1.0
"""Between two events."""

Told = Callable[[int, int], object]
"""Is told how many bytes are done, and of how many; 0 where that is not known."""


@contextmanager
def moving(context: Context, doing: str) -> Iterator[Told]:
    """Show how far something is, for as long as the block lasts. `doing` is what is done, in words."""
    if context.arguments.json:
        yield _now_and_then(EVENT_SECONDS, lambda done, total: context.emit(_event(doing, done, total)))
    elif not sys.stderr.isatty():
        yield _now_and_then(SECONDS, lambda done, total: context.say(f"{doing}: {_amount(done, total)}"))
    else:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(doing, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total or None)


def _event(doing: str, done: int, total: int) -> dict[str, object]:
    return {"event": "progress", "step": doing, "current": done, "total": total}


def _amount(done: int, total: int) -> str:
    return f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB" if total else f"{done / 1e6:,.0f} MB"


def _now_and_then(seconds: float, tell: Told) -> Told:
    last = time.monotonic()

    def told(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            tell(done, total)

    return told
