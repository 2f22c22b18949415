"""A stream that comes in pieces, as a file to read from."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

BUFFER = 1 << 20
"""Bytes that are read ahead."""


def as_file(pieces: Iterator[bytes]) -> io.BufferedReader:
    """Pieces, however large each is, as a file that can be read once."""
    return io.BufferedReader(_Pieces(pieces), buffer_size=BUFFER)


class _Pieces(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, memoryview(b"")

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count
