"""Compare two exported images layer by layer, and name the files that differ."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import EngineRefused
from tfimg.core.streams import as_file
from tfimg.core.tar import PIECE, InvalidArchive, TarReader
from tfimg.engine.docker.export import saved_image

MAX_MANIFEST = 1 << 20

BROKEN = (
    InvalidArchive,
    InvalidDocument,
    KeyError,
    EOFError,
    gzip.BadGzipFile,
    zlib.error,
    zstandard.ZstdError,
)
"""What a file that is not an export raises while it is read."""

MAX_LISTED = 20
"""Files that are told of a layer that differs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerComparison:
    """A layer of each image at the same height; `files` are up to `MOST` that differ, each with what is different."""

    digests: tuple[str | None, str | None]
    files: tuple[str, ...]
    differing: int

    @property
    def same(self) -> bool:
        """Are they the same bytes?"""
        return self.digests[0] == self.digests[1]


def compare_layers(first: Path, second: Path) -> Iterator[LayerComparison]:
    """Yield the layers of two exported images, lowest first. Raises `EngineRefused` for another file."""
    one, other = _Export(first), _Export(second)
    left, right = one.layers(), other.layers()
    for height in range(max(len(left), len(right))):
        pair = tuple(layers[height] if height < len(layers) else None for layers in (left, right))
        digests = (_name(pair[0]), _name(pair[1]))
        if digests[0] == digests[1]:
            yield LayerComparison(digests=digests, files=(), differing=0)
            continue
        found = list(differing(one.files(pair[0]), other.files(pair[1])))
        yield LayerComparison(digests=digests, files=tuple(found[:MAX_LISTED]), differing=len(found))


def differing(left: Mapping[str, Mapping[str, Any]], right: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Each path that differs, and what about it: `etc/hosts: mtime 1 and 2`."""
    for path in sorted(left.keys() | right.keys()):
        one, other = left.get(path), right.get(path)
        if one is None or other is None:
            yield f"{path}: only in the {'second' if one is None else 'first'}"
        elif one != other:
            words = [f"{what} {one[what]} and {other[what]}" for what in one if one[what] != other[what]]
            yield f"{path}: {', '.join(words)}"


def _name(path: str | None) -> str | None:
    return None if path is None else f"sha256:{path.rpartition('/')[2]}"


class _Export:
    """The files of an exported image, in an uncompressed tar archive."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                self._places = {one.name: (one.offset_data, one.size) for one in TarReader(file)}
        except InvalidArchive:
            raise self._refused() from None

    def layers(self) -> tuple[str, ...]:
        """Return the layers of the image by name, lowest first."""
        try:
            content = b"".join(self._content("manifest.json", MAX_MANIFEST))
            return saved_image(content).layers
        except BROKEN:
            raise self._refused() from None

    def files(self, layer: str | None) -> dict[str, dict[str, Any]]:
        """Return what a layer holds, by path."""
        if layer is None:
            return {}
        try:
            with as_file(_unpacked(as_file(self._content(layer)))) as source:
                reader = TarReader(source)
                return {member.name: _described(reader, member) for member in reader}
        except BROKEN:
            raise self._refused() from None

    def _content(self, name: str, max_bytes: int | None = None) -> Iterator[bytes]:
        offset, left = self._places[name]
        if max_bytes is not None and left > max_bytes:
            raise InvalidArchive(f"{name} has {left} bytes")
        with self._path.open("rb") as file:
            file.seek(offset)
            while left and (piece := file.read(min(PIECE, left))):
                left -= len(piece)
                yield piece

    def _refused(self) -> EngineRefused:
        return EngineRefused(f"{self._path} is not an exported image.", next_step="Try again.")


def _unpacked(packed: io.BufferedReader) -> Iterator[bytes]:
    magic = packed.peek(4)[:4]
    source: Any = packed
    if magic == b"\x28\xb5\x2f\xfd":
        source = zstandard.ZstdDecompressor().stream_reader(packed)
    elif magic[:2] == b"\x1f\x8b":
        source = gzip.GzipFile(fileobj=packed)
    while piece := source.read(PIECE):
        yield piece


def _described(reader: TarReader, member: tarfile.TarInfo) -> dict[str, Any]:
    return {
        "mode": oct(member.mode),
        "owner": f"{member.uid}:{member.gid}",
        "mtime": int(member.mtime),
        "size": member.size,
        "link": member.linkname,
        "content": _digest(reader.content()) if member.isfile() else "",
    }


def _digest(content: Iterator[bytes]) -> str:
    found = hashlib.sha256()
    for piece in content:
        found.update(piece)
    return found.hexdigest()[:12]
