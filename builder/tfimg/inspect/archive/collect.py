"""Collect the files of an image archive: the image, its evidence and public keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import TamperedError
from tfimg.evidence.keys import VerifyingKey
from tfimg.inspect.archive.layout import FULL_NAME, INDEX, KEYS, MARKER, REF_NAME, blob_path
from tfimg.registry.images import MAX_MANIFESTS, MAX_TOTAL_BYTES, RegistryImage, open_image
from tfimg.registry.protocol import Descriptor, Manifest, Reader, digest_of

LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
"""Content of the marker file (image specification, image-layout.md)."""


@dataclass(frozen=True, slots=True)
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


def collect_image(
    registry: Reader,
    reference: str,
    *,
    tag: str | None,
    repository: str | None = None,
    keys: Sequence[VerifyingKey] = (),
    with_evidence: bool = True,
) -> ImageArchive:
    """Collect an image, its evidence, and public keys. `tag` is its name in the archive, if it has one.

    `repository` replaces the registry's own in that name. The same image and keys give the same archive, byte for byte.
    Raises the errors of a `Registry`, and `TamperedError` for malformed documents and for more evidence than an image
    may have.
    """
    image = open_image(registry, reference)
    repository = repository or registry.repository
    names = {REF_NAME: tag, FULL_NAME: f"{repository}:{tag}"} if tag else {FULL_NAME: f"{repository}@{image.digest}"}
    evidence = list(_collect_evidence(registry, image)) if with_evidence else []
    listed = [replace(image.root.descriptor, annotations=names), *(descriptor for descriptor, _ in evidence)]
    manifests = [*(platform.manifest for platform in image.images), *(manifest for _, manifest in evidence)]
    entries = [
        *_make_index_files(image, listed, f"{repository}:{tag}" if tag else None),
        *(_make_file(f"{KEYS}{key.identifier.replace(':', '-').replace('/', '_')}.pub", key.pem) for key in keys),
        *(_make_file(blob_path(manifest.digest), manifest.content) for manifest in (*image.indexes, *manifests)),
        *(
            ArchiveFile(blob_path(blob.digest), blob.size, blob.digest, partial(registry.get_blob, blob.digest))
            for blob in sorted(_list_blobs(manifests), key=lambda blob: (blob.size, blob.digest))
        ),
    ]
    # Images share layers, and readers refuse two files with one name.
    unique = {entry.name: entry for entry in entries}
    return ImageArchive(digest=image.digest, entries=tuple(unique.values()), evidence=len(evidence))


def _make_index_files(image: RegistryImage, listed: Sequence[Descriptor], name: str | None) -> Iterator[ArchiveFile]:
    """Yield the marker, the index, and a manifest.json for engines with the classic store."""
    index = {"schemaVersion": 2, "manifests": [descriptor.to_document() for descriptor in listed]}
    yield _make_file(MARKER, LAYOUT)
    yield _make_file(INDEX, json.dumps(index, sort_keys=True).encode())
    saved = [
        {
            "Config": blob_path(platform.config_descriptor.digest),
            "RepoTags": [name] if name else [],
            "Layers": [blob_path(layer.digest) for layer in platform.layers],
        }
        for platform in image.platforms[:1]
        if platform.config_descriptor
    ]
    yield _make_file("manifest.json", json.dumps(saved, sort_keys=True).encode())


def _collect_evidence(registry: Reader, image: RegistryImage) -> Iterator[tuple[Descriptor, Manifest]]:
    """Yield the manifests that refer to the image or its platforms."""
    digests = dict.fromkeys([image.digest, *(platform.manifest.digest for platform in image.images)])
    seen: set[str] = set()
    size = 0
    for descriptor in (one for digest in digests for one in registry.list_referrers(digest)):
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


def _list_blobs(manifests: Sequence[Manifest]) -> Iterator[Descriptor]:
    for manifest in manifests:
        try:
            image = manifest.image
        except InvalidDocument as error:
            raise TamperedError(
                f"The evidence {manifest.digest} is malformed: {error}.", next_step="Do not use the image."
            ) from None
        yield from (blob for blob in (image.config, *image.layers) if blob)


def _make_file(name: str, content: bytes) -> ArchiveFile:
    return ArchiveFile(name=name, size=len(content), digest=digest_of(content), pieces=lambda: iter([content]))
