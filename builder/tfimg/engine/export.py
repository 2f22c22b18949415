"""The layers that an engine's store holds: read where the store lies, else from what the engine exports.

No call of the engine's tells media types before Docker 28, and an export of a GPU image takes half a minute.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfimg.engine.pieces import as_file
from tfimg.engine.protocol import StoredLayer
from tfimg.errors import BaseError

CONTENT = "io.containerd.content.v1.content/blobs"
"""Where containerd keeps content below its root, as `ALGORITHM/HEX` (containerd's docs/content-flow.md)."""

SMALL = 1_000_000
"""Bytes below which a file of an export may be a JSON document and is kept. Manifests and configurations of our
images have less than 10 kB."""


def stored_layers(digest: str, roots: Sequence[Path]) -> tuple[StoredLayer, ...] | None:
    """The layers of a manifest in a containerd store below one of `roots`, base first.

    None where this machine has no such store that it may read, or the store lacks something of the image.
    """
    for root in roots:
        try:
            return _stored(digest, root / CONTENT)
        except OSError:
            continue
    return None


def _stored(digest: str, content: Path) -> tuple[StoredLayer, ...]:
    def blob(digest: str) -> Path:
        return content.joinpath(*digest.split(":"))

    manifest = json.loads(blob(digest).read_text())
    if "layers" not in manifest:  # an index of platforms: ours have one
        manifest = json.loads(blob(manifest["manifests"][0]["digest"]).read_text())
    # The size is that of what lies there, not what the manifest says of it.
    return tuple(
        StoredLayer(
            digest=layer["digest"], media_type=layer["mediaType"], size=blob(layer["digest"]).stat().st_size
        )
        for layer in manifest["layers"]
    )


def unpacked_layers(diff_ids: Sequence[str], store: Path) -> tuple[StoredLayer, ...] | None:
    """The layers of an image in a classic store that keeps its notes on layers in `store`; sizes are of their files.

    None where this machine has no such store that it may read, or the store lacks one. A layer is found by the digest
    of all that is below it and its own, its chain id (OCI image specification, config.md).
    """
    layers, chain = [], ""
    try:
        for diff_id in diff_ids:
            chain = (
                f"sha256:{hashlib.sha256(f'{chain} {diff_id}'.encode()).hexdigest()}" if chain else diff_id
            )
            size = int(store.joinpath(*chain.split(":"), "size").read_text())
            layers.append(StoredLayer(digest=diff_id, media_type="tar", size=size))
    except (OSError, ValueError):
        return None
    return tuple(layers)


def read_layers(pieces: Iterator[bytes]) -> tuple[StoredLayer, ...]:
    """The layers of an exported image, base first, from the pieces of the export as they come."""
    documents, sizes = _read(pieces)
    if "index.json" not in documents:
        names = json.loads(documents["manifest.json"])[0]["Layers"]
        return tuple(StoredLayer(digest=name, media_type="tar", size=sizes[name]) for name in names)
    descriptor = json.loads(documents["index.json"])["manifests"][0]
    manifest = json.loads(documents[_blob(descriptor["digest"])])
    if "layers" not in manifest:  # an index of platforms: ours have one
        manifest = json.loads(documents[_blob(manifest["manifests"][0]["digest"])])
    return tuple(
        StoredLayer(digest=layer["digest"], media_type=layer["mediaType"], size=sizes[_blob(layer["digest"])])
        for layer in manifest["layers"]
    )


def lay_out(pieces: Iterator[bytes], folder: Path) -> str:
    """Write an exported image as an OCI image layout, and return its digest.

    Raises `BaseError` when the export is no OCI image layout (engines before 25 with the classic store), and for a
    file that would lie outside of `folder`.
    """
    # Not `extractall`: its filters came with Python 3.11.4, and Debian 12 has 3.11.2. A layout has plain files alone.
    with tarfile.open(fileobj=as_file(pieces), mode="r|") as archive:
        for member in archive:
            if member.isfile() and (file := archive.extractfile(member)):
                target = folder / member.name
                if not target.resolve().is_relative_to(folder.resolve()):
                    raise BaseError(
                        f"The engine's export of its base has a file outside of the image: {member.name!r}.",
                        next_step="Take the base from a registry that both reach (--base registry).",
                    )
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as out:
                    shutil.copyfileobj(file, out)
    if not (folder / "index.json").exists():
        raise BaseError(
            "The engine cannot hand its base to a builder elsewhere: it exports no OCI image layout.",
            next_step="Take the base from a registry that both reach (--base registry), or upgrade the engine.",
        )
    return str(json.loads((folder / "index.json").read_text())["manifests"][0]["digest"])


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _read(pieces: Iterator[bytes]) -> tuple[dict[str, bytes], dict[str, int]]:
    """An image export → its small files by name, and the size of every file in bytes."""
    documents, sizes = {}, {}
    with tarfile.open(fileobj=as_file(pieces), mode="r|") as archive:
        for member in archive:
            sizes[member.name] = member.size
            if member.isfile() and member.size < SMALL and (file := archive.extractfile(member)):
                documents[member.name] = file.read()
    return documents, sizes
