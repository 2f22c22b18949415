"""Layers → an engine, as the stages of a Dockerfile: out of an OCI layout, or as images that it is given."""

from __future__ import annotations

import hashlib
import json
import tarfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tfimg.engine.protocol import Engine, Store
from tfimg.layers.blob import Blob
from tfimg.layers.make import MadeLayer, Told
from tfimg.layers.store import LayerStore
from tfimg.recipe.layout import Compression, Packing

IMAGES = "tfimg/layers"
"""Repository of the names that layers have in a classic store."""

PIECE = 1 << 20
"""Bytes at a time."""

Chain = Sequence[str]
"""The diff ids of an image's layers, lowest first."""


def packing(store: Store, compression: Compression) -> Packing:
    """How layers come the fastest into a store: the classic one would only have to unpack them."""
    return compression if store == "containerd" else "none"


def hand_over(
    made: Sequence[MadeLayer], store: LayerStore, engine: Engine, kind: Store, *, on_event: Told
) -> dict[str, str]:
    """Stage of the Dockerfile → where BuildKit finds it, as `--build-context` has it.

    The containerd store takes layers as they are while it builds. A classic one is given them before, as images, since
    BuildKit would unpack them where that store cannot use them; `on_event` is told of that as of making a layer.
    """
    stages = _stages(made)
    if kind == "containerd":
        return {stage: store.stage(blobs, architecture="amd64") for stage, blobs in stages.items()}
    names = {stage: _name(store.config(blobs, architecture="amd64")) for stage, blobs in stages.items()}
    missing = {names[stage]: blobs for stage, blobs in stages.items() if engine.digest(names[stage]) is None}
    if missing:
        on_event("handed over", "started", 0.0)
        begin = time.monotonic()
        engine.load(archive(missing, store, present=engine.chains(IMAGES)))
        on_event("handed over", "done", time.monotonic() - begin)
    return {stage: f"docker-image://{name}" for stage, name in names.items()}


def _stages(made: Sequence[MadeLayer]) -> dict[str, list[Blob]]:
    full = [one for one in made if one.blob.files]
    return {
        "wheels": [one.blob for one in full],
        "code": [one.blob for one in full if not one.layer.shared],
    }


def archive(
    images: Mapping[str, Sequence[Blob]], store: LayerStore, *, present: Collection[Chain]
) -> Iterator[bytes]:
    """Images as `docker load` takes them, piece by piece.

    Without the layers that lie in one of the chains which are `present` above the same ones: an engine that has them
    does not look for their files.
    """
    listed = []
    wanted: dict[str, Blob] = {}
    for name, blobs in images.items():
        config = store.config(blobs, architecture="amd64")
        file = f"{name.rpartition(':')[2]}.json"
        listed.append({"Config": file, "RepoTags": [name], "Layers": [_file(blob) for blob in blobs]})
        yield from _member(file, len(config), [config])
        known = max((_shared([blob.diff_id for blob in blobs], chain) for chain in present), default=0)
        wanted |= {blob.digest: blob for blob in blobs[known:]}
    for blob in wanted.values():
        yield from _member(_file(blob), blob.size, store.read(blob, PIECE))
    manifest = json.dumps(listed).encode()
    yield from _member("manifest.json", len(manifest), [manifest])
    yield bytes(2 * tarfile.BLOCKSIZE)


def _name(config: bytes) -> str:
    return f"{IMAGES}:{hashlib.sha256(config).hexdigest()[:12]}"


def _shared(one: Chain, other: Chain) -> int:
    """How many lowest layers two chains have in common."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _file(blob: Blob) -> str:
    return f"{blob.digest.removeprefix('sha256:')}/layer.tar"


def _member(name: str, size: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    info.size = size
    yield info.tobuf(tarfile.USTAR_FORMAT)
    yield from pieces
    yield bytes(-size % tarfile.BLOCKSIZE)
