"""The store of finished layers: an OCI layout that BuildKit takes stages from."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.documents import Digest, Document, InvalidDocument, parse_document
from tfimg.core.files import hash_file, wait_for_lock, write_atomically
from tfimg.layers.blob import Blob

MAX_STORE_BYTES = 20_000_000_000
"""Bytes that the store may hold: the layers of nine sets of NVIDIA's libraries, 1.4 GB each for CUDA 12.2, and those of
the TensorFlows on them."""

STALE_SECONDS = 24 * 60 * 60  # age of a partial file from which on no running build can own it


class _Entry(Document):
    """The file of a key; after a flipped bit, `checksum` does not fit key and layer."""

    layer: Blob
    checksum: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerStore:
    """A folder of layers that several programs may use at once.

    `verified` are the digests of the layers whose files this run has read, or written itself.
    """

    folder: Path
    verified: set[str] = field(default_factory=set, compare=False)

    @property
    def blobs(self) -> Path:
        """The folder with content under its digest."""
        return self.folder / "blobs" / "sha256"

    def prepare(self) -> None:
        """Write the files that make the folder an OCI layout."""
        self.blobs.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / "oci-layout", '{"imageLayoutVersion":"1.0.0"}')
        write_atomically(self.folder / "index.json", '{"schemaVersion":2,"manifests":[]}')

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Exclude other threads and programs from the block of that name."""
        return wait_for_lock(self.folder / "locks" / name, raise_if_cancelled)

    def find(self, key: str) -> Blob | None:
        """Return the layer of a key, if its file still exists; `verify` reads the file."""
        try:
            entry = parse_document(_Entry, (self.folder / "keys" / key).read_bytes())
            os.utime(self._path(entry.layer.digest))  # `prune` keeps what was used last
        except (OSError, InvalidDocument):
            return None
        return entry.layer if entry.checksum == _checksum(key, entry.layer) else None

    def verify(self, blob: Blob) -> bool:
        """Return whether the file of a layer has its digest; remove it if not.

        Each file is read once in a run. The 1.9 GB of an image with CUDA 12.2 take SHA-256 1.1 s of one core (1.8
        GB/s), a hundredth of what packing them takes; an image whose tags and report are up to date is not read.
        """
        if blob.digest in self.verified:
            return True
        path = self._path(blob.digest)
        with suppress(FileNotFoundError):
            if f"sha256:{hash_file(path)}" == blob.digest:
                self.verified.add(blob.digest)
                return True
        path.unlink(missing_ok=True)
        return False

    def add(self, blob: Blob, partial: Path) -> None:
        """Move the file of a finished layer into the store."""
        partial.replace(self._path(blob.digest))
        self.verified.add(blob.digest)

    def set_key(self, key: str, blob: Blob) -> None:
        """Let a key point to a layer."""
        entry = {"layer": asdict(blob), "checksum": _checksum(key, blob)}
        write_atomically(self.folder / "keys" / key, json.dumps(entry))

    def write_stage(self, blobs: Sequence[Blob]) -> str:
        """Write an image of layers, lowest first, and return its address for BuildKit."""
        layers = [{"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size} for blob in blobs]
        rootfs = {"type": "layers", "diff_ids": [blob.diff_id for blob in blobs]}
        config = self._write_document({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs})
        manifest = self._write_document(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **config},
                "layers": layers,
            }
        )
        return f"oci-layout://{self.folder}@{manifest['digest']}"

    def prune(self, limit: int = MAX_STORE_BYTES) -> None:
        """Remove stale files, and layers unused for longest until `limit` bytes are left."""
        self._remove_stale()
        files: list[tuple[os.stat_result, Path]] = []
        for file in _list_folder(self.blobs):
            with suppress(FileNotFoundError):  # another build has evicted it, or has finished writing it
                files.append((file.stat(), file))
        total = 0
        for status, file in sorted(files, key=lambda entry: -entry[0].st_mtime):
            total += status.st_size
            if total > limit:
                file.unlink(missing_ok=True)

    def _remove_stale(self) -> None:
        """Remove partial layers, wheels and folders of killed builds."""
        wheels = _list_folder(self.folder / "wheels")
        paths = [path for path in _list_folder(self.folder) if path.name.startswith("layer-")]
        paths += [*(path for folder in wheels for path in _list_folder(folder)), *wheels]
        for path in paths:
            with suppress(OSError):  # another build has removed it, or uses the folder
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.rmdir() if path.is_dir() else path.unlink()

    def _write_document(self, document: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(document, sort_keys=True)
        digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        write_atomically(self._path(digest), text)
        return {"digest": digest, "size": len(text)}

    def _path(self, digest: str) -> Path:
        return self.blobs / digest.removeprefix("sha256:")


def list_stage_layers(address: str) -> tuple[str, ...]:
    """Return the digests of the layers at an address from `LayerStore.write_stage`, lowest first.

    Returns none if another build has removed them from the store.
    """
    folder, _, digest = address.removeprefix("oci-layout://").rpartition("@")
    try:
        manifest = json.loads((LayerStore(folder=Path(folder)).blobs / digest.removeprefix("sha256:")).read_bytes())
    except FileNotFoundError:
        return ()
    return tuple(layer["digest"] for layer in manifest["layers"])


def _checksum(key: str, blob: Blob) -> str:
    text = json.dumps([key, asdict(blob)], sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _list_folder(folder: Path) -> list[Path]:
    """List a folder; nothing for a file or a removed folder, where `Path.glob` fails."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
