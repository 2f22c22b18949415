"""What of NVIDIA's an image holds: the wheels that are installed, and shared objects anywhere on its disk."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from native import NVIDIA

from .packages import normalised

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

# What the kernel and the machine show; an image has nothing there.
NOT_SEARCHED = {"proc", "sys", "dev", "run"}


class Wheel(NamedTuple):
    """An installed distribution of NVIDIA's, and its files with the bytes that each should have, if it says."""

    name: str
    version: str
    files: dict[str, int | None]


@lru_cache(maxsize=1)
def wheels() -> tuple[Wheel, ...]:
    """NVIDIA's distributions that are installed."""
    return tuple(
        Wheel(
            normalised(distribution.metadata["Name"]),
            distribution.version,
            {str(Path(file.locate()).resolve()): file.size for file in distribution.files or () if file.hash},
        )
        for distribution in distributions()
        if normalised(distribution.metadata["Name"] or "").startswith("nvidia-")
    )


@lru_cache(maxsize=None)
def on_disk(pattern: re.Pattern[str] = NVIDIA) -> tuple[Path, ...]:
    """Files, not links, anywhere in the image whose names fit."""
    return tuple(path.resolve() for path in _walk() if pattern.match(path.name) and not path.is_symlink())


@lru_cache(maxsize=1)
def _walk() -> tuple[Path, ...]:
    return tuple(_libraries())


def _libraries() -> Iterator[Path]:
    for folder, folders, files in os.walk("/"):
        if folder == "/":
            folders[:] = [name for name in folders if name not in NOT_SEARCHED]
        yield from (Path(folder, name) for name in files if ".so" in name)
