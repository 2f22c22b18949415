"""Compare two exported images layer by layer, and list the files that differ."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import EngineError
from tfimg.core.files import open_chunks
from tfimg.core.tar import InvalidArchive, TarReader, read_member
from tfimg.engine.docker.export import saved_image
from tfimg.inspect.compression import MAGIC_BYTES, decompress, recognise
from tfimg.inspect.limits import Budget, Limits

MAX_MANIFEST = 1 << 20

MAX_LISTED = 20
"""Files that are listed of a layer that differs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerComparison:
    """The layers of two images at the same height; `files` describes up to `MAX_LISTED` of `differing` files."""

    digests: tuple[str | None, str | None]
    files: tuple[str, ...]
    differing: int

    @property
    def same(self) -> bool:
        """Whether the layers are identical."""
        return self.digests[0] == self.digests[1]


def compare_layers(first: Path, second: Path) -> Iterator[LayerComparison]:
    """Yield the layers of two exported images, lowest first. Raises `EngineError` for any other file."""
    one, other = _Export(first), _Export(second)
    for left, right in zip_longest(one.layers, other.layers):
        digests = (_digest(left), _digest(right))
        changes = [] if digests[0] == digests[1] else list(_changed_files(one.files(left), other.files(right)))
        yield LayerComparison(digests=digests, files=tuple(changes[:MAX_LISTED]), differing=len(changes))


def _changed_files(left: Mapping[str, Mapping[str, Any]], right: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield each path that differs, with its differences: `etc/hosts: mtime 1 and 2`."""
    for path in sorted(left.keys() | right.keys()):
        one, other = left.get(path), right.get(path)
        if one is None or other is None:
            yield f"{path}: only in the {'second' if one is None else 'first'}"
        elif one != other:
            words = [f"{field} {one[field]} and {other[field]}" for field in one if one[field] != other[field]]
            yield f"{path}: {', '.join(words)}"


def _digest(layer: str | None) -> str | None:
    return None if layer is None else f"sha256:{layer.rpartition('/')[2]}"


class _Export:
    """The files of an exported image, in an uncompressed tar archive; `layers` are names, lowest first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                self._members = {member.name: member for member in TarReader(file)}
            if self._members["manifest.json"].size > MAX_MANIFEST:
                raise self._error()
            self.layers = saved_image(b"".join(self._content("manifest.json"))).layers
        except (InvalidArchive, InvalidDocument, KeyError):
            raise self._error() from None

    def files(self, layer: str | None) -> dict[str, dict[str, Any]]:
        """Return the files of a layer by path."""
        if layer is None:
            return {}
        try:
            packed = open_chunks(self._content(layer))
            compression = recognise(packed.peek(MAGIC_BYTES))
            source = open_chunks(decompress(packed, compression, Budget(Limits()))) if compression else packed
            reader = TarReader(source)
            return {member.name: _describe(reader, member) for member in reader}
        except (InvalidArchive, KeyError):
            raise self._error() from None

    def _content(self, name: str) -> Iterator[bytes]:
        return read_member(self._path, self._members[name])

    def _error(self) -> EngineError:
        return EngineError(f"{self._path} is not an exported image.", next_step="Try again.")


def _describe(reader: TarReader, member: tarfile.TarInfo) -> dict[str, Any]:
    content = hashlib.sha256()
    for piece in reader.content():
        content.update(piece)
    return {
        "mode": oct(member.mode),
        "owner": f"{member.uid}:{member.gid}",
        "mtime": int(member.mtime),
        "size": member.size,
        "link": member.linkname,
        "content": content.hexdigest()[:12] if member.isfile() else "",
    }
