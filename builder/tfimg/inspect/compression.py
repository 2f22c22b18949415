"""Recognise the compression of a layer by its first bytes, and decompress all of it."""

from __future__ import annotations

import bz2
import lzma
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import zstandard
from isal import igzip_lib

from tfimg.inspect.limits import UnreadableError

INPUT_BYTES = 1 << 16
"""Bytes that are read at once. Small, because each new frame copies the rest of them."""

OUTPUT_BYTES = 1 << 20
"""Bytes that are decompressed at once."""

MAGIC_BYTES = 6
"""Bytes that identify every compression below."""

ZSTD_WINDOW = 128 << 20
"""Largest window of a zstd frame: what `zstd --long` writes, and the limit of its program (`--memory`)."""

ZSTD_INPUT = 256
"""Bytes that zstd decompresses at once. `zstandard` does not limit the output, and a block of four bytes may have 128
KiB (RFC 8878, 3.1.1.2): 8 MiB at most."""

LZMA_MEMORY = 256 << 20
"""Bytes that decompressing an xz stream may take: `xz -9` asks for 65 MiB."""


@dataclass(frozen=True, slots=True)
class Compression:
    """A compression: the first bytes of its frames, and a function that returns a decompressor for one frame.

    All decompressors have the interface of `bz2.BZ2Decompressor`: bounded output, and a known end of the frame.
    """

    name: str
    magic: re.Pattern[bytes]
    start: Callable[[], Any]


class _ZstdDecompressor:
    """Decompresses one frame of zstd, with the interface of `bz2.BZ2Decompressor`."""

    def __init__(self) -> None:
        self._frame = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
        self._data, self._position = memoryview(b""), 0

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def needs_input(self) -> bool:
        """Whether all input was decompressed."""
        return self._position == len(self._data)

    @property
    def unused_data(self) -> bytes:
        """The input behind the frame."""
        return self._frame.unused_data + self._data[self._position :].tobytes()

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return the next `max_length` bytes and the rest of a block or two; `data` is empty if there is input left."""
        if data:
            self._data, self._position = memoryview(data), 0
        output, length = [], 0
        while length < max_length and not (self.needs_input or self.eof):
            piece = self._frame.decompress(self._data[self._position : self._position + ZSTD_INPUT])
            self._position = min(self._position + ZSTD_INPUT, len(self._data))
            output.append(piece)
            length += len(piece)
        return b"".join(output)


COMPRESSIONS: tuple[Compression, ...] = (
    Compression("gzip", re.compile(rb"\x1f\x8b"), lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)),
    Compression(
        "zstd",
        re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", re.DOTALL),  # or skippable (RFC 8878, 3.1)
        _ZstdDecompressor,
    ),
    Compression("xz", re.compile(rb"\xfd7zXZ\x00"), lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, LZMA_MEMORY)),
    Compression("bzip2", re.compile(rb"BZh[1-9]"), bz2.BZ2Decompressor),
)

DAMAGED: tuple[Any, ...] = (igzip_lib.IsalError, zstandard.ZstdError, lzma.LZMAError, OSError, EOFError, ValueError)
"""Errors that decompressors raise for damaged data."""


def recognise(head: bytes) -> Compression | None:
    """Return the compression that bytes begin with; None for uncompressed bytes."""
    return next((known for known in COMPRESSIONS if known.magic.match(head)), None)


def decompress(source: BinaryIO, compression: Compression) -> Iterator[bytes]:
    """Yield the content of all frames. Raises `UnreadableError` for damaged, truncated and foreign bytes."""
    data = source.read(INPUT_BYTES)
    while data:
        if len(data) < MAGIC_BYTES:
            data += source.read(INPUT_BYTES)
        if not compression.magic.match(data):
            raise UnreadableError(f"bytes that are not {compression.name} follow its {compression.name} data")
        decompressor = compression.start()
        while not decompressor.eof:
            try:
                piece = decompressor.decompress(data, OUTPUT_BYTES)
            except DAMAGED as error:
                raise UnreadableError(f"its {compression.name} data is damaged: {error}") from None
            yield piece
            data = b""
            if decompressor.needs_input and not decompressor.eof:
                data = source.read(INPUT_BYTES)
                if not data:
                    raise UnreadableError(f"its {compression.name} data is truncated")
        # Padding with zeros is allowed.
        data = decompressor.unused_data.lstrip(b"\0")
        while not data and (data := source.read(INPUT_BYTES)):
            data = data.lstrip(b"\0")
