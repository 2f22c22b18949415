"""Documents of a registry, and the interface of its clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated_dataclass

from tfimg.core.documents import (
    Digest,
    Document,
    InvalidDocument,
    digest_of,
    null_means,
    parse_document,
    parse_object,
    validate_model,
)
from tfimg.core.errors import NotInRegistry, TamperedError
from tfimg.core.text import canonical_json
from tfimg.registry.reference import DEFAULT_TAG

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
EMPTY = "application/vnd.oci.empty.v1+json"
"""Type of `EMPTY_JSON`, the configuration of an artifact without one (image specification 1.1, manifest.md)."""

EMPTY_JSON = b"{}"

MAX_LAYERS = 10_000
"""Entries in one manifest or index. An image has at most 127 layers, an index one entry for each referrer."""

MAX_BLOB_BYTES = 1 << 40  # size that a descriptor may state. The largest layer of our images has 3 GB


class EntryPlatform(Document):
    """The platform of an entry of an index; `unknown` for BuildKit's attestations, which do not run."""

    os: Annotated[str, null_means("")] = ""
    architecture: Annotated[str, null_means("")] = ""


Annotations = Annotated[Mapping[str, str], null_means({})]


@validated_dataclass(frozen=True, kw_only=True, slots=True, config=ConfigDict(populate_by_name=True))
class Descriptor:
    """Describe a blob or manifest as a manifest does; `size` is bytes. Raises `ValueError` for a malformed one."""

    media_type: Annotated[str, Field(alias="mediaType", max_length=255)]
    digest: Digest
    size: Annotated[int, Field(ge=0, le=MAX_BLOB_BYTES)]
    annotations: Annotations = Field(default_factory=dict)
    artifact_type: Annotated[str | None, Field(alias="artifactType", max_length=255)] = None
    platform: Annotated[EntryPlatform, null_means(EntryPlatform())] = EntryPlatform()

    def to_document(self) -> dict[str, Any]:
        document: dict[str, Any] = _DESCRIPTOR.dump_python(self, by_alias=True, exclude_defaults=True)
        return document


_DESCRIPTOR = TypeAdapter(Descriptor)


def describe_blob(content: bytes, media_type: str, annotations: Mapping[str, str] | None = None) -> Descriptor:
    size, digest = len(content), digest_of(content)
    return Descriptor(media_type=media_type, digest=digest, size=size, annotations=annotations or {})


EMPTY_CONFIG = describe_blob(EMPTY_JSON, EMPTY)


class ImageManifest(Document):
    """The fields of an OCI image manifest or artifact manifest that we read."""

    media_type: str | None = Field(default=None, alias="mediaType")
    artifact_type: str | None = Field(default=None, alias="artifactType")
    config: Descriptor | None = None
    layers: tuple[Descriptor, ...] = Field(default=(), max_length=MAX_LAYERS)
    subject: Descriptor | None = None
    annotations: Annotations = Field(default_factory=dict)


class ImageIndex(Document):
    """The fields of an OCI image index, or of a list of referrers, that we read; `null` means an empty list."""

    manifests: Annotated[tuple[Descriptor, ...], null_means(()), Field(max_length=MAX_LAYERS)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """A manifest or index with the exact bytes that its digest is of."""

    media_type: str
    content: bytes

    @property
    def digest(self) -> str:
        return digest_of(self.content)

    @property
    def descriptor(self) -> Descriptor:
        return describe_blob(self.content, self.media_type)

    @property
    def document(self) -> dict[str, Any]:
        """Return the JSON object. Raises `InvalidDocument`, which is a `ValueError`."""
        return parse_object(self.content)

    @property
    def image(self) -> ImageManifest:
        """Return it as an image manifest. Raises `InvalidDocument`."""
        return parse_document(ImageManifest, self.content)

    @property
    def index(self) -> ImageIndex:
        """Return it as an index. Raises `InvalidDocument`."""
        return parse_document(ImageIndex, self.content)


def make_manifest(config: Descriptor, layers: Sequence[Mapping[str, Any]], **fields: object) -> Manifest:
    """Return an OCI image manifest: the same input gives the same bytes."""
    parts = {"config": config.to_document(), "layers": layers, **fields}
    content = canonical_json({"schemaVersion": 2, "mediaType": OCI_MANIFEST, **parts})
    return Manifest(media_type=OCI_MANIFEST, content=content)


class Reader(Protocol):
    """What can be read of one repository of a registry, or of an archive of images.

    `reference` is a tag or a digest; anything else is refused. Calls retry transient failures. They raise
    `NetworkError` if the registry does not answer, `RegistryError` if it refuses, and `TamperedError` for content with
    another digest.
    """

    @property
    def repository(self) -> str:
        """HOST[:PORT]/PATH."""

    def find(self, reference: str) -> Manifest | None:
        """Return the manifest under a tag or digest; None without one."""

    def list_tags(self) -> Sequence[str]:
        """Return every tag, of all pages, in the registry's order."""

    def get_blob(self, digest: str) -> Iterator[bytes]:
        """Yield a blob's bytes, verified after the last; no more than a manifest states that was found before."""

    def list_referrers(self, digest: str) -> Sequence[Descriptor]:
        """Return the referrers of a manifest: the registry's own list, or the one under the fallback tag."""


class Tags(Reader, Protocol):
    """A repository whose tags can be moved."""

    def put(self, reference: str, manifest: Manifest) -> None:
        """Put a manifest under a tag or its digest, and read it back. Raises `TagConflict` if it differs."""

    def delete_tag(self, tag: str) -> bool:
        """Delete a tag and keep its manifest. False if the registry cannot do that: then the tag stays."""


class Registry(Tags, Protocol):
    """One repository of a registry."""

    def put_blob(self, content: bytes) -> Descriptor:
        """Send a small blob, unless the registry has it; return its descriptor as `application/octet-stream`."""

    def put_referrers(
        self, manifests: Sequence[Manifest], *, subject: str, list_later: bool = False
    ) -> Sequence[Descriptor]:
        """Put manifests that refer to `subject`; list them under the fallback tag if the registry has no list.

        The tag is written once for all of them. With `list_later`, the next call for `subject` lists them, which may be
        one without manifests; until then only this object's `list_referrers` returns them. Returns their entries.
        """


def require_manifest(registry: Reader, reference: str, *, next_step: str = "Check the name and the tag.") -> Manifest:
    """Return the manifest under a tag or digest. Raises `NotInRegistry` without one."""
    manifest = registry.find(reference)
    if manifest is None and reference == DEFAULT_TAG:
        raise NotInRegistry(
            f"{registry.repository} has no tag {DEFAULT_TAG}, the tag of a name without one.",
            next_step=f"Name a tag: {registry.repository}:TAG.",
        )
    if manifest is None:
        separator = "@" if reference.startswith("sha256:") else ":"
        raise NotInRegistry(f"The registry has no {registry.repository}{separator}{reference}.", next_step=next_step)
    return manifest


INDEXES = frozenset({OCI_INDEX, DOCKER_INDEX})

CONFIGS = frozenset({OCI_CONFIG, "application/vnd.docker.container.image.v1+json"})
"""Media types of an image's configuration; other artifacts have another type."""

MAX_DOCUMENT_BYTES = 8 << 20
"""Bytes of a configuration; registries take manifests of 4 MiB (distribution specification, "Pushing manifests")."""

MAX_TOTAL_BYTES = 64 << 20  # bytes of all manifests and configurations of one image

MAX_MANIFESTS = 1000
"""Manifests that one image may refer to. Ours have three: an index, an image, and BuildKit's attestation."""

DISCARD = "Do not use it, and report it to the registry's owner."
UNKNOWN = "unknown"  # the platform of BuildKit's attestations, which do not run
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
    queue, seen, size = [(root.digest, EntryPlatform())], {root.digest}, 0
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
        return _read_image(registry, manifest, EntryPlatform())[0]
    except InvalidDocument as error:
        raise _malformed(registry, manifest.digest, error) from None


def _read_image(registry: Reader, manifest: Manifest, platform: EntryPlatform) -> tuple[PlatformImage, int]:
    """Return the image of a manifest, and the size of its configuration. Raises `InvalidDocument`."""
    parsed = manifest.image
    blob, content, config, settings = parsed.config, b"", dict[str, Any](), ImageConfig()
    if blob and blob.media_type in CONFIGS:
        content = read_blob(registry, blob)
        try:
            config = parse_object(content)
            settings = validate_model(ImageConfig, config)
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
