"""A layer's bytes, compressed or not → the archive inside, and the names of the files at each place of it."""

from __future__ import annotations

import gzip
import io
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import zstandard
from isal import igzip, isal_zlib

from tfimg.engine.pieces import as_file
from tfimg.errors import TamperedError

PIECE = 1 << 20
"""Bytes that are taken at once."""

LARGEST_WINDOW = 1 << 27
"""Bytes that a zstd frame may make its reader remember: what `zstd --long` writes, and all that its program accepts
unasked (zstd 1.5, `--memory`). tfimg's own layers ask for 8 MiB."""


BROKEN = (zstandard.ZstdError, gzip.BadGzipFile, EOFError, cast("type[Exception]", isal_zlib.error))


def unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """A blob's content in pieces: of zstd and of gzip what is inside, of anything else itself.

    Told by the first bytes: a media type is somebody's word. Raises `TamperedError` where the compression is broken;
    one of zstd that breaks off just ends here, as it does for everybody who unpacks it.
    """
    with as_file(pieces) as source:
        try:
            content = _opened(source)
            while piece := content.read(PIECE):
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


def walk(pieces: Iterator[bytes], on_member: Callable[[tarfile.TarInfo], None]) -> None:
    """Take an archive's headers as they pass by, and read it to its end; what is no archive has none.

    Raises `TamperedError` for an archive that breaks off.
    """
    members = 0
    with as_file(pieces) as source:
        try:
            # Its own way to read a stream copies what it has read ahead for every header.
            with tarfile.open(fileobj=cast("Any", _Forward(source)), mode="r:") as archive:
                while (member := archive.next()) is not None:
                    cast("Any", archive).members.clear()  # it remembers every one, and nobody asks
                    members += 1
                    on_member(member)
        except tarfile.TarError as error:
            if members:
                raise _torn(error) from None
            # Another artifact's layer, which is no archive; its bytes are searched like any.
        while source.read(PIECE):
            pass


class _Forward:
    """A file that is read once, for who seeks forward alone."""

    def __init__(self, source: BinaryIO) -> None:
        self._source, self._at = source, 0

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        content = self._source.read(size)
        self._at += len(content)
        return content

    def seek(self, offset: int) -> int:
        while self._at < offset and self.read(min(PIECE, offset - self._at)):
            pass
        return self._at


def _torn(error: Exception) -> TamperedError:
    return TamperedError(
        f"A layer cannot be unpacked: {error}.", next_step="Push the image again from where it was built."
    )
