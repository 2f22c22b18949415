"""The image's files: its user can read them, and none has the setuid bit."""

from __future__ import annotations

import os
import site
import stat
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contract import CheckFailed, claimed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from contract import Facts, Measured

NAMED = 10
KEPT = 200


class Tree(NamedTuple):
    """What one walk over a file system saw; `closed` are folders that this user may not list."""

    files: int
    installed: int
    unreadable: list[str]
    dangling: list[str]
    privileged: list[str]
    closed: list[str]
    seconds: float


def site_packages(facts: Facts) -> Measured:
    """The user can read every file of every installed package, and no symbolic link there is broken."""
    # Another machine than an image may have files without end.
    seen = _seen("/" if facts.identifier else os.path.realpath(sys.prefix))
    measured = {"files": seen.installed, "folders": site_folders(), "seconds": seen.seconds}
    wrong = [f"{path} is not readable" for path in seen.unreadable]
    wrong += [f"{path} is a dangling link" for path in seen.dangling]
    if wrong or not seen.installed:
        raise CheckFailed(
            f"expected every file of the installed packages to be readable, found {len(wrong)} that are not "
            f"({enumerated(wrong)}): they were installed with another umask or owner, or removed; give everyone "
            "the right to read them (chmod -R a+rX), or install again",
            unreadable=seen.unreadable[:KEPT],
            dangling=seen.dangling[:KEPT],
            **measured,
        )
    return measured


def setuid(facts: Facts) -> Measured:
    """No file of the image has the setuid or setgid bit.

    Folders that the user may not list are left out: nothing in them can be started.
    """
    claimed(facts.user, "the user")
    seen = _seen("/")
    measured = {"files": seen.files, "closed": seen.closed[:KEPT], "seconds": seen.seconds}
    if seen.privileged:
        raise CheckFailed(
            f"expected no setuid or setgid file, found {len(seen.privileged)} ({enumerated(seen.privileged)}): "
            "a process could become root by them; remove the bits in the image "
            "(find / -xdev -type f -perm /6000 -exec chmod a-s {} +)",
            privileged=seen.privileged[:KEPT],
            **measured,
        )
    return measured


def walk(root: str, folders: Sequence[str]) -> Tree:
    """Look at every file below `root` on its file system; those below `folders`, on any, must be readable.

    Folders alone tell where another file system begins: files of an overlay have the device of their layer.
    """
    began, device, mine = time.monotonic(), Path(root).stat().st_dev, _identity()
    tree, files, installed, waiting = Tree(0, 0, [], [], [], [], 0.0), 0, 0, [root]
    while waiting:
        folder = waiting.pop()
        inside = _lies_in(folder, folders)
        try:
            with os.scandir(folder) as listed:
                entries = list(listed)
        except PermissionError:
            (tree.unreadable if inside else tree.closed).append(folder)
            continue
        except FileNotFoundError:  # another process has removed it
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.stat(follow_symlinks=False).st_dev == device or _lies_in(entry.path, folders):
                    waiting.append(entry.path)
                continue
            files, installed = files + 1, installed + inside
            _look_at(entry, inside, mine, tree)
    return tree._replace(files=files, installed=installed, seconds=round(time.monotonic() - began, 3))


def _look_at(entry: os.DirEntry[str], inside: bool, mine: tuple[int, frozenset[int]], tree: Tree) -> None:
    if entry.is_symlink():
        if inside and not os.access(entry.path, os.F_OK):
            tree.dangling.append(entry.path)
        return
    status = entry.stat(follow_symlinks=False)
    if status.st_mode & (stat.S_ISUID | stat.S_ISGID) and stat.S_ISREG(status.st_mode):
        tree.privileged.append(entry.path)
    # The mode answers for nearly all files without another call; the system has the last word (root, access lists).
    if inside and not _mode_allows(status, *mine) and not os.access(entry.path, os.R_OK):
        tree.unreadable.append(entry.path)


def _lies_in(path: str, folders: Sequence[str]) -> bool:
    return any((path + "/").startswith(folder + "/") for folder in folders)


def _mode_allows(status: os.stat_result, user: int, groups: frozenset[int]) -> bool:
    if status.st_uid == user:
        return bool(status.st_mode & stat.S_IRUSR)
    return bool(status.st_mode & (stat.S_IRGRP if status.st_gid in groups else stat.S_IROTH))


def _identity() -> tuple[int, frozenset[int]]:
    return os.geteuid(), frozenset((os.getegid(), *os.getgroups()))


def site_folders() -> list[str]:
    """Where this interpreter's packages are installed, whatever PYTHONPATH adds."""
    return [os.path.realpath(folder) for folder in site.getsitepackages() if Path(folder).is_dir()]


def enumerated(names: Iterable[str]) -> str:
    """The first of many names, for a sentence."""
    names = list(names)
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


@lru_cache(maxsize=None)
def _seen(root: str) -> Tree:
    return walk(root, site_folders())
