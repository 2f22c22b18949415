"""What one process of this machine has at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


class Held(Exception):
    """Another process holds the lock; `process` is its id, as far as it is known."""

    def __init__(self, process: str) -> None:
        self.process = process
        super().__init__(f"held by process {process}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock. Raises `Held` where another process does; to wait for it, see `tfimg.core.paths.exclusive`.

    The kernel lets go of it with the process, however that ends; programs that we start do not inherit it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Held(_holder(file)) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _holder(file: IO[str]) -> str:
    file.seek(0)
    return file.read().strip() or "unknown"
