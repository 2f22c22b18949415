"""Limits for reading an image: whatever the image holds, reading ends, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.tar import InvalidArchive


class UnreadableError(InvalidArchive):
    """A part of an image cannot be read completely; the text says why, and becomes a finding."""


class LimitReached(UnreadableError):
    """An image is larger than a limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits for one image. The largest image of the matrix has 11 GB, unpacked, in 120,000 files."""

    read_bytes: int = 128 << 30
    """Bytes of layers, packed and unpacked."""
    members: int = 4_000_000
    names_bytes: int = 64 << 20
    """Length of the names of the files of one layer, which are in memory until the layer ends."""
    seconds: float = 4 * 3600.0


class Budget:
    """What is left of an image's limits."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits, self._clock = limits, clock
        self._bytes, self._members, self._deadline = 0, 0, clock() + limits.seconds

    def add_bytes(self, count: int) -> None:
        """Count bytes of a layer. Raises `LimitReached`, and `Interrupted` on cancellation."""
        raise_if_cancelled()
        self._bytes += count
        if self._bytes > self.limits.read_bytes:
            raise LimitReached(f"it has more than {self.limits.read_bytes >> 20} MiB")
        if self._clock() > self._deadline:
            raise LimitReached(f"reading it takes longer than {self.limits.seconds:.0f} s")

    def add_member(self) -> None:
        """Count a member of an archive. Raises `LimitReached`."""
        self._members += 1
        if self._members > self.limits.members:
            raise LimitReached(f"it has more than {self.limits.members} files")
