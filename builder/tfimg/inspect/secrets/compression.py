"""The compressions of layers, recognised by their first bytes and read to the last one.

Every reader has the interface of `bz2.BZ2Decompressor`: output in bounded pieces, and the end of a frame is known.
"""

from __future__ import annotations

import bz2
import lzma
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol, cast

from isal import igzip_lib

from tfimg.inspect.secrets.limits import Budget, UnreadableError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

READ = 1 << 16
"""Bytes that are taken at once. Small, because the start of a frame copies what follows it in them."""

PIECE = 1 << 20
"""Bytes that are unpacked at once."""

MAGIC = 6
"""Bytes that tell every compression below."""

WINDOW_LOG = 27
"""Largest window of a zstd frame, 128 MiB: what `zstd --long` writes, and the limit of its program (`--memory`)."""

LZMA_MEMORY = 256 << 20
"""Bytes that an xz stream may make its reader remember: `xz -9` asks for 65 MiB."""


class Decompressor(Protocol):
    """Read one gzip member, or one frame or stream of another compression."""

    @property
    def eof(self) -> bool:
        """Whether the frame has ended."""

    @property
    def needs_input(self) -> bool:
        """Whether more output needs more input."""

    @property
    def unused_data(self) -> bytes:
        """What follows the frame in the bytes that were given."""

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Return up to `max_length` bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compression:
    """A compression: the first bytes of its frames, and how one is read."""

    name: str
    magic: re.Pattern[bytes]
    start: Callable[[], Decompressor]


def _gzip() -> Decompressor:
    return cast("Decompressor", igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP))


def _zstd() -> Decompressor:
    return zstd.ZstdDecompressor(options={int(zstd.DecompressionParameter.window_log_max): WINDOW_LOG})


def _xz() -> Decompressor:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=LZMA_MEMORY)


COMPRESSIONS: tuple[Compression, ...] = (
    Compression(name="gzip", magic=re.compile(rb"\x1f\x8b"), start=_gzip),
    # A frame, or a skippable one (RFC 8878, 3.1).
    Compression(name="zstd", magic=re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", re.DOTALL), start=_zstd),
    Compression(name="xz", magic=re.compile(rb"\xfd7zXZ\x00"), start=_xz),
    Compression(name="bzip2", magic=re.compile(rb"BZh[1-9]"), start=bz2.BZ2Decompressor),
)

DAMAGED: tuple[type[Exception], ...] = (
    cast("type[Exception]", igzip_lib.IsalError),
    zstd.ZstdError,
    lzma.LZMAError,
    OSError,
    EOFError,
    ValueError,
)


def recognise(head: bytes) -> Compression | None:
    """Return the compression that bytes begin with; None for those that are not compressed."""
    return next((known for known in COMPRESSIONS if known.magic.match(head)), None)


def unpack(source: BinaryIO, compression: Compression, budget: Budget) -> Iterator[bytes]:
    """Yield what all frames hold. Raises `Unread` for damaged, truncated and foreign bytes, and `LimitReached`."""
    data = source.read(READ)
    while data:
        if len(data) < MAGIC:
            data += source.read(READ)
        if not compression.magic.match(data):
            raise UnreadableError(f"bytes that are not {compression.name} follow its {compression.name} data")
        decompressor = compression.start()
        while not decompressor.eof:
            yield _next(decompressor, data, compression)
            data = b""
            if decompressor.needs_input and not decompressor.eof:
                data = source.read(READ)
                if not data:
                    raise UnreadableError(f"its {compression.name} data is truncated")
        budget.add_bytes(0)
        # Zeros may fill up a device's last block, and hold nothing.
        data = decompressor.unused_data.lstrip(b"\0")
        while not data and (data := source.read(READ)):
            data = data.lstrip(b"\0")


def _next(decompressor: Decompressor, data: bytes, compression: Compression) -> bytes:
    try:
        return decompressor.decompress(data, PIECE)
    except DAMAGED as error:
        raise UnreadableError(f"its {compression.name} data is damaged: {error}") from None
