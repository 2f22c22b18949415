"""Journals of runs in one folder: several runs at once, and what a killed run left behind is known to the next.

The name of a run is the stem of its journal's file.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tfimg.core.files import AlreadyLocked, try_lock
from tfimg.core.journal import Journal, Record, open_journal_file, parse_lines

SUFFIX = ".jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFinished(Record):
    """Nothing of the run needs to be continued or removed."""

    event = "finished"


@contextmanager
def open_run(
    folder: Path, now: Callable[[], datetime], *, new: bool = False
) -> Iterator[tuple[Journal, Sequence[Journal]]]:
    """Open the journal of a run, and those of killed runs in the folder. It continues one of those, unless `new`.

    The process that holds the lock of a journal owns it; the kernel releases locks when a process ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        killed = [run for file in sorted(folder.glob(f"*{SUFFIX}")) if (run := _take_over(file, now, stack))]
        if killed and not new:
            yield killed[0], killed[1:]
            return
        file = folder / f"{secrets.token_hex(4)}{SUFFIX}"
        stack.enter_context(try_lock(file.with_suffix(".lock")))
        yield stack.enter_context(open_journal_file(file, now)), killed


def _take_over(file: Path, now: Callable[[], datetime], stack: ExitStack) -> Journal | None:
    """Return the journal of a run if it was killed, None if it is active; remove that of a finished one."""
    try:
        stack.enter_context(try_lock(file.with_suffix(".lock")))
    except AlreadyLocked:
        return None
    if not file.exists() or any(record.get("event") == RunFinished.event for record in parse_lines(file.read_bytes())):
        file.unlink(missing_ok=True)
        file.with_suffix(".lock").unlink(missing_ok=True)
        return None
    return stack.enter_context(open_journal_file(file, now))
