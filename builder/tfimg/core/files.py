"""Limited reads, atomic writes, file locks, and streams of chunks as files."""

import errno
import hashlib
import io
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from tfimg.core import cancellation, errors

BUFFER_BYTES = 1 << 20  # bytes that `open_chunks` reads ahead

DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
"""Errors of writing a file, which no connection has."""


class AlreadyLocked(Exception):
    """Another process holds the lock; the text is its id, or `unknown`."""


def digest_of(content: bytes) -> str:
    """Return `sha256:…` of bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file. Raises `Interrupted` when the work is cancelled."""
    digest = hashlib.sha256()
    for piece in read_pieces(path):
        digest.update(piece)
    return digest.hexdigest()


def hash_files(files: Mapping[str, bytes | Path]) -> str:
    """Return `sha256:…` of files by name; a path is read in pieces."""
    whole = hashlib.sha256()
    for name, content in sorted(files.items()):
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        whole.update(f"{name}\n{size}\n".encode())
        for piece in read_pieces(content) if isinstance(content, Path) else (content,):
            whole.update(piece)
    return f"sha256:{whole.hexdigest()}"


def read_pieces(path: Path) -> Iterator[bytes]:
    """Yield a file in pieces of 1 MiB at most. Raises `Interrupted` if the work of this thread was cancelled."""
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            cancellation.raise_if_cancelled()
            yield piece


def read_limited(name: str | Path, max_bytes: int, *, next_step: str) -> bytes:
    """Return the content of a file that a user named. Raises `FileError` if it is not a file, or is too large."""
    if not Path(name).is_file():
        raise errors.FileError(f"{name} is not a file.", next_step=next_step)
    with Path(name).open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise errors.FileError(f"{name} is larger than {max_bytes >> 10:,} KiB.", next_step=next_step)
    return content


def find_free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk of a folder; of one that is not there or closed, its nearest parent's."""
    while not os.access(folder, os.X_OK) and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


@contextmanager
def name_in_errors(path: Path) -> Iterator[None]:
    """Let what a disk reports while a file is written name the file; opening it does already."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_ERRORS and error.filename is None:
            error.filename = str(path)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step, so that a kill or a full disk leaves the old one.

    Replaces the target of a link, not the link; writes to a device or pipe directly. A file that is replaced keeps its
    permissions, and its owner where this user may give it away.
    """
    path = Path(os.path.realpath(path))  # `Path.resolve` fails for a link to itself
    if path.exists() and not path.is_file():
        with name_in_errors(path):
            path.write_text(text, "utf-8")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several threads may write the same file at once.
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with name_in_errors(path):
            partial.write_text(text, "utf-8")
        with suppress(OSError):  # there is none, or only a link to itself
            before = path.stat()
            with suppress(PermissionError, AttributeError):  # Windows has no owners
                os.chown(partial, before.st_uid, before.st_gid)
            partial.chmod(stat.S_IMODE(before.st_mode))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def remove_oldest(folder: Path, *, keep: int) -> None:
    """Remove all but the newest files of a folder. Another process may do the same at the same time."""
    files = []
    for file in folder.iterdir():
        with suppress(FileNotFoundError):
            files.append((file.stat().st_mtime_ns, file))
    for _, file in sorted(files)[:-keep]:
        file.unlink(missing_ok=True)


def write_once(path: Path, content: bytes, *, mode: int) -> None:
    """Create a file with its whole content. Raises `FileExistsError`."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Never readable for others, not even for a moment.
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with name_in_errors(path), os.fdopen(descriptor, "wb") as file:
            file.write(content)
        partial.chmod(mode)  # whatever the umask is
        path.hardlink_to(partial)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def try_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file. Raises `AlreadyLocked` if another process holds it.

    The kernel releases the lock when the process ends; child processes do not inherit it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        if not _lock(file):
            file.seek(0)
            raise AlreadyLocked(file.read().strip() or "unknown")
        file.truncate(0)
        with name_in_errors(path):
            os.write(file.fileno(), f"{os.getpid()}\n".encode())  # at once: closing the file would repeat an error
        yield


@contextmanager
def wait_for_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Wait for the lock of a file and hold it; `on_wait` is called while waiting and may raise to stop.

    The file remains afterwards: removing it would let two processes hold the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        while not _lock(file):
            on_wait()
            time.sleep(0.1)
        yield


@contextmanager
def lock_existing(path: Path) -> Iterator[bool]:
    """Yield whether the lock of an unchanged file is free, and hold it then. Raises `FileNotFoundError`."""
    with path.open("r+") as file:
        yield _lock(file)


def _lock(file: TextIO) -> bool:
    """Lock an open file; return False if another process holds its lock."""
    import fcntl  # Windows, where some commands run, has none

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def open_chunks(chunks: Iterator[bytes]) -> io.BufferedReader:
    """Return a file to read once from chunks of any size."""
    return io.BufferedReader(_ChunkReader(chunks), buffer_size=BUFFER_BYTES)


class _ChunkReader(io.RawIOBase):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._left = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count
