"""Read an image's documents from a registry: manifests, nested indexes and configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tfimg.core.documents import Digest, Document, InvalidDocument, parse_document, parse_object, validate
from tfimg.core.errors import TamperedError
from tfimg.registry.protocol import (
    DOCKER_INDEX,
    OCI_CONFIG,
    OCI_INDEX,
    Descriptor,
    ImageManifest,
    Manifest,
    Registry,
    digest_of,
    require_manifest,
)

INDEXES = frozenset({OCI_INDEX, DOCKER_INDEX})

CONFIGS = frozenset({OCI_CONFIG, "application/vnd.docker.container.image.v1+json"})
"""Media types of an image's configuration; other artifacts have something else there."""

MAX_DOCUMENT_BYTES = 8 << 20
"""Bytes that a configuration may have; registries take manifests of 4 MiB (distribution specification, "Pushing
manifests"). Ours have less than 20 kB."""

MAX_TOTAL_BYTES = 64 << 20
"""Bytes of all manifests and configurations of one image."""

MAX_MANIFESTS = 1000
"""Manifests that one image may refer to. Ours have three: an index, an image, and BuildKit's attestation."""

UNKNOWN = "unknown"
"""The platform that BuildKit gives its attestations, which run nowhere."""


def _default(value: Any) -> BeforeValidator:
    """Read `null` as a value: Go writes it for an empty list or map."""
    return BeforeValidator(lambda given: value if given is None else given)


Text = Annotated[str, _default("")]


class Platform(Document):
    """The platform of an entry of an index."""

    os: Text = ""
    architecture: Text = ""


class IndexEntry(Document):
    """An entry of an index: what it has beside a descriptor."""

    digest: Digest
    platform: Annotated[Platform, _default(Platform())] = Platform()


class _Entries(Document):
    """What an index says of its platforms; the rest of its entries are descriptors."""

    manifests: Annotated[tuple[IndexEntry, ...], _default(())]


class ContainerConfig(Document):
    """What a configuration says of containers."""

    labels: Annotated[Mapping[str, str], _default({})] = Field(default_factory=dict, alias="Labels")
    env: Annotated[tuple[str, ...], _default(())] = Field(default=(), alias="Env")


class ConfigStep(Document):
    """A step of a configuration's history."""

    created_by: Text = ""
    empty_layer: Annotated[bool, _default(False)] = False


class ImageConfig(Document):
    """The fields of an image's configuration that are read (OCI image specification 1.1, config.md)."""

    os: Text = ""
    architecture: Text = ""
    created: Text = ""
    config: Annotated[ContainerConfig, _default(ContainerConfig())] = ContainerConfig()
    history: Annotated[tuple[ConfigStep, ...], _default(())] = ()

    @property
    def created_at(self) -> datetime | None:
        """When the image was created, in UTC; None where it does not say so."""
        try:
            found = datetime.fromisoformat(self.created)
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformImage:
    """A manifest of an image, with all that it names. `platform` is `linux/amd64`; None of what runs nowhere.

    `config` is the whole configuration, `settings` the part of it that is understood.
    """

    manifest: Manifest
    platform: str | None
    config_descriptor: Descriptor | None
    config: Mapping[str, Any]
    settings: ImageConfig
    layers: tuple[Descriptor, ...]

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the configuration."""
        return self.settings.config.labels

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

    Raises `NotInRegistry` where a manifest is missing, and `TamperedError` for malformed documents and for more than
    an image may have.
    """
    reader = _Reader(registry)
    root = reader.manifest(reference)
    indexes: list[Manifest] = []
    images: list[PlatformImage] = []
    waiting = [(root, Platform())]
    seen = {root.digest}
    while waiting:
        manifest, platform = waiting.pop(0)
        if manifest.media_type not in INDEXES:
            images.append(reader.image(manifest, platform))
            continue
        indexes.append(manifest)
        for entry in index_entries(registry, manifest):
            if entry.digest in seen:
                continue
            seen.add(entry.digest)
            if len(seen) > MAX_MANIFESTS:
                raise _malformed(registry, root.digest, f"it refers to more than {MAX_MANIFESTS} manifests")
            waiting.append((reader.manifest(entry.digest), entry.platform))
    return RegistryImage(reference=reference, root=root, indexes=tuple(indexes), images=tuple(images))


class _Reader:
    """Read the documents of one image, limited in their bytes."""

    def __init__(self, registry: Registry) -> None:
        self._registry, self._left = registry, MAX_TOTAL_BYTES

    def manifest(self, reference: str) -> Manifest:
        found = require_manifest(self._registry, reference)
        self._count(found.digest, len(found.content))
        return found

    def image(self, manifest: Manifest, platform: Platform) -> PlatformImage:
        parsed = image_manifest(self._registry, manifest)
        config, settings = self._config(parsed.config) if parsed.config else ({}, ImageConfig())
        # Of a single manifest, its configuration alone tells the platform.
        system = platform.os or settings.os or UNKNOWN
        machine = platform.architecture or settings.architecture or UNKNOWN
        return PlatformImage(
            manifest=manifest,
            platform=None if UNKNOWN in (system, machine) else f"{system}/{machine}",
            config_descriptor=parsed.config,
            config=config,
            settings=settings,
            layers=parsed.layers,
        )

    def _config(self, described: Descriptor) -> tuple[Mapping[str, Any], ImageConfig]:
        content = read_blob(self._registry, described)
        self._count(described.digest, len(content))
        try:
            config = parse_object(content)
            is_image = described.media_type in CONFIGS
            return config, validate(ImageConfig, config) if is_image else ImageConfig()
        except InvalidDocument as error:
            raise _malformed(self._registry, described.digest, str(error)) from None

    def _count(self, digest: str, size: int) -> None:
        self._left -= size
        if self._left < 0:
            why = f"the manifests and configurations of its image have more than {MAX_TOTAL_BYTES >> 20} MiB"
            raise _malformed(self._registry, digest, why)


def read_config(registry: Registry, described: Descriptor) -> ImageConfig:
    """Read the configuration of an image. Raises `TamperedError`."""
    try:
        return parse_document(ImageConfig, read_blob(registry, described))
    except InvalidDocument as error:
        raise _malformed(registry, described.digest, str(error)) from None


def read_blob(registry: Registry, blob: Descriptor, largest: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Read a small blob. Raises `TamperedError` for one that is larger than it may be, or that has another digest."""
    pieces, size = [], 0
    for piece in registry.get_blob(blob.digest):
        pieces.append(piece)
        size += len(piece)
        if size > largest:
            raise TamperedError(
                f"{blob.digest} has more than {largest >> 20} MiB where a document is.",
                next_step="Do not use it.",
            )
    content = b"".join(pieces)
    if digest_of(content) != blob.digest:
        raise TamperedError(f"{blob.digest} has other bytes than its digest says.", next_step="Do not use it.")
    return content


def image_manifest(registry: Registry, manifest: Manifest) -> ImageManifest:
    """Parse a manifest as an image's. Raises `TamperedError`."""
    try:
        return manifest.image
    except InvalidDocument as error:
        raise _malformed(registry, manifest.digest, str(error)) from None


def index_entries(registry: Registry, manifest: Manifest) -> Sequence[IndexEntry]:
    """Parse an index. Raises `TamperedError`."""
    try:
        manifest.index  # noqa: B018  (every entry has to be a descriptor)
        return parse_document(_Entries, manifest.content).manifests
    except InvalidDocument as error:
        raise _malformed(registry, manifest.digest, str(error)) from None


def _malformed(registry: Registry, digest: str, why: str) -> TamperedError:
    return TamperedError(
        f"{registry.repository}@{digest} is malformed: {why}.",
        next_step="Do not use the image; if you have published it, push it again.",
    )
