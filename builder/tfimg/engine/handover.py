"""Hand layers over: to an engine in an archive, to a builder as an OCI layout in a session.

containerd keeps what arrived of a layer whose transfer was interrupted, for a day, and BuildKit continues there. It
cannot read an OCI layout of its client from the middle, however: `util/contentutil/fetcher.go` asks the reader for a
Seeker, and the reader of `source/containerimage/ocilayout.go` cannot seek ("unsupported offset"; so in BuildKit 0.13,
and in moby/buildkit at 73ed6825c of 2026-08-21). So each build that needs the layer fails, until the engine is
restarted or a day has passed.

An engine's API takes layers in an archive, whose beginning it skips where it has it already. A builder has no such API:
it gets a base that no registry has as a layout, and, after an interruption, the same files under another digest.
"""

import gzip
import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from secrets import randbits
from typing import Any

from tfimg.core.documents import OCI_CONFIG, OCI_MANIFEST, blob_path
from tfimg.core.files import digest_of, name_in_errors, read_pieces, write_atomically
from tfimg.core.tar import END, stream_member
from tfimg.core.text import canonical_json
from tfimg.engine.export import extract_layout
from tfimg.matrix.schema import Platform

SCHEME = "oci-layout://"  # scheme of a build context that is an image of an OCI layout on this machine: FOLDER@DIGEST

SALTS = (1, 2, 3)
"""Salts that are tried in turn. Images that share layers share the salted ones too; each interruption uses up one."""

SKIPPABLE = 0x184D2A50  # magic number of a frame that decoders of Zstandard skip (RFC 8878, 3.1.2)

PIECE = 1 << 20  # bytes read at a time

_NAME = "io.containerd.image.name"  # annotation by which engines name the image of an archive


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageLayer:
    """A layer of an image to load: its descriptor, the digest of the tar inside, its file, and what made it."""

    media_type: str
    digest: str
    size: int
    diff_id: str
    file: Path
    made_by: str = ""


def read_steps(archive: Path, folder: Path) -> tuple[dict[str, Any], list[ImageLayer]]:
    """Return the configuration and the layers, lowest first, of an image that a build has written as an OCI archive.

    Its files go to `folder`.
    """
    with archive.open("rb") as file:
        digest = extract_layout(iter(partial(file.read, PIECE), b""), folder)
    manifest = json.loads((folder / blob_path(digest)).read_bytes())
    config = json.loads((folder / blob_path(manifest["config"]["digest"])).read_bytes())
    layers = [
        ImageLayer(
            media_type=layer["mediaType"], digest=layer["digest"], size=layer["size"], diff_id=diff_id,
            file=folder / blob_path(layer["digest"]),
        )
        for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True)
    ]  # fmt: skip
    return config, layers


def insert_layers(
    config: Mapping[str, Any], layers: Sequence[ImageLayer], *, below: Sequence[ImageLayer], above: Sequence[ImageLayer]
) -> tuple[dict[str, Any], list[ImageLayer]]:
    """Return an image with other layers below its first one, and above it."""
    first = next((number for number, step in enumerate(config["history"]) if not step.get("empty_layer")), 0)
    steps = config["history"]
    lower, upper = (
        [{"created": config["created"], "created_by": layer.made_by} for layer in some] for some in (below, above)
    )
    every = [*below, *layers[:1], *above, *layers[1:]]
    return {
        **config,
        "history": [*steps[:first], *lower, *steps[first : first + 1], *upper, *steps[first + 1 :]],
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in every]},
    }, every


def make_plain_config(layers: Sequence[ImageLayer], platform: Platform) -> dict[str, Any]:
    """Return the configuration of an image of layers, lowest first, that has no settings."""
    system, _, processor = platform.partition("/")
    rootfs = {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]}
    return {"architecture": processor, "os": system, "config": {}, "rootfs": rootfs}


def stream_image(
    name: str, layers: Sequence[ImageLayer], config: Mapping[str, Any], *, loaded: int = 0
) -> Iterator[bytes]:
    """Yield an archive, as `docker load` takes it, of an image of layers, lowest first.

    The files of as many layers as an engine has `loaded` under the same name are left out.
    """
    content = canonical_json(config)
    described = {"mediaType": OCI_CONFIG, "digest": digest_of(content), "size": len(content)}
    entries = [{"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size} for layer in layers]
    manifest = canonical_json({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": entries})
    # containerd keeps a name with the registry, which is Docker Hub where none is named.
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not set(first) & set(".:") and first != "localhost":
        name = f"docker.io/{name}"
    entry = {
        "mediaType": OCI_MANIFEST,
        "digest": digest_of(manifest),
        "size": len(manifest),
        "annotations": {_NAME: name},
    }
    documents = {
        "oci-layout": canonical_json({"imageLayoutVersion": "1.0.0"}),
        "index.json": canonical_json({"schemaVersion": 2, "manifests": [entry]}),
        blob_path(digest_of(manifest)): manifest,
        blob_path(digest_of(content)): content,
    }
    for path, text in documents.items():
        yield from stream_member(path, len(text), [text])
    files = {layer.digest: layer.file for layer in layers[loaded:]}
    for digest, file in files.items():
        yield from stream_member(blob_path(digest), file.stat().st_size, read_pieces(file))
    yield END


def list_salts() -> Iterator[int]:
    """Yield the salts to try: those that other builds try too, and one that has never been tried."""
    yield from SALTS
    yield randbits(31)


def salt_contexts(contexts: Mapping[str, str], salt: int) -> dict[str, str]:
    """Return contexts whose layers have the same files and other digests; the layouts keep both."""
    salted = {}
    for name, address in contexts.items():
        folder, manifest = _read_layout(address)
        layers = [_salt_layer(folder, layer, salt) for layer in manifest["layers"]]
        content = canonical_json({**manifest, "layers": layers})
        digest = digest_of(content)
        write_atomically(folder / blob_path(digest), content.decode())
        salted[name] = f"{SCHEME}{folder}@{digest}"
    return salted


def _salt_layer(folder: Path, layer: Mapping[str, Any], salt: int) -> dict[str, Any]:
    """Write a layer with something at its end that decompression ignores, and return its descriptor."""
    media_type = layer["mediaType"]
    pieces: Iterable[bytes] = read_pieces(folder / blob_path(layer["digest"]))
    if not media_type.endswith(("gzip", "zstd")):  # its digest is that of its files
        media_type = f"{media_type}+gzip"
        pieces = (gzip.compress(piece, 1, mtime=0) for piece in pieces)
    # A skipped frame, or an empty member (RFC 1952, 2.2).
    is_zstd = media_type.endswith("zstd")
    end = struct.pack("<III", SKIPPABLE, 4, salt) if is_zstd else gzip.compress(b"", mtime=salt)
    whole, size = hashlib.sha256(), 0
    partial = folder / f"layer-{randbits(64):016x}"
    try:
        with name_in_errors(partial), partial.open("wb") as sink:
            for piece in chain(pieces, [end]):
                whole.update(piece)
                size += sink.write(piece)
        digest = f"sha256:{whole.hexdigest()}"
        partial.replace(folder / blob_path(digest))
    finally:
        partial.unlink(missing_ok=True)
    return {**layer, "mediaType": media_type, "digest": digest, "size": size}


def _read_layout(address: str) -> tuple[Path, dict[str, Any]]:
    """Return the folder and the manifest of a context that tfimg has written itself."""
    folder, _, digest = address.removeprefix(SCHEME).rpartition("@")
    manifest: dict[str, Any] = json.loads(Path(folder, blob_path(digest)).read_bytes())
    return Path(folder), manifest
