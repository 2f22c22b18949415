"""Journals of publishing runs: several runs at once, and a killed run can be continued."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from tfimg.core.files import AlreadyLocked, try_lock
from tfimg.core.journal import Journal, Record, open_journal_file, parse_lines

SUFFIX = ".jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStarted(Record):
    """A stage of an image is about to begin; `digest` is the image's in the engine before a push, else the registry's.

    `candidate` is the tag of the push, and ends the name under which the engine validates the image.
    """

    event = "stage"

    stage: Literal["push", "validate", "attach"]
    identifier: str
    candidate: str
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFinished(Record):
    """Nothing of the run needs to be continued or removed."""

    event = "finished"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run and its journal. `name` appears in candidate tags and promotions."""

    name: str
    journal: Journal


@contextmanager
def open_run(folder: Path, now: Callable[[], datetime], *, new: bool = False) -> Iterator[tuple[Run, Sequence[Run]]]:
    """Open a run, and the other runs of the folder that were killed. It continues one of those, unless `new`.

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
        yield _open(file, now, stack), killed


def _take_over(file: Path, now: Callable[[], datetime], stack: ExitStack) -> Run | None:
    """Return the run of a journal if it was killed, None if it is active. Remove the journal of a finished one."""
    try:
        stack.enter_context(try_lock(file.with_suffix(".lock")))
    except AlreadyLocked:
        return None
    if not file.exists() or any(record.get("event") == RunFinished.event for record in parse_lines(file.read_bytes())):
        file.unlink(missing_ok=True)
        file.with_suffix(".lock").unlink(missing_ok=True)
        return None
    return _open(file, now, stack)


def _open(file: Path, now: Callable[[], datetime], stack: ExitStack) -> Run:
    journal = stack.enter_context(open_journal_file(file))
    journal.now = now
    return Run(name=file.stem, journal=journal)
