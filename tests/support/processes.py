"""Processes of this machine as tests look at them, and the rights of this one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNPRIVILEGED = 65534


def children() -> set[int]:
    """Return the child processes of this process, also those that have ended and were not waited for."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended since
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found


@contextmanager
def without_root() -> Iterator[Path]:
    """Give up root's rights for as long as the block lasts, and yield a folder of the user that remains.

    The whole process has another user and no capabilities, and keeps root as its saved user to come back
    (credentials(7)); a user other than root stays who they are. Without it, tests of missing permissions could not run
    in a container, where every user is root.
    """
    with _unprivileged(), tempfile.TemporaryDirectory(prefix="tfimg-test-") as folder:
        yield Path(folder)


@contextmanager
def _unprivileged() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setresgid(UNPRIVILEGED, UNPRIVILEGED, 0)
    os.setresuid(UNPRIVILEGED, UNPRIVILEGED, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)
