"""What a run over many images did, line by line: what a kill leaves behind is found by it."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tfimg.errors import BatchRunning

Record = Mapping[str, Any]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(kw_only=True, slots=True)
class Journal:
    """A file of JSON objects, one a line, each on the disk before anything that it announces happens.

    `records` are those of earlier runs.
    """

    path: Path
    records: Sequence[Record]
    descriptor: int
    now: Callable[[], datetime] = _now
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, event: str, **fields: object) -> None:
        """Append a record. Returns when it is on the disk."""
        record = {"time": self.now().isoformat(timespec="milliseconds"), "event": event, **fields}
        line = f"{json.dumps(record)}\n".encode()
        with self._lock:
            os.write(self.descriptor, line)
            os.fsync(self.descriptor)

    def candidates(self, engine: str) -> frozenset[str]:
        """Every name that an earlier run gave an image of an engine's until it was to be tagged."""
        return frozenset(
            record["candidate"]
            for record in self.records
            if _is_start(record) and record.get("engine") == engine
        )

    def unfinished(self) -> tuple[str, ...]:
        """The images that the last run was at when it was killed; none where it came to its end."""
        open_items: dict[str, None] = {}
        for record in self.records:
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
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "lock"):
        path = folder / "journal.jsonl"
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            text = path.read_bytes()
            if text and not text.endswith(b"\n"):  # a kill tore the last line
                os.write(descriptor, b"\n")
            yield Journal(path=path, records=read(text), descriptor=descriptor)
        finally:
            os.close(descriptor)


def read(text: bytes) -> tuple[Record, ...]:
    """A journal's records. A line that is none was torn, and told nothing that had happened yet."""
    return tuple(record for line in text.split(b"\n") if (record := _record(line)) is not None)


def _record(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    # The kernel lets go of it with the process, however that ends; programs that we start do not inherit it.
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise BatchRunning(
                f"Another run over many images is at work: process {file.read().strip() or 'unknown'} holds {path}.",
                next_step="Wait for its end, or give this one a state folder of its own with TFIMG_STATE.",
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
