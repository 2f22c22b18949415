"""Two exports of images → their layers side by side, and the files in which those differ."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from tfimg.errors import EngineRefused

MOST = 20
"""Files that are told of a layer that differs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerPair:
    """A layer of each image at the same height; `files` are up to `MOST` that differ, each with what is different."""

    digests: tuple[str | None, str | None]
    files: tuple[str, ...]
    differing: int

    @property
    def same(self) -> bool:
        """Are they the same bytes?"""
        return self.digests[0] == self.digests[1]


def layer_pairs(first: Path, second: Path) -> Iterator[LayerPair]:
    """The layers of two exported images, lowest first. Raises `EngineRefused` for a file that is no export."""
    with _opened(first) as one, _opened(second) as other:
        left, right = _layers(one, first), _layers(other, second)
        for height in range(max(len(left), len(right))):
            pair = tuple(layers[height] if height < len(layers) else None for layers in (left, right))
            digests = (_name(pair[0]), _name(pair[1]))
            if digests[0] == digests[1]:
                yield LayerPair(digests=digests, files=(), differing=0)
                continue
            found = list(differing(_files(one, pair[0]), _files(other, pair[1])))
            yield LayerPair(digests=digests, files=tuple(found[:MOST]), differing=len(found))


def differing(left: Mapping[str, Mapping[str, Any]], right: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Each path that differs, and what about it: `etc/hosts: mtime 1 and 2`."""
    for path in sorted(left.keys() | right.keys()):
        one, other = left.get(path), right.get(path)
        if one is None or other is None:
            yield f"{path}: only in the {'second' if one is None else 'first'}"
        elif one != other:
            words = [f"{what} {one[what]} and {other[what]}" for what in one if one[what] != other[what]]
            yield f"{path}: {', '.join(words)}"


def _opened(file: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(file)
    except tarfile.TarError:
        raise EngineRefused(f"{file} is no exported image.", next_step="Try again.") from None


def _layers(archive: tarfile.TarFile, file: Path) -> list[str]:
    try:
        listed: list[str] = json.loads(_member(archive, "manifest.json").read())[0]["Layers"]
    except (KeyError, ValueError, IndexError):
        raise EngineRefused(f"{file} is no exported image.", next_step="Try again.") from None
    return listed


def _name(path: str | None) -> str | None:
    return None if path is None else f"sha256:{path.rpartition('/')[2]}"


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    if found is None:
        raise KeyError(name)
    return found


def _files(archive: tarfile.TarFile, path: str | None) -> dict[str, dict[str, Any]]:
    """What a layer holds, by path."""
    if path is None:
        return {}
    packed = _member(archive, path)
    zstd = packed.read(4) == b"\x28\xb5\x2f\xfd"
    packed.seek(0)
    unpacked: Any = zstandard.ZstdDecompressor().stream_reader(packed) if zstd else packed
    mode = "r|" if zstd else "r|*"
    with tarfile.open(fileobj=io.BufferedReader(unpacked) if zstd else unpacked, mode=mode) as layer:  # type: ignore[call-overload]
        return {member.name: _described(layer, member) for member in layer}


def _described(layer: tarfile.TarFile, member: tarfile.TarInfo) -> dict[str, Any]:
    content = layer.extractfile(member) if member.isfile() else None
    return {
        "mode": oct(member.mode),
        "owner": f"{member.uid}:{member.gid}",
        "mtime": int(member.mtime),
        "size": member.size,
        "link": member.linkname,
        "content": _digest(content) if content else "",
    }


def _digest(content: IO[bytes]) -> str:
    found = hashlib.sha256()
    while piece := content.read(1 << 20):
        found.update(piece)
    return found.hexdigest()[:12]
