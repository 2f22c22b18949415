"""Runs that publish, each with a journal of its own: several at once, and one that was killed goes on."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

from tfimg.core.files import AlreadyLocked, try_lock
from tfimg.core.journal import Journal, open_journal_file, parse_records

ENDING = ".jsonl"


def folder_of(state: Path, repository: str) -> Path:
    """Where a repository's journals and locks are."""
    return state / "publish" / quote(repository, safe="")


@contextmanager
def opened_run(folder: Path, *, new: bool = False) -> Iterator[tuple[str, Journal, Sequence[Journal]]]:
    """A run's name and journal, and the journals of runs that were killed. It goes on as one of those, unless `new`.

    A journal belongs to whoever holds its lock, which the kernel lets go of with the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        killed = [journal for file in sorted(folder.glob(f"*{ENDING}")) if (journal := _taken(file, stack))]
        if killed and not new:
            first, *others = killed
        else:
            file = folder / f"{secrets.token_hex(4)}{ENDING}"
            stack.enter_context(try_lock(file.with_suffix(".lock")))
            first, others = stack.enter_context(open_journal_file(file)), killed
            first.note("run")
        yield first.path.stem, first, others


def is_finished(journal: Journal) -> bool:
    """Whether a run came to its end."""
    return any(record.get("event") == "finished" for record in journal.read_records())


def _taken(file: Path, stack: ExitStack) -> Journal | None:
    """The journal of a run that was killed; None for one that is at work. What came to its end is removed."""
    try:
        stack.enter_context(try_lock(file.with_suffix(".lock")))
    except AlreadyLocked:
        return None
    if not file.exists() or any(record.get("event") == "finished" for record in parse_records(file.read_bytes())):
        file.unlink(missing_ok=True)
        file.with_suffix(".lock").unlink(missing_ok=True)
        return None
    return stack.enter_context(open_journal_file(file))
