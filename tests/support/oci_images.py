"""Small images in a registry in memory, for tests of what looks into images."""

import gzip
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import zstandard

from support.memory_registry import MemoryRegistry
from tfimg.registry.documents import OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, Manifest, digest_of

Packing = Literal["zstd", "gzip", "plain"]
PACKINGS: tuple[Packing, ...] = ("zstd", "gzip", "plain")
SUFFIX = {"zstd": "+zstd", "gzip": "+gzip", "plain": ""}


def archive(files: Mapping[str, bytes], times: Mapping[str, int] | None = None) -> bytes:
    """A tar of files, with their times of modification."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), (times or {}).get(name, 0)
            tar.addfile(info, io.BytesIO(content))
    return written.getvalue()


def compress(content: bytes, packing: Packing) -> bytes:
    if packing == "zstd":
        return zstandard.ZstdCompressor().compress(content)
    return gzip.compress(content, mtime=0) if packing == "gzip" else content


def export_layers(*layers: bytes, documents: Mapping[str, bytes] | None = None) -> Iterator[bytes]:
    """An image as an engine exports it, in pieces: the bytes of its layers, and other files by name."""
    names = [f"{number}/layer.tar" for number, _ in enumerate(layers)]
    listed = json.dumps([{"Config": "c.json", "RepoTags": None, "Layers": names}]).encode()
    files = {"c.json": b"{}", **dict(zip(names, layers, strict=True)), "manifest.json": listed, **(documents or {})}
    content = archive(files)
    return (content[at : at + 999] for at in range(0, len(content), 999))


def put_document(registry: MemoryRegistry, document: Mapping[str, Any]) -> dict[str, Any]:
    content = json.dumps(document).encode()
    blob = registry.put_blob(content)
    return {"mediaType": OCI_CONFIG, "digest": blob.digest, "size": blob.size}


def put_image(
    registry: MemoryRegistry,
    tag: str | None,
    layers: Sequence[Mapping[str, bytes]] = ({"etc/hello": b"hello\n"},),
    *,
    packing: Packing = "zstd",
    config: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    history: Sequence[Mapping[str, Any]] = (),
    platform: str = "linux/amd64",
    created: str = "2026-11-01T00:00:00Z",
) -> Manifest:
    """Put an image of layers, lowest first, and point a tag to it."""
    system, architecture = platform.split("/")
    described, diff_ids = [], []
    for files in layers:
        content = archive(files)
        diff_ids.append(digest_of(content))
        blob = registry.put_blob(compress(content, packing))
        kind = f"application/vnd.oci.image.layer.v1.tar{SUFFIX[packing]}"
        described.append({"mediaType": kind, "digest": blob.digest, "size": blob.size})
    configured = put_document(
        registry,
        {
            "architecture": architecture, "os": system, "created": created, "config": dict(config or {}),
            "rootfs": {"type": "layers", "diff_ids": diff_ids}, "history": list(history),
        },
    )  # fmt: skip
    document = {
        "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": configured, "layers": described,
        **({"annotations": dict(annotations)} if annotations else {}),
    }  # fmt: skip
    manifest = Manifest(media_type=OCI_MANIFEST, content=json.dumps(document).encode())
    registry.put(tag or manifest.digest, manifest)
    return manifest


def put_index(
    registry: MemoryRegistry, tag: str, manifests: Mapping[str, Manifest], annotations: Mapping[str, str] | None = None
) -> Manifest:
    """Put an index of manifests by platform."""
    entries = []
    for platform, manifest in manifests.items():
        system, architecture = platform.split("/")
        entries.append(
            {
                "mediaType": manifest.media_type, "digest": manifest.digest, "size": len(manifest.content),
                "platform": {"os": system, "architecture": architecture},
            }
        )  # fmt: skip
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": entries,
        "annotations": dict(annotations or {}),
    }
    index = Manifest(media_type=OCI_INDEX, content=json.dumps(document).encode())
    registry.put(tag, index)
    return index
