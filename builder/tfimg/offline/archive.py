"""What an image needs where there is no network: the image, its evidence and public keys, as files of one archive."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tfimg.contents.images import PlatformImage, RegistryImage, descriptor, open_image
from tfimg.evidence.cosign_tags import ATTESTATIONS, SIGNATURES, tag_of
from tfimg.evidence.keys import VerifyingKey
from tfimg.offline.layout import FULL_NAME, INDEX, KEYS, MARKER, REF_NAME
from tfimg.registry.protocol import Descriptor, Manifest, Registry, digest_of

LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
"""Of the image specification, image-layout.md."""

Pieces = Callable[[], Iterator[bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A file of the archive: its name, and how its content is had. Its size and digest are known before."""

    name: str
    size: int
    digest: str
    pieces: Pieces


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """All files of an archive, in their order: documents first, so that they are found soon. `digest` is the image's.

    `evidence` counts what refers to the image.
    """

    digest: str
    entries: tuple[Entry, ...]
    evidence: int

    @property
    def size(self) -> int:
        """Bytes of content."""
        return sum(entry.size for entry in self.entries)


def collect_image(
    registry: Registry, reference: str, *, tag: str | None, keys: Sequence[VerifyingKey]
) -> Archive:
    """An image with all that speaks of it. `tag` is what the archive calls it; None where it has no name.

    Of the same image and keys it is the same archive, byte for byte. Raises what a `Registry` does.
    """
    image = open_image(registry, reference)
    spoken = list(_evidence(registry, image))
    listed = [_root(image, registry.repository, tag), *(described for described, _ in spoken)]
    blobs = {
        blob.digest: blob for blob in (*_blobs(image.images), *_blobs_of(manifest for _, manifest in spoken))
    }
    manifests = (
        *image.indexes,
        *(one.manifest for one in image.images),
        *(manifest for _, manifest in spoken),
    )
    entries = [
        *_frame(image, listed, tag, registry.repository),
        *(_held(f"{KEYS}{_file_name(key)}.pub", key.pem) for key in keys),
        *{one.digest: _held(_place(one.digest), one.content) for one in manifests}.values(),
        *(
            _fetched(registry, blob)
            for blob in sorted(blobs.values(), key=lambda blob: (blob.size, blob.digest))
        ),
    ]
    return Archive(digest=image.digest, entries=tuple(entries), evidence=len(spoken))


def image_alone(registry: Registry, digest: str, *, repository: str, tag: str) -> Archive:
    """An image for an engine, which would take evidence for images: as a layout, and as `docker save` has it."""
    image = open_image(registry, digest)
    blobs = _blobs(image.images)
    manifests = (*image.indexes, *(one.manifest for one in image.images))
    entries = (
        *_frame(image, [_root(image, repository, tag)], tag, repository),
        *{one.digest: _held(_place(one.digest), one.content) for one in manifests}.values(),
        *{blob.digest: _fetched(registry, blob) for blob in blobs}.values(),
    )
    return Archive(digest=image.digest, entries=entries, evidence=0)


def _frame(
    image: RegistryImage, listed: Sequence[Descriptor], tag: str | None, repository: str
) -> Iterator[Entry]:
    """What says what the rest is. manifest.json is for engines with the classic store, which read nothing else."""
    index = {"schemaVersion": 2, "manifests": [one.document() for one in listed]}
    yield _held(MARKER, LAYOUT)
    yield _held(INDEX, json.dumps(index, sort_keys=True).encode())
    names = [f"{repository}:{tag}"] if tag else []
    saved = [
        {
            "Config": _place(one.configured.digest), "RepoTags": names,
            "Layers": [_place(layer.digest) for layer in one.layers],
        }
        for one in image.platforms[:1] if one.configured
    ]  # fmt: skip
    yield _held("manifest.json", json.dumps(saved, sort_keys=True).encode())


def _root(image: RegistryImage, repository: str, tag: str | None) -> Descriptor:
    root = image.root
    names = (
        {REF_NAME: tag, FULL_NAME: f"{repository}:{tag}"}
        if tag
        else {FULL_NAME: f"{repository}@{root.digest}"}
    )
    return Descriptor(
        media_type=root.media_type, digest=root.digest, size=len(root.content), annotations=names
    )


def _evidence(registry: Registry, image: RegistryImage) -> Iterator[tuple[Descriptor, Manifest]]:
    """Every manifest that refers to the image or to one of its platforms', and those under cosign's tags."""
    seen: set[str] = set()
    for digest in dict.fromkeys([image.digest, *(one.manifest.digest for one in image.images)]):
        for found in registry.referrers(digest):
            manifest = registry.find(found.digest)
            if manifest and found.digest not in seen:
                seen.add(found.digest)
                yield replace(found, size=len(manifest.content)), manifest
        for tag in (tag_of(digest, ATTESTATIONS), tag_of(digest, SIGNATURES)):
            if manifest := registry.find(tag):
                described = Descriptor(
                    media_type=manifest.media_type, digest=manifest.digest, size=len(manifest.content),
                    annotations={REF_NAME: tag},
                )  # fmt: skip
                yield described, manifest


def _blobs(images: Sequence[PlatformImage]) -> list[Descriptor]:
    return [blob for one in images for blob in (one.configured, *one.layers) if blob]


def _blobs_of(manifests: Iterator[Manifest]) -> Iterator[Descriptor]:
    for manifest in manifests:
        document = manifest.document
        for blob in (document.get("config"), *(document.get("layers") or ())):
            if blob:
                yield descriptor(blob)


def _held(name: str, content: bytes) -> Entry:
    return Entry(name=name, size=len(content), digest=digest_of(content), pieces=lambda: iter([content]))


def _fetched(registry: Registry, blob: Descriptor) -> Entry:
    return Entry(
        name=_place(blob.digest),
        size=blob.size,
        digest=blob.digest,
        pieces=partial(registry.blob, blob.digest),
    )


def _place(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/', 1)}"


def _file_name(key: VerifyingKey) -> str:
    """The fingerprint, of which a slash is no part of a name."""
    return key.identifier.replace(":", "-").replace("/", "_")
