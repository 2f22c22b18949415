"""Collect the files of a bundle: an image, its evidence and public keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import TamperedError
from tfimg.evidence.cosign_tags import ATTESTATION_SUFFIX, SIGNATURE_SUFFIX, cosign_tag
from tfimg.evidence.keys import VerifyingKey
from tfimg.inspect.archive.layout import FULL_NAME, INDEX, KEYS, MARKER, REF_NAME
from tfimg.registry.images import MAX_MANIFESTS, MAX_TOTAL_BYTES, PlatformImage, RegistryImage, open_image
from tfimg.registry.protocol import Descriptor, Manifest, Registry, digest_of

LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
"""Of the image specification, image-layout.md."""

Pieces = Callable[[], Iterator[bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveFile:
    """A file of the archive: its name, and how its content is had. Its size and digest are known before."""

    name: str
    size: int
    digest: str
    pieces: Pieces


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageArchive:
    """All files of an archive, in their order: documents first, so that they are found soon. `digest` is the image's.

    `evidence` counts what refers to the image.
    """

    digest: str
    entries: tuple[ArchiveFile, ...]
    evidence: int

    @property
    def size(self) -> int:
        """Bytes of content."""
        return sum(entry.size for entry in self.entries)


def collect_image(registry: Registry, reference: str, *, tag: str | None, keys: Sequence[VerifyingKey]) -> ImageArchive:
    """Collect an image and its evidence. `tag` is what the archive calls it; None where it has no name.

    The same image and keys give the same archive, byte for byte. Raises what a `Registry` does, and `TamperedError`
    for malformed documents and more evidence than an image may have.
    """
    image = open_image(registry, reference)
    spoken = list(_evidence(registry, image))
    listed = [_root(image, registry.repository, tag), *(described for described, _ in spoken)]
    attached = [manifest for _, manifest in spoken]
    blobs = [*_blobs(image.images), *_blobs_of(attached)]
    entries = (
        *_frame(image, listed, tag, registry.repository),
        *(_held(f"{KEYS}{_file_name(key)}.pub", key.pem) for key in keys),
        *(_held(_place(one.digest), one.content) for one in (*_manifests(image), *attached)),
        *(_fetched(registry, blob) for blob in sorted(blobs, key=lambda blob: (blob.size, blob.digest))),
    )
    return ImageArchive(digest=image.digest, entries=_once(entries), evidence=len(spoken))


def collect_for_engine(registry: Registry, digest: str, *, repository: str, tag: str) -> ImageArchive:
    """Collect an image for an engine, which takes evidence for images: as a layout, and as `docker save` writes it."""
    image = open_image(registry, digest)
    entries = (
        *_frame(image, [_root(image, repository, tag)], tag, repository),
        *(_held(_place(one.digest), one.content) for one in _manifests(image)),
        *(_fetched(registry, blob) for blob in _blobs(image.images)),
    )
    return ImageArchive(digest=image.digest, entries=_once(entries), evidence=0)


def _manifests(image: RegistryImage) -> tuple[Manifest, ...]:
    return (*image.indexes, *(one.manifest for one in image.images))


def _once(entries: Sequence[ArchiveFile]) -> tuple[ArchiveFile, ...]:
    """Return each file once: images share layers, and readers refuse two files of one name."""
    found: dict[str, ArchiveFile] = {}
    for entry in entries:
        found.setdefault(entry.name, entry)
    return tuple(found.values())


def _frame(
    image: RegistryImage, listed: Sequence[Descriptor], tag: str | None, repository: str
) -> Iterator[ArchiveFile]:
    """What says what the rest is. manifest.json is for engines with the classic store, which read nothing else."""
    index = {"schemaVersion": 2, "manifests": [one.to_document() for one in listed]}
    yield _held(MARKER, LAYOUT)
    yield _held(INDEX, json.dumps(index, sort_keys=True).encode())
    names = [f"{repository}:{tag}"] if tag else []
    saved = [
        {
            "Config": _place(one.config_descriptor.digest),
            "RepoTags": names,
            "Layers": [_place(layer.digest) for layer in one.layers],
        }
        for one in image.platforms[:1]
        if one.config_descriptor
    ]
    yield _held("manifest.json", json.dumps(saved, sort_keys=True).encode())


def _root(image: RegistryImage, repository: str, tag: str | None) -> Descriptor:
    root = image.root
    names = {REF_NAME: tag, FULL_NAME: f"{repository}:{tag}"} if tag else {FULL_NAME: f"{repository}@{root.digest}"}
    return Descriptor(media_type=root.media_type, digest=root.digest, size=len(root.content), annotations=names)


def _evidence(registry: Registry, image: RegistryImage) -> Iterator[tuple[Descriptor, Manifest]]:
    """Yield every manifest that refers to the image or to one of its platforms', and those under cosign's tags."""
    digests = dict.fromkeys([image.digest, *(one.manifest.digest for one in image.images)])
    seen: set[str] = set()
    size = 0
    for described in (one for digest in digests for one in _attached(registry, digest)):
        if described.digest in seen or (manifest := registry.find(described.digest)) is None:
            continue
        seen.add(described.digest)
        size += len(manifest.content)
        if len(seen) > MAX_MANIFESTS or size > MAX_TOTAL_BYTES:
            raise TamperedError(
                f"{registry.repository}@{image.digest} has more than {MAX_MANIFESTS} pieces of evidence, or more than "
                f"{MAX_TOTAL_BYTES >> 20} MiB of their manifests.",
                next_step="Find out who attached them, and delete those that are not the publisher's.",
            )
        yield replace(described, size=len(manifest.content)), manifest


def _attached(registry: Registry, digest: str) -> Iterator[Descriptor]:
    yield from registry.list_referrers(digest)
    for tag in (cosign_tag(digest, ATTESTATION_SUFFIX), cosign_tag(digest, SIGNATURE_SUFFIX)):
        if manifest := registry.find(tag):
            yield Descriptor(
                media_type=manifest.media_type,
                digest=manifest.digest,
                size=len(manifest.content),
                annotations={REF_NAME: tag},
            )


def _blobs(images: Sequence[PlatformImage]) -> list[Descriptor]:
    return [blob for one in images for blob in (one.config_descriptor, *one.layers) if blob]


def _blobs_of(manifests: Sequence[Manifest]) -> Iterator[Descriptor]:
    for manifest in manifests:
        try:
            image = manifest.image
        except InvalidDocument as error:
            raise TamperedError(
                f"The evidence {manifest.digest} is malformed: {error}.", next_step="Do not use the image."
            ) from None
        yield from (blob for blob in (image.config, *image.layers) if blob)


def _held(name: str, content: bytes) -> ArchiveFile:
    return ArchiveFile(name=name, size=len(content), digest=digest_of(content), pieces=lambda: iter([content]))


def _fetched(registry: Registry, blob: Descriptor) -> ArchiveFile:
    return ArchiveFile(
        name=_place(blob.digest),
        size=blob.size,
        digest=blob.digest,
        pieces=partial(registry.get_blob, blob.digest),
    )


def _place(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/', 1)}"


def _file_name(key: VerifyingKey) -> str:
    """The fingerprint, of which a slash is no part of a name."""
    return key.identifier.replace(":", "-").replace("/", "_")
