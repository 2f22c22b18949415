"""What a run does, line by line, on the disk before it happens: what a kill leaves behind is found by it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

JournalLine = Mapping[str, Any]
"""A record as it stands in the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Something that will happen, or has happened. `event` is its name in the file."""

    event: ClassVar[str]


RecordType = TypeVar("RecordType", bound=Record)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(kw_only=True, slots=True)
class Journal:
    """A file of JSON objects, one a line, each on the disk before anything that it announces happens.

    `records` are those of earlier runs.
    """

    path: Path
    records: Sequence[JournalLine]
    descriptor: int
    now: Callable[[], datetime] = _now
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read_records(self) -> Sequence[JournalLine]:
        """The records of earlier runs and of this one."""
        return parse_records(self.path.read_bytes())

    def earlier(self, *types: type[RecordType]) -> tuple[RecordType, ...]:
        """Return the records of these types that earlier runs wrote, in order; ignore those that lack a field."""
        return _select(self.records, types)

    def read(self, *types: type[RecordType]) -> tuple[RecordType, ...]:
        """Return the records of these types that earlier runs and this one wrote, in order."""
        return _select(self.read_records(), types)

    def write(self, record: Record) -> None:
        """Append a record, as `note` does."""
        self.note(record.event, **asdict(record))

    def note(self, event: str, **fields: object) -> None:
        """Append a record. Returns when it is on the disk; else raises `OSError`, and leaves none of it there."""
        record = {"time": self.now().isoformat(timespec="milliseconds"), "event": event, **fields}
        line = f"{json.dumps(record)}\n".encode()
        with self._lock:
            there = os.fstat(self.descriptor).st_size
            try:
                while line:  # a disk that becomes full takes a part, and says so at the next one alone
                    line = line[os.write(self.descriptor, line) :]
            except OSError:
                os.ftruncate(self.descriptor, there)
                raise
            os.fsync(self.descriptor)


@contextmanager
def open_journal_file(path: Path) -> Iterator[Journal]:
    """The journal in a file, which is made where it is not. For one run at a time; see `tfimg.core.files`."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        text = path.read_bytes()
        if text and not text.endswith(b"\n"):  # a kill tore the last line
            os.write(descriptor, b"\n")
        yield Journal(path=path, records=parse_records(text), descriptor=descriptor)
    finally:
        os.close(descriptor)


def parse_records(text: bytes) -> tuple[JournalLine, ...]:
    """A journal's records. A line that is none was torn, and told nothing that had happened yet."""
    return tuple(record for line in text.split(b"\n") if (record := _record(line)) is not None)


def _select(lines: Sequence[JournalLine], types: Sequence[type[RecordType]]) -> tuple[RecordType, ...]:
    kinds = {kind.event: kind for kind in types}
    found = []
    for line in lines:
        kind = kinds.get(str(line.get("event")))
        with suppress(TypeError):
            if kind:
                found.append(kind(**{one.name: line[one.name] for one in fields(kind) if one.name in line}))
    return tuple(found)


def _record(line: bytes) -> JournalLine | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
