"""NVIDIA's files in an image: the installed wheels, and shared objects anywhere on its disk."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from native import NVIDIA

from .packages import TENSORFLOW, around_tensorflow, closure, installed, required_names

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from contract import Facts

# What the kernel and the machine show; an image has nothing there.
NOT_SEARCHED = {"proc", "sys", "dev", "run"}
PREFIX = "nvidia-"


class Wheel(NamedTuple):
    """An installed distribution of NVIDIA's, and the paths of its files, without links."""

    name: str
    version: str
    files: tuple[str, ...]


def wheels(facts: Facts) -> tuple[Wheel, ...]:
    """Return NVIDIA's distributions that are TensorFlow's: those of the lock; where none is claimed, see `unlocked`.

    In an image that removes files, without those that are missing: environment.integrity judges them.
    """
    names = unlocked() if facts.packages is None else set(facts.packages)
    found = tuple(wheel for wheel in every_wheel() if wheel.name in names)
    if not facts.removed:
        return found
    return tuple(wheel._replace(files=tuple(path for path in wheel.files if Path(path).exists())) for wheel in found)


def unlocked() -> set[str]:
    """Return the names of NVIDIA's wheels that are TensorFlow's by its own requirements; PyTorch brings others.

    Up to 2.13 these name none, and users install them by hand: then, those that nothing else requires.
    """
    everything = installed()
    stated = [
        name
        for one in TENSORFLOW
        if one in everything
        for name in required_names(everything[one], extras=True)
        if name.startswith(PREFIX)
    ]
    if stated:
        return {name for name in around_tensorflow() if name.startswith(PREFIX)}
    others = [
        name
        for one in everything.values()
        if not one.name.startswith(PREFIX)
        for name in required_names(one, extras=True)
        if name.startswith(PREFIX)
    ]
    return {name for name in everything if name.startswith(PREFIX)} - closure(others)


@lru_cache(maxsize=1)
def every_wheel() -> tuple[Wheel, ...]:
    """Return all distributions of NVIDIA's that are installed; environment.files judges their records."""
    return tuple(
        Wheel(
            one.name,
            one.version,
            tuple(str(Path(one.folder, entry.path).resolve()) for entry in one.entries() if entry.hash),
        )
        for one in installed().values()
        if one.name.startswith(PREFIX)
    )


@lru_cache(maxsize=None)
def on_disk(pattern: re.Pattern[str] = NVIDIA) -> tuple[Path, ...]:
    """Files, not links, anywhere in the image whose names fit."""
    return tuple(path.resolve() for path in _walk() if pattern.match(path.name) and not path.is_symlink())


@lru_cache(maxsize=1)
def _walk() -> tuple[Path, ...]:
    return tuple(find_libraries("/"))


def find_libraries(root: str) -> Iterator[Path]:
    """Yield the shared objects below a root, without what the kernel and the machine show there."""
    for folder, folders, files in os.walk(root):
        if folder == root:
            folders[:] = [name for name in folders if name not in NOT_SEARCHED]
        yield from (Path(folder, name) for name in files if ".so" in name)
