"""Write an image archive: a new file is renamed once it is complete; an interrupted run leaves nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import DiskSpaceError, TamperedError
from tfimg.core.tar import BLOCK, END, stream_member
from tfimg.inspect.archive.collect import ArchiveFile, ImageArchive

LEFTOVER = re.compile(r"tfimg-bundle-[0-9a-f]{16}\.partial")
"""Names of incomplete archives. Only SIGKILL or a power failure leaves one."""

OnProgress = Callable[[int, int], object]
"""Called with the number of bytes so far, and of all bytes."""


def save_archive(
    archive: ImageArchive, file: Path, *, free_bytes: int | None = None, on_progress: OnProgress = lambda *_: None
) -> None:
    """Write the archive to a new file beside `file`, and rename it when it is complete.

    The new file is removed on every error. `free_bytes` of the disk are measured unless given. Raises `DiskSpaceError`,
    and the errors of reading the archive.
    """
    _remove_leftovers(file.parent)
    total = archive_size(archive)
    needs = f"{file} needs {total / 1e6:,.0f} MB"
    free = shutil.disk_usage(file.parent).free if free_bytes is None else free_bytes
    if free < total:
        raise _disk_full(f"{needs}, and its disk has {free / 1e6:,.0f} MB free.")
    out = _create(file.parent)
    try:
        with out:
            done = 0
            for piece in stream_archive(archive):
                raise_if_cancelled()
                out.write(piece)
                done += len(piece)
                on_progress(done, total)
            out.flush()
            os.fsync(out.fileno())
            Path(out.name).replace(file)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _disk_full(f"The disk is full: {needs}, and other programs have used its space meanwhile.") from None
    finally:
        Path(out.name).unlink(missing_ok=True)


def _disk_full(what: str) -> DiskSpaceError:
    return DiskSpaceError(what, next_step="Free some space and run it again, or name a file on another disk.")


def archive_size(archive: ImageArchive) -> int:
    """Return the number of bytes of the archive's file."""
    return sum(BLOCK + entry.size + -entry.size % BLOCK for entry in archive.entries) + len(END)


def stream_archive(archive: ImageArchive) -> Iterator[bytes]:
    """Yield the bytes of the archive's file."""
    for entry in archive.entries:
        yield from stream_member(entry.name, entry.size, read_file(entry))
    yield END


def read_file(entry: ArchiveFile) -> Iterator[bytes]:
    """Yield the content of an archive's file. Raises `TamperedError` if its size is wrong."""
    done = 0
    for piece in entry.pieces():
        done += len(piece)
        if done > entry.size:
            break
        yield piece
    if done != entry.size:
        raise TamperedError(
            f"{entry.digest} does not have the {entry.size} bytes that its image states.",
            next_step="Push the image again.",
        )


def _remove_leftovers(folder: Path) -> None:
    """Remove this user's incomplete archives, except those that another run is writing."""
    for path in folder.iterdir():
        if not LEFTOVER.fullmatch(path.name):
            continue
        with suppress(OSError):  # not a file, locked by another run, or just renamed by it
            # Do not follow links, and do not wait for a pipe.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                found = os.fstat(descriptor)
                if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
            finally:
                os.close(descriptor)


def _create(folder: Path) -> BinaryIO:
    """Create and lock a file; the lock shows other runs that it is not a leftover."""
    while True:
        out = (folder / f"tfimg-bundle-{secrets.token_hex(8)}.partial").open("xb")
        fcntl.flock(out, fcntl.LOCK_EX)
        if os.fstat(out.fileno()).st_nlink:
            return out
        out.close()  # another run removed it before it was locked
