"""Write a bundle: a new file takes its name once it is complete; an interrupted run leaves nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import DiskSpaceError, TamperedError
from tfimg.inspect.archive.collect import ArchiveFile, ImageArchive

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)

LEFTOVER = re.compile(r"tfimg-bundle-[0-9a-f]{16}\.partial")
"""Names of incomplete bundles. Only SIGKILL or a power failure leaves one."""

OnProgress = Callable[[int, int], object]
"""Is told how many bytes are there, and of how many."""


def stream_archive(archive: ImageArchive) -> Iterator[bytes]:
    """The archive's bytes."""
    for entry in archive.entries:
        yield _header(entry)
        yield from read_file(entry)
        yield bytes(-entry.size % BLOCK)
    yield END


def save_archive(
    archive: ImageArchive, file: Path, *, free_bytes: int | None = None, on_progress: OnProgress = lambda *_: None
) -> None:
    """Write the archive to a new file beside `file`, and rename it when it is complete.

    The new file is removed on every error. `free_bytes` of the disk are measured unless given. Raises
    `DiskSpaceError` when they are not enough, and what reading the archive raises.
    """
    remove_leftovers(file.parent)
    total = archive_size(archive)
    free = shutil.disk_usage(file.parent).free if free_bytes is None else free_bytes
    if free < total:
        raise _no_room(f"{file} needs {total / 1e6:,.0f} MB, and its disk has {free / 1e6:,.0f} MB free.")
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
        needs = f"{file} needs {total / 1e6:,.0f} MB"
        raise _no_room(f"The disk is full: {needs}, and other programs have used its space meanwhile.") from None
    finally:
        Path(out.name).unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the incomplete bundles of this user in a folder, except those that a run is writing."""
    for path in folder.iterdir():
        if LEFTOVER.fullmatch(path.name):
            with suppress(OSError):  # not a file, another run is writing it, or that run has just renamed it
                _remove_unlocked(path)


def _remove_unlocked(path: Path) -> None:
    # Links are not followed, and a pipe is not waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    finally:
        os.close(descriptor)


def _create(folder: Path) -> BinaryIO:
    """Create a file that only this process writes. Its lock tells other runs that it is not a leftover."""
    while True:
        out = (folder / f"tfimg-bundle-{secrets.token_hex(8)}.partial").open("xb")
        fcntl.flock(out, fcntl.LOCK_EX)
        if os.fstat(out.fileno()).st_nlink:
            return out
        out.close()  # another run removed it before it was locked


def archive_size(archive: ImageArchive) -> int:
    """How many bytes the archive has."""
    return sum(BLOCK + entry.size + -entry.size % BLOCK for entry in archive.entries) + len(END)


def read_file(entry: ArchiveFile) -> Iterator[bytes]:
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


def _header(entry: ArchiveFile) -> bytes:
    info = tarfile.TarInfo(entry.name)
    info.size, info.mode = entry.size, 0o644
    # GNU's form has sizes above 8 GiB in the same block.
    return info.tobuf(tarfile.GNU_FORMAT)


def _no_room(what: str) -> DiskSpaceError:
    return DiskSpaceError(what, next_step="Free some space and run it again, or name a file on another disk.")
