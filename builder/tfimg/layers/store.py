"""Layers that were made, kept as an OCI layout that BuildKit takes stages from."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tfimg.core.documents import Digest, Document, InvalidDocument, parse_document
from tfimg.core.paths import exclusive, write_atomically
from tfimg.layers.blob import Blob

MAX_STORE_BYTES = 20_000_000_000
"""What the store may hold: the layers of nine sets of NVIDIA's libraries, 1.4 GB each for CUDA 12.2, and those of the
TensorFlows on them."""


PIECE = 4 << 20
"""Bytes at a time."""

STALE_SECONDS = 24 * 60 * 60
"""The age of a file at which nobody is at work on it any more."""


class _Entry(Document):
    """The file of a key. `checksum` is over key and layer: a flipped bit must not describe another layer."""

    layer: Blob
    checksum: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerStore:
    """The folder that holds layers. Several programs may use it at once: files appear in one step.

    `verified` are the digests of the layers whose files this run has read, or written itself.
    """

    folder: Path
    verified: set[str] = field(default_factory=set, compare=False)

    @property
    def blobs(self) -> Path:
        """Where content lies under its digest."""
        return self.folder / "blobs" / "sha256"

    def prepare(self) -> None:
        """Make an empty layout where there is none."""
        self.blobs.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / "oci-layout", '{"imageLayoutVersion":"1.0.0"}')
        write_atomically(self.folder / "index.json", '{"schemaVersion":2,"manifests":[]}')

    def find(self, key: str) -> Blob | None:
        """Return the layer that was made under a key, if it is still here. `verify` reads its file."""
        try:
            entry = parse_document(_Entry, (self.folder / "keys" / key).read_bytes())
            os.utime(self._path(entry.layer.digest))  # was of use just now
        except (OSError, InvalidDocument):
            return None
        return entry.layer if entry.checksum == _checksum(key, entry.layer) else None

    def verify(self, blob: Blob, go_on: Callable[[], None]) -> bool:
        """Return whether the file of a layer has its size and digest; remove it if not. Read once in a run.

        The 1.9 GB of an image with CUDA 12.2 take SHA-256 1.1 s of one core (1.8 GB/s), a hundredth of what packing
        them takes; an image whose tags and report are there already is not read. `go_on` is called for each piece, and
        raises where the layer is not wanted any more.
        """
        if blob.digest in self.verified:
            return True
        path, digest = self._path(blob.digest), hashlib.sha256()
        with suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
            while piece := file.read(PIECE):
                go_on()
                digest.update(piece)
            if file.tell() == blob.size and f"sha256:{digest.hexdigest()}" == blob.digest:
                self.verified.add(blob.digest)
                return True
        path.unlink(missing_ok=True)
        return False

    def keep(self, key: str, blob: Blob, partial: Path) -> None:
        """Take a finished layer in, under a key."""
        partial.replace(self._path(blob.digest))
        self.verified.add(blob.digest)
        self.remember(key, blob)

    def remember(self, key: str, blob: Blob) -> None:
        """Let another key lead to a layer."""
        entry = {"layer": asdict(blob), "checksum": _checksum(key, blob)}
        write_atomically(self.folder / "keys" / key, json.dumps(entry))

    def stage(self, blobs: Sequence[Blob], *, architecture: str) -> str:
        """Write an image of layers, lowest first, and return where BuildKit finds it."""
        return f"oci-layout://{self.folder}@{self._image(blobs, architecture)}"

    def _image(self, blobs: Sequence[Blob], architecture: str) -> str:
        config = self._put(
            {
                "architecture": architecture,
                "os": "linux",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [blob.diff_id for blob in blobs]},
            }
        )
        layers = [{"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size} for blob in blobs]
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **config},
            "layers": layers,
        }
        return str(self._put(manifest)["digest"])

    @contextmanager
    def exclusive(self, name: str, go_on: Callable[[], None]) -> Iterator[None]:
        """Let nobody else, in this program or another, into the block of that name; `go_on` may end the waiting."""
        with exclusive(self.folder / "locks" / name, go_on):
            yield

    def prune(self, limit: int = MAX_STORE_BYTES) -> None:
        """Remove the layers whose last use is the longest ago until `limit` bytes are left, and what a kill left."""
        self._remove_stale()
        files = sorted(self._files(), key=lambda one: -one[0].st_mtime)
        kept = 0
        for status, file in files:
            kept += status.st_size
            if kept > limit:
                file.unlink(missing_ok=True)

    def _remove_stale(self) -> None:
        """Remove what killed builds left: partial layers, wheels, and the folders of these builds."""
        wheels = _entries(self.folder / "wheels")
        paths = [path for path in _entries(self.folder) if path.name.startswith("layer-")]
        paths += [*(path for folder in wheels for path in _entries(folder)), *wheels]
        for path in paths:
            with suppress(FileNotFoundError):  # another build has removed it
                if time.time() - path.stat().st_mtime <= STALE_SECONDS:
                    continue
                if not path.is_dir():
                    path.unlink()
                elif not _entries(path):
                    path.rmdir()

    def _files(self) -> Iterator[tuple[os.stat_result, Path]]:
        for file in self.blobs.iterdir():
            try:
                status = file.stat()
            except FileNotFoundError:  # another build has evicted it, or has finished writing it
                continue
            yield status, file

    def _put(self, document: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(document, sort_keys=True)
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        write_atomically(self._path(digest), text)
        return {"digest": digest, "size": len(text)}

    def _path(self, digest: str) -> Path:
        return self.blobs / digest.removeprefix("sha256:")


def _checksum(key: str, blob: Blob) -> str:
    text = json.dumps([key, asdict(blob)], sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _entries(folder: Path) -> list[Path]:
    """List a folder; nothing for a file, or for a folder that another build has removed. `Path.glob` fails there."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
