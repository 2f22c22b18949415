"""Journals: records that are on the disk before what they announce happens, so that the next run can clean up."""

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
"""A record as a JSON object."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Something that is about to happen, or has happened. `event` is its name in the file."""

    event: ClassVar[str]


RecordType = TypeVar("RecordType", bound=Record)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(kw_only=True, slots=True)
class Journal:
    """A file with a JSON object on each line. `lines` are those of earlier runs."""

    path: Path
    lines: Sequence[JournalLine]
    descriptor: int
    now: Callable[[], datetime] = _now
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def earlier(self, *types: type[RecordType]) -> tuple[RecordType, ...]:
        """Return the records of these types that earlier runs wrote, in order."""
        return _select(self.lines, types)

    def read(self, *types: type[RecordType]) -> tuple[RecordType, ...]:
        """Return the records of these types that earlier runs and this one wrote, in order."""
        return _select(parse_lines(self.path.read_bytes()), types)

    def write(self, record: Record) -> None:
        """Append a record and wait until it is on the disk. Raises `OSError`, and then leaves none of it there."""
        document = {"time": self.now().isoformat(timespec="milliseconds"), "event": record.event, **asdict(record)}
        line = f"{json.dumps(document)}\n".encode()
        with self._lock:
            size = os.fstat(self.descriptor).st_size
            try:
                while line:  # a disk that becomes full takes a part, and fails only at the next write
                    line = line[os.write(self.descriptor, line) :]
            except OSError:
                os.ftruncate(self.descriptor, size)
                raise
            os.fsync(self.descriptor)


@contextmanager
def open_journal_file(path: Path, now: Callable[[], datetime] = _now) -> Iterator[Journal]:
    """Open or create a journal, for one run at a time: the caller holds a lock (`tfimg.core.files`)."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        text = path.read_bytes()
        if text and not text.endswith(b"\n"):  # a killed run left an incomplete line
            os.write(descriptor, b"\n")
        yield Journal(path=path, lines=parse_lines(text), descriptor=descriptor, now=now)
    finally:
        os.close(descriptor)


def parse_lines(text: bytes) -> tuple[JournalLine, ...]:
    """Return the lines of a journal without incomplete ones: what those announce has not happened."""
    documents = []
    for line in text.split(b"\n"):
        with suppress(ValueError):
            documents.append(json.loads(line))
    return tuple(document for document in documents if isinstance(document, dict))


def _select(lines: Sequence[JournalLine], types: Sequence[type[RecordType]]) -> tuple[RecordType, ...]:
    kinds = {kind.event: kind for kind in types}
    records = []
    for line in lines:
        if kind := kinds.get(str(line.get("event"))):
            with suppress(TypeError):  # it lacks a field
                records.append(kind(**{known.name: line[known.name] for known in fields(kind) if known.name in line}))
    return tuple(records)
