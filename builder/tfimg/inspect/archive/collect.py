"""Collect the files of an image archive: the image, its evidence and public keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import TamperedError
from tfimg.evidence.cosign_tags import ATTESTATION_SUFFIX, SIGNATURE_SUFFIX, cosign_tag
from tfimg.evidence.keys import VerifyingKey
from tfimg.inspect.archive.layout import FULL_NAME, INDEX, KEYS, MARKER, REF_NAME, blob_path
from tfimg.registry.images import MAX_MANIFESTS, MAX_TOTAL_BYTES, PlatformImage, RegistryImage, open_image
from tfimg.registry.protocol import Descriptor, Manifest, Registry, digest_of

LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
"""Content of the marker file (image specification, image-layout.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveFile:
    """A file of the archive, and a function that reads its content."""

    name: str
    size: int
    digest: str
    pieces: Callable[[], Iterator[bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageArchive:
    """The files of an archive in their order, documents first. `evidence` counts what refers to the image `digest`."""

    digest: str
    entries: tuple[ArchiveFile, ...]
    evidence: int = 0

    @property
    def size(self) -> int:
        """Bytes of content."""
        return sum(entry.size for entry in self.entries)


def collect_image(registry: Registry, reference: str, *, tag: str | None, keys: Sequence[VerifyingKey]) -> ImageArchive:
    """Collect an image and its evidence. `tag` is its name in the archive, if it has one.

    The same image and keys give the same archive, byte for byte. Raises the errors of a `Registry`, and `TamperedError`
    for malformed documents and for more evidence than an image may have.
    """
    image = open_image(registry, reference)
    evidence = list(_evidence(registry, image))
    attached = [manifest for _, manifest in evidence]
    listed = [_root(image, registry.repository, tag), *(descriptor for descriptor, _ in evidence)]
    blobs = [*_blobs(image.images), *_blobs_of_evidence(attached)]
    return ImageArchive(
        digest=image.digest,
        entries=_unique(
            *_index_files(image, listed, tag, registry.repository),
            *(_document(f"{KEYS}{_key_name(key)}.pub", key.pem) for key in keys),
            *_manifest_files(image, attached),
            *(_blob_file(registry, blob) for blob in sorted(blobs, key=lambda blob: (blob.size, blob.digest))),
        ),
        evidence=len(evidence),
    )


def collect_for_engine(registry: Registry, digest: str, *, repository: str, tag: str) -> ImageArchive:
    """Collect an image without evidence, which engines would take for images."""
    image = open_image(registry, digest)
    return ImageArchive(
        digest=image.digest,
        entries=_unique(
            *_index_files(image, [_root(image, repository, tag)], tag, repository),
            *_manifest_files(image),
            *(_blob_file(registry, blob) for blob in _blobs(image.images)),
        ),
    )


def _unique(*entries: ArchiveFile) -> tuple[ArchiveFile, ...]:
    """Return each file once: images share layers, and readers refuse two files with one name."""
    found: dict[str, ArchiveFile] = {}
    for entry in entries:
        found.setdefault(entry.name, entry)
    return tuple(found.values())


def _manifest_files(image: RegistryImage, attached: Sequence[Manifest] = ()) -> Iterator[ArchiveFile]:
    for manifest in (*image.indexes, *(platform.manifest for platform in image.images), *attached):
        yield _document(blob_path(manifest.digest), manifest.content)


def _index_files(
    image: RegistryImage, listed: Sequence[Descriptor], tag: str | None, repository: str
) -> Iterator[ArchiveFile]:
    """Yield the marker, the index, and a manifest.json for engines with the classic store."""
    index = {"schemaVersion": 2, "manifests": [descriptor.to_document() for descriptor in listed]}
    yield _document(MARKER, LAYOUT)
    yield _document(INDEX, json.dumps(index, sort_keys=True).encode())
    saved = [
        {
            "Config": blob_path(platform.config_descriptor.digest),
            "RepoTags": [f"{repository}:{tag}"] if tag else [],
            "Layers": [blob_path(layer.digest) for layer in platform.layers],
        }
        for platform in image.platforms[:1]
        if platform.config_descriptor
    ]
    yield _document("manifest.json", json.dumps(saved, sort_keys=True).encode())


def _root(image: RegistryImage, repository: str, tag: str | None) -> Descriptor:
    names = {REF_NAME: tag, FULL_NAME: f"{repository}:{tag}"} if tag else {FULL_NAME: f"{repository}@{image.digest}"}
    return replace(image.root.descriptor, annotations=names)


def _evidence(registry: Registry, image: RegistryImage) -> Iterator[tuple[Descriptor, Manifest]]:
    """Yield the manifests that refer to the image or its platforms, and those of cosign's tags."""
    digests = dict.fromkeys([image.digest, *(platform.manifest.digest for platform in image.images)])
    seen: set[str] = set()
    size = 0
    for descriptor in (one for digest in digests for one in _referrers(registry, digest)):
        if descriptor.digest in seen or (manifest := registry.find(descriptor.digest)) is None:
            continue
        seen.add(descriptor.digest)
        size += len(manifest.content)
        if len(seen) > MAX_MANIFESTS or size > MAX_TOTAL_BYTES:
            raise TamperedError(
                f"{registry.repository}@{image.digest} has more than {MAX_MANIFESTS} pieces of evidence, or more than "
                f"{MAX_TOTAL_BYTES >> 20} MiB of their manifests.",
                next_step="Find out who attached them, and delete those that are not the publisher's.",
            )
        yield replace(descriptor, size=len(manifest.content)), manifest


def _referrers(registry: Registry, digest: str) -> Iterator[Descriptor]:
    yield from registry.list_referrers(digest)
    for tag in (cosign_tag(digest, ATTESTATION_SUFFIX), cosign_tag(digest, SIGNATURE_SUFFIX)):
        if manifest := registry.find(tag):
            yield replace(manifest.descriptor, annotations={REF_NAME: tag})


def _blobs(images: Sequence[PlatformImage]) -> Iterator[Descriptor]:
    for image in images:
        yield from (blob for blob in (image.config_descriptor, *image.layers) if blob)


def _blobs_of_evidence(manifests: Sequence[Manifest]) -> Iterator[Descriptor]:
    for manifest in manifests:
        try:
            image = manifest.image
        except InvalidDocument as error:
            raise TamperedError(
                f"The evidence {manifest.digest} is malformed: {error}.", next_step="Do not use the image."
            ) from None
        yield from (blob for blob in (image.config, *image.layers) if blob)


def _document(name: str, content: bytes) -> ArchiveFile:
    return ArchiveFile(name=name, size=len(content), digest=digest_of(content), pieces=lambda: iter([content]))


def _blob_file(registry: Registry, blob: Descriptor) -> ArchiveFile:
    pieces = partial(registry.get_blob, blob.digest)
    return ArchiveFile(name=blob_path(blob.digest), size=blob.size, digest=blob.digest, pieces=pieces)


def _key_name(key: VerifyingKey) -> str:
    return key.identifier.replace(":", "-").replace("/", "_")
