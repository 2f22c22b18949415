"""An image in a registry, read whole: its manifests, whatever it is an index of, and their configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfimg.errors import NotInRegistry, TamperedError
from tfimg.registry.protocol import DOCKER_INDEX, OCI_INDEX, Descriptor, Manifest, Registry, digest_of

INDEXES = frozenset({OCI_INDEX, DOCKER_INDEX})

LARGEST_DOCUMENT = 8 << 20
"""Bytes that a configuration may have; registries take manifests of 4 MiB (distribution specification, "Pushing
manifests"). Ours have less than 20 kB."""

MOST_MANIFESTS = 1000
"""Manifests that one image may refer to. Ours have three: an index, an image, and BuildKit's attestation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformImage:
    """A manifest of an image, with all that it names. `platform` is `linux/amd64`; None of what runs nowhere."""

    manifest: Manifest
    platform: str | None
    configured: Descriptor | None
    config: Mapping[str, Any]
    layers: tuple[Descriptor, ...]

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the configuration."""
        return (self.config.get("config") or {}).get("Labels") or {}

    @property
    def compressed_bytes(self) -> int:
        """Sum over the layers, as a registry sends them."""
        return sum(layer.size for layer in self.layers)


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryImage:
    """What a reference leads to. `indexes` are the root and others that refer to manifests; none where it is one."""

    reference: str
    root: Manifest
    indexes: tuple[Manifest, ...]
    images: tuple[PlatformImage, ...]

    @property
    def digest(self) -> str:
        """Of the manifest or index that the reference leads to: what a person pulls."""
        return self.root.digest

    @property
    def platforms(self) -> tuple[PlatformImage, ...]:
        """The images that run somewhere."""
        return tuple(image for image in self.images if image.platform is not None)

    @property
    def labels(self) -> Mapping[str, str]:
        """What the image says of itself; of several platforms, what the first says."""
        return next((image.labels for image in self.platforms), {})


def open_image(registry: Registry, reference: str) -> RegistryImage:
    """Read an image's documents, and none of its layers.

    Raises `NotInRegistry` where a manifest is missing, and `TamperedError` where a document is none.
    """
    indexes: list[Manifest] = []
    images: list[PlatformImage] = []
    root = _manifest(registry, reference)
    waiting: list[tuple[Manifest, Mapping[str, Any]]] = [(root, {})]
    seen = {root.digest}
    while waiting:
        manifest, platform = waiting.pop(0)
        if manifest.media_type not in INDEXES:
            images.append(_image(registry, manifest, platform))
            continue
        indexes.append(manifest)
        for entry in _document(manifest.content, manifest.digest).get("manifests") or ():
            if entry["digest"] not in seen and len(seen) < MOST_MANIFESTS:
                seen.add(entry["digest"])
                waiting.append((_manifest(registry, entry["digest"]), entry.get("platform") or {}))
    return RegistryImage(reference=reference, root=root, indexes=tuple(indexes), images=tuple(images))


def _manifest(registry: Registry, reference: str) -> Manifest:
    manifest = registry.find(reference)
    if manifest is None:
        raise NotInRegistry(
            f"{registry.repository} has no {reference}.",
            next_step="Check the name; a tag that was just moved may need a moment.",
        )
    return manifest


def _image(registry: Registry, manifest: Manifest, platform: Mapping[str, Any]) -> PlatformImage:
    document = _document(manifest.content, manifest.digest)
    configured = descriptor(document["config"]) if document.get("config") else None
    config = _document(read_blob(registry, configured), configured.digest) if configured else {}
    # Of a single manifest, its configuration alone tells the platform.
    system = str(platform.get("os") or config.get("os") or "unknown")
    machine = str(platform.get("architecture") or config.get("architecture") or "unknown")
    return PlatformImage(
        manifest=manifest, platform=None if "unknown" in (system, machine) else f"{system}/{machine}",
        configured=configured, config=config,
        layers=tuple(descriptor(layer) for layer in document.get("layers") or ()),
    )  # fmt: skip


def descriptor(document: Mapping[str, Any]) -> Descriptor:
    """A descriptor as it stands in a manifest."""
    return Descriptor(
        media_type=str(document.get("mediaType", "")), digest=str(document["digest"]), size=int(document["size"]),
        annotations=document.get("annotations") or {}, artifact_type=document.get("artifactType"),
    )  # fmt: skip


def read_blob(registry: Registry, blob: Descriptor, largest: int = LARGEST_DOCUMENT) -> bytes:
    """A small blob, whole. Raises `TamperedError` for one that is larger than it may be, or than is said of it."""
    content = b""
    for piece in registry.blob(blob.digest):
        content += piece
        if len(content) > largest:
            raise TamperedError(
                f"{blob.digest} has more than {largest >> 20} MiB where a document is.",
                next_step="Do not use it.",
            )
    if digest_of(content) != blob.digest:
        raise TamperedError(
            f"{blob.digest} has other bytes than its digest says.", next_step="Do not use it."
        )
    return content


def _document(content: bytes, digest: str) -> Mapping[str, Any]:
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise TamperedError(f"{digest} is no JSON object.", next_step="Push the image again.")
    return document


def all_layers(images: Sequence[PlatformImage]) -> tuple[Descriptor, ...]:
    """The layers of several images, each once, in the order in which they first come."""
    return tuple({layer.digest: layer for image in images for layer in image.layers}.values())
