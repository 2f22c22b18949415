"""The `Registry` protocol, and the values of the OCI specifications that it transfers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as validated_dataclass

from tfimg.core.documents import Digest, Document, parse_document, parse_object
from tfimg.core.errors import NotInRegistry
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

MAX_BLOB_BYTES = 1 << 40
"""Size that a descriptor may state. The largest layer of our images has 3 GB."""


def digest_of(content: bytes) -> str:
    """Return `sha256:…` of bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def null_means(default: Any) -> BeforeValidator:
    """Return a validator that reads `null` as a default: Go writes it for an empty list or map."""
    return BeforeValidator(lambda value: default if value is None else value)


class Platform(Document):
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
    platform: Annotated[Platform, null_means(Platform())] = Platform()

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object as it stands in a manifest."""
        document: dict[str, Any] = _DESCRIPTOR.dump_python(self, by_alias=True, exclude_defaults=True)
        return document


_DESCRIPTOR = TypeAdapter(Descriptor)


def describe_blob(content: bytes, media_type: str, annotations: Mapping[str, str] | None = None) -> Descriptor:
    """Return the descriptor of a blob."""
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
        """The digest of the bytes."""
        return digest_of(self.content)

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of the manifest."""
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


class Registry(Reader, Protocol):
    """One repository of a registry."""

    def put(self, reference: str, manifest: Manifest) -> None:
        """Put a manifest under a tag or its digest, and read it back. Raises `TagConflict` if it differs."""

    def delete_tag(self, tag: str) -> bool:
        """Delete a tag and keep its manifest. False if the registry cannot do that: then the tag stays."""

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
