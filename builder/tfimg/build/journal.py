"""What a run over many images did: what a kill leaves behind is found by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfimg.core.errors import BatchRunning
from tfimg.core.files import AlreadyLocked, try_lock
from tfimg.core.journal import Journal, Record, open_journal_file


def candidates(journal: Journal, engine: str) -> frozenset[str]:
    """Every name that an earlier run gave an image of an engine's until it was to be tagged."""
    return frozenset(
        record["candidate"] for record in journal.records if _is_start(record) and record.get("engine") == engine
    )


def unfinished(journal: Journal) -> tuple[str, ...]:
    """The images that the last run was at when it was killed; none where it came to its end."""
    open_items: dict[str, None] = {}
    for record in journal.records:
        if record.get("event") in ("run", "finished", "interrupted"):
            open_items.clear()
        elif _is_start(record):
            open_items[str(record.get("identifier"))] = None
        elif record.get("event") == "end":
            open_items.pop(str(record.get("identifier")), None)
    return tuple(open_items)


def _is_start(record: Record) -> bool:
    return record.get("event") == "start" and isinstance(record.get("candidate"), str)


@contextmanager
def open_journal(folder: Path) -> Iterator[Journal]:
    """The journal in a folder, for one run at a time. Raises `BatchRunning` while another run has it."""
    try:
        with try_lock(folder / "lock"), open_journal_file(folder / "journal.jsonl") as journal:
            yield journal
    except AlreadyLocked as held:
        raise BatchRunning(
            f"Another run over many images is at work: process {held.process} holds {folder / 'lock'}.",
            next_step="Wait for its end, or give this one a state folder of its own with TFIMG_STATE.",
        ) from None
