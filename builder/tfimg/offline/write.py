"""Write a bundle: complete under its name, or not there; an interrupted run is resumed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from tfimg.cancellation import check
from tfimg.errors import DiskSpaceError, FileError, TamperedError
from tfimg.offline.archive import Archive, Entry

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
PIECE = 1 << 20

Told = Callable[[int, int], object]
"""Is told how many bytes are there, and of how many."""


def stream(archive: Archive) -> Iterator[bytes]:
    """The archive's bytes."""
    for entry in archive.entries:
        yield _header(entry)
        yield from content(entry)
        yield bytes(-entry.size % BLOCK)
    yield END


def write(archive: Archive, file: Path, *, free_bytes: int, told: Told = lambda *_: None) -> None:
    """Write the archive. Until it is complete, it lies beside `file` as FILE.partial, which another call resumes.

    Raises `DiskSpaceError` where there is no room, `FileError` where another run writes the same file or FILE.partial
    is not ours, and what reading the archive raises.
    """
    begun = partial_of(file)
    total = archive_bytes(archive)
    there = begun.lstat().st_size if begun.is_file() else 0
    if free_bytes < total - there:
        raise _no_room(file, total - there, free_bytes, there)
    with _own(begun) as out:
        try:
            _resume(archive, out, lambda done: told(done, total))
            out.flush()
            os.fsync(out.fileno())
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise _no_room(file, total - begun.stat().st_size, 0, begun.stat().st_size) from None
        begun.replace(file)


def partial_of(file: Path) -> Path:
    """Return where an archive lies that is not complete."""
    return file.with_name(f"{file.name}.partial")


@contextmanager
def _own(begun: Path) -> Iterator[BinaryIO]:
    """Open a partial file for this process alone: a new one, or a regular file of this user that has no other name.

    Links are not followed: in a folder that others can write to, one would choose what is overwritten.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor, created = os.open(begun, flags | os.O_CREAT | os.O_EXCL, 0o666), True
    except FileExistsError:
        try:
            descriptor, created = os.open(begun, flags), False
        except OSError as error:
            raise _foreign(begun, (error.strerror or str(error)).lower()) from None
    try:
        _lock(begun, descriptor, created=created)
        with open(descriptor, "r+b", closefd=False) as out:
            yield out
    finally:
        os.close(descriptor)


def _lock(begun: Path, descriptor: int, *, created: bool) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise _foreign(begun, "it is not a file with one name")
    if not created and found.st_uid != os.geteuid():
        raise _foreign(begun, "it belongs to another user")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_there = os.path.samestat(found, begun.lstat())
    except (BlockingIOError, FileNotFoundError):
        is_there = False
    if not is_there:  # or a run that had the lock has just completed it
        raise FileError(f"Another run writes {begun}.", next_step="Wait for its end, or name another file.")


def _foreign(begun: Path, why: str) -> FileError:
    return FileError(
        f"{begun} cannot be resumed: {why}.", next_step="Remove it, or name a file in a folder of your own."
    )


def archive_bytes(archive: Archive) -> int:
    """How many bytes the archive has."""
    return sum(BLOCK + entry.size + -entry.size % BLOCK for entry in archive.entries) + len(END)


def _resume(archive: Archive, out: BinaryIO, told: Callable[[int], object]) -> None:
    """Keep the entries that are there whole, and write the others behind them."""
    at, whole = 0, True
    for entry in archive.entries:
        end = at + BLOCK + entry.size + -entry.size % BLOCK
        whole = whole and _is_there(out, at, entry)
        if not whole:
            out.seek(at)
            out.truncate()
            _append(out, entry, partial(_further, told, at))
        at = end
        told(at)
    out.seek(at)
    out.truncate()
    out.write(END)


def _further(told: Callable[[int], object], at: int, done: int) -> None:
    told(at + done)


def _is_there(out: BinaryIO, at: int, entry: Entry) -> bool:
    out.seek(at)
    if out.read(BLOCK) != _header(entry):
        return False
    hashed, left = hashlib.sha256(), entry.size
    while left and (piece := out.read(min(PIECE, left))):
        check()
        hashed.update(piece)
        left -= len(piece)
    padding = out.read(-entry.size % BLOCK)
    return (
        left == 0 and len(padding) == -entry.size % BLOCK and f"sha256:{hashed.hexdigest()}" == entry.digest
    )


def _append(out: BinaryIO, entry: Entry, told: Callable[[int], object]) -> None:
    out.write(_header(entry))
    done = 0
    for piece in content(entry):
        check()
        out.write(piece)
        done += len(piece)
        told(done)
    out.write(bytes(-entry.size % BLOCK))


def content(entry: Entry) -> Iterator[bytes]:
    """Yield an entry's content. Raises `TamperedError` where it has not the announced size."""
    done = 0
    for piece in entry.pieces():
        done += len(piece)
        if done > entry.size:
            break
        yield piece
    if done != entry.size:
        raise TamperedError(
            f"{entry.digest} has not the {entry.size} bytes that its image says.",
            next_step="Push the image again.",
        )


def _header(entry: Entry) -> bytes:
    info = tarfile.TarInfo(entry.name)
    info.size, info.mode = entry.size, 0o644
    # GNU's form has sizes above 8 GiB in the same block.
    return info.tobuf(tarfile.GNU_FORMAT)


def _no_room(file: Path, needed: int, free: int, there: int) -> DiskSpaceError:
    kept = f" What is there already ({there / 1e6:,.0f} MB) is kept as {partial_of(file)}." if there else ""
    return DiskSpaceError(
        f"{file} needs {needed / 1e6:,.0f} MB more than the {free / 1e6:,.0f} MB that its disk has free.{kept}"
        if free
        else f"The disk of {file} is full; {needed / 1e6:,.0f} MB are missing.{kept}",
        next_step="Free some space and run it again, or name a file on another disk.",
    )
