"""Decompress a layer and read the headers of the archive inside, within limits."""

from __future__ import annotations

import gzip
import io
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from typing import BinaryIO, cast

import zstandard
from isal import igzip, isal_zlib

from tfimg.engine.pieces import as_file
from tfimg.errors import TamperedError
from tfimg.tar import InvalidArchive, TarReader

PIECE = 1 << 20
"""Bytes that are taken at once."""

LARGEST_WINDOW = 1 << 27
"""Bytes that a zstd frame may make its reader remember: what `zstd --long` writes, and all that its program accepts
unasked (zstd 1.5, `--memory`). tfimg's own layers ask for 8 MiB."""

MAX_UNPACKED = 1 << 36
"""Unpacked bytes of the layers of one image. Ours have 16 GB at most; zeros are unpacked at some GB a second."""

BROKEN = (zstandard.ZstdError, gzip.BadGzipFile, EOFError, cast("type[Exception]", isal_zlib.error))


class UnpackLimit:
    """Count the unpacked bytes of an image's layers against a limit."""

    def __init__(self, max_bytes: int = MAX_UNPACKED) -> None:
        self._max = self._left = max_bytes

    def take(self, count: int) -> None:
        """Count unpacked bytes. Raises `TamperedError` when there are too many."""
        self._left -= count
        if self._left < 0:
            raise TamperedError(
                f"Its layers have more than {self._max:,} bytes when unpacked, which is a decompression bomb.",
                next_step="Do not use the image.",
            )


def unpacked(pieces: Iterator[bytes], limit: UnpackLimit | None = None) -> Iterator[bytes]:
    """Yield a blob's content in pieces, unpacked if it is zstd or gzip.

    The first bytes decide, not the media type. Raises `TamperedError` for broken compression and beyond the limit; a
    zstd stream that breaks off just ends here, as it does for engines.
    """
    limit = limit or UnpackLimit()
    with as_file(pieces) as source:
        try:
            content = _opened(source)
            while piece := content.read(PIECE):
                limit.take(len(piece))
                yield piece
            # What follows the content is part of what the digest is of.
            while source.read(PIECE):
                pass
        except BROKEN as error:
            raise _torn(error) from None


def _opened(source: io.BufferedReader) -> BinaryIO:
    magic = source.peek(4)[:4]
    if (
        magic == b"\x28\xb5\x2f\xfd" or magic[1:4] == b"\x2a\x4d\x18"
    ):  # a frame, or one to be skipped (RFC 8878, 3.1)
        decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)
        return cast("BinaryIO", decompressor.stream_reader(source, read_size=PIECE, read_across_frames=True))
    if magic[:2] == b"\x1f\x8b":
        return cast("BinaryIO", igzip.IGzipFile(fileobj=source))  # type: ignore[no-untyped-call]
    return cast("BinaryIO", source)


class Places:
    """Where in an archive which file lies, by offset: filled while the archive passes by."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._names: list[str] = []

    def add(self, member: tarfile.TarInfo) -> None:
        """The next file. Its headers belong to it: they have its name."""
        self._starts.append(member.offset)
        self._names.append(member.name)

    def at(self, offset: int) -> str:
        """The file at an offset; empty where there is none."""
        found = bisect_right(self._starts, offset) - 1
        return self._names[found] if found >= 0 else ""


def members(
    pieces: Iterator[bytes], *, wanted: str = "", max_bytes: int = 0
) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Yield each member of an archive, and the first `max_bytes` of the file that is `wanted`; read it to its end.

    A blob that is not an archive has no members. Raises `TamperedError` for one that breaks off or is malformed.
    """
    number = 0  # of members that were read
    with as_file(pieces) as source:
        reader = TarReader(source)
        try:
            for member in reader:
                number += 1
                content = reader.content() if wanted and member.name.removeprefix("./") == wanted else ()
                yield member, b"".join(islice(content, max_bytes // PIECE))
        except InvalidArchive as error:
            if number:
                raise _torn(error) from None
            # Another artifact's layer, which is not an archive.
        while source.read(PIECE):
            pass


def walk(pieces: Iterator[bytes], on_member: Callable[[tarfile.TarInfo], None]) -> None:
    """Report each member of an archive. Raises what `members` does."""
    for member, _ in members(pieces):
        on_member(member)


def _torn(error: Exception) -> TamperedError:
    return TamperedError(
        f"A layer cannot be unpacked: {error}.", next_step="Push the image again from where it was built."
    )
