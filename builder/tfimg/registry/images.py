"""Read an image's documents from a registry: manifests, nested indexes and configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from tfimg.core.documents import Document, InvalidDocument, parse_object, validate
from tfimg.core.errors import NotInRegistry, TamperedError
from tfimg.core.text import parse_time
from tfimg.registry import protocol
from tfimg.registry.protocol import Descriptor, Manifest, Platform, Reader, digest_of, null_means, require_manifest

INDEXES = frozenset({protocol.OCI_INDEX, protocol.DOCKER_INDEX})

CONFIGS = frozenset({protocol.OCI_CONFIG, "application/vnd.docker.container.image.v1+json"})
"""Media types of an image's configuration; other artifacts have another type."""

MAX_DOCUMENT_BYTES = 8 << 20
"""Bytes of a configuration; registries take manifests of 4 MiB (distribution specification, "Pushing manifests")."""

MAX_TOTAL_BYTES = 64 << 20
"""Bytes of all manifests and configurations of one image."""

MAX_MANIFESTS = 1000
"""Manifests that one image may refer to. Ours have three: an index, an image, and BuildKit's attestation."""

DISCARD = "Do not use it, and report it to the registry's owner."

UNKNOWN = "unknown"
"""The platform of BuildKit's attestations, which do not run."""

Text = Annotated[str, null_means("")]


class ContainerConfig(Document):
    """The `config` object of a configuration: settings of containers."""

    labels: Annotated[Mapping[str, str], null_means({})] = Field(default_factory=dict, alias="Labels")
    env: Annotated[tuple[str, ...], null_means(())] = Field(default=(), alias="Env")


class ConfigStep(Document):
    """A step of a configuration's history."""

    created_by: Text = ""
    empty_layer: Annotated[bool, null_means(False)] = False


class RootFs(Document):
    """The layers of a configuration, by the digests of their uncompressed archives, lowest first."""

    diff_ids: Annotated[tuple[Text, ...], null_means(())] = ()


class ImageConfig(Document):
    """The fields of an image's configuration that are read (OCI image specification 1.1, config.md)."""

    os: Text = ""
    architecture: Text = ""
    created: Text = ""
    config: Annotated[ContainerConfig, null_means(ContainerConfig())] = ContainerConfig()
    rootfs: Annotated[RootFs, null_means(RootFs())] = RootFs()
    history: Annotated[tuple[ConfigStep, ...], null_means(())] = ()

    @property
    def created_at(self) -> datetime | None:
        """The time of creation in UTC; None if it is missing or malformed."""
        return parse_time(self.created)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformImage:
    """A manifest with its documents. `platform` is `linux/amd64`, or None for one that does not run.

    `config` is the whole configuration, `settings` its typed fields.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryImage:
    """A reference's image. `indexes` are the root and all nested ones; empty if the root is a manifest."""

    reference: str
    root: Manifest
    indexes: tuple[Manifest, ...]
    images: tuple[PlatformImage, ...]

    @property
    def digest(self) -> str:
        """The digest of the root, by which the image is pulled."""
        return self.root.digest

    @property
    def platforms(self) -> tuple[PlatformImage, ...]:
        """The images that run on a platform."""
        return tuple(image for image in self.images if image.platform is not None)

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the first platform."""
        return next((image.labels for image in self.platforms), {})


def open_image(registry: Reader, reference: str) -> RegistryImage:
    """Read an image's documents, without its layers.

    Raises `NotInRegistry` for a missing manifest, `TamperedError` for malformed or too many documents.
    """
    root = require_manifest(registry, reference)
    indexes: list[Manifest] = []
    images: list[PlatformImage] = []
    queue, seen, size = [(root.digest, Platform())], {root.digest}, 0
    while queue:
        digest, platform = queue.pop(0)
        manifest = root if digest == root.digest else require_manifest(registry, digest)
        try:
            if manifest.media_type in INDEXES:
                indexes.append(manifest)
                for entry in manifest.index.manifests:
                    if entry.digest not in seen:
                        seen.add(entry.digest)
                        queue.append((entry.digest, entry.platform))
            else:
                image, config_size = _read_image(registry, manifest, platform)
                size += config_size
                images.append(image)
        except InvalidDocument as error:
            raise _malformed(registry, digest, error) from None
        size += len(manifest.content)
        if len(seen) > MAX_MANIFESTS:
            raise _malformed(registry, root.digest, f"it refers to more than {MAX_MANIFESTS} manifests")
        if size > MAX_TOTAL_BYTES:
            reason = f"its manifests and configurations have more than {MAX_TOTAL_BYTES >> 20} MiB"
            raise _malformed(registry, root.digest, reason)
    return RegistryImage(reference=reference, root=root, indexes=tuple(indexes), images=tuple(images))


def open_platform_image(registry: Reader, reference: str, platform: str) -> PlatformImage:
    """Read the documents of an image for one platform, the first of an index for it, without its layers.

    Raises as `open_image`, and `NotInRegistry` for an index without the platform.
    """
    manifest = require_manifest(registry, reference)
    try:
        if manifest.media_type in INDEXES:
            entries = [
                entry.digest
                for entry in manifest.index.manifests
                if f"{entry.platform.os}/{entry.platform.architecture}" == platform
            ]
            if not entries:
                raise NotInRegistry(
                    f"{registry.repository}@{manifest.digest} has no image for {platform}.", next_step="Name another."
                )
            manifest = require_manifest(registry, entries[0])
        return _read_image(registry, manifest, Platform())[0]
    except InvalidDocument as error:
        raise _malformed(registry, manifest.digest, error) from None


def _read_image(registry: Reader, manifest: Manifest, platform: Platform) -> tuple[PlatformImage, int]:
    """Return the image of a manifest, and the size of its configuration. Raises `InvalidDocument`."""
    parsed = manifest.image
    blob, content, config, settings = parsed.config, b"", dict[str, Any](), ImageConfig()
    if blob and blob.media_type in CONFIGS:
        content = read_blob(registry, blob)
        try:
            config = parse_object(content)
            settings = validate(ImageConfig, config)
        except InvalidDocument as error:
            raise _malformed(registry, blob.digest, error) from None
    # The platform of a manifest without index is in its configuration alone.
    system = platform.os or settings.os or UNKNOWN
    machine = platform.architecture or settings.architecture or UNKNOWN
    image = PlatformImage(
        manifest=manifest,
        platform=None if UNKNOWN in (system, machine) else f"{system}/{machine}",
        config_descriptor=blob,
        config=config,
        settings=settings,
        layers=parsed.layers,
    )
    return image, len(content)


def read_blob(registry: Reader, blob: Descriptor, largest: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Read a small blob. Raises `TamperedError` for too many bytes or another digest."""
    content = bytearray()
    for chunk in registry.get_blob(blob.digest):
        content += chunk
        if len(content) > largest:
            raise TamperedError(f"The document {blob.digest} has more than {largest} bytes.", next_step=DISCARD)
    if digest_of(bytes(content)) != blob.digest:
        raise TamperedError(f"The content of {blob.digest} has another digest.", next_step=DISCARD)
    return bytes(content)


def _malformed(registry: Reader, digest: str, reason: object) -> TamperedError:
    return TamperedError(
        f"{registry.repository}@{digest} is malformed: {reason}.",
        next_step="Do not use the image; if you have published it, push it again.",
    )
