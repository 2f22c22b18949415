"""The journal of builds of many images: the next run finds by it what a killed run left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tfimg.core.errors import BatchRunning
from tfimg.core.files import AlreadyLocked, try_lock
from tfimg.core.journal import Journal, Record, open_journal_file
from tfimg.core.runs import RunFinished


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStarted(Record):
    """A run begins."""

    event = "run"
    images: int = 0
    jobs: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInterrupted(Record):
    """The run was interrupted, and has cleaned up."""

    event = "interrupted"


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildStarted(Record):
    """An image will be built on an engine under a candidate's name."""

    event = "start"
    identifier: str
    candidate: str
    engine: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildEnded(Record):
    """The build of an image has ended; the candidate's name is removed.

    `digest` is that of an image that was built for its evidence alone, and may be removed.
    """

    event = "end"
    identifier: str
    status: str
    digest: str | None = None


RECORDS = (RunStarted, RunFinished, RunInterrupted, BuildStarted, BuildEnded)


def candidates(journal: Journal, engine: str) -> frozenset[str]:
    """Return every candidate's name that earlier runs used in an engine."""
    started = journal.earlier(BuildStarted)
    return frozenset(record.candidate for record in started if record.engine == engine)


def unfinished(journal: Journal) -> tuple[str, ...]:
    """Return the images that the last run was building when it was killed."""
    running: dict[str, None] = {}
    for record in journal.earlier(*RECORDS):
        match record:
            case BuildStarted():
                running[record.identifier] = None
            case BuildEnded():
                running.pop(record.identifier, None)
            case _:
                running.clear()
    return tuple(running)


@contextmanager
def open_journal(folder: Path) -> Iterator[Journal]:
    """Open the journal in a folder for one run at a time. Raises `BatchRunning` while another run uses it."""
    try:
        with try_lock(folder / "lock"), open_journal_file(folder / "journal.jsonl") as journal:
            yield journal
    except AlreadyLocked as held:
        raise BatchRunning(
            f"Another build of many images is running: process {held} has locked {folder / 'lock'}.",
            next_step="Wait until it ends, or set TFIMG_STATE to another state folder.",
        ) from None
