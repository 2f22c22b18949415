"""What the stages know of a registry: the values of the OCI distribution specification, and the calls they make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
EMPTY = "application/vnd.oci.empty.v1+json"
"""Of the two bytes `{}`, which stand where an artifact has no configuration (image specification 1.1, manifest.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Descriptor:
    """What a document says of a blob or manifest that it refers to; `size` is bytes."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    artifact_type: str | None = None

    def document(self) -> dict[str, Any]:
        """As it stands in a manifest."""
        document: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        if self.artifact_type:
            document["artifactType"] = self.artifact_type
        if self.annotations:
            document["annotations"] = dict(self.annotations)
        return document


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """A manifest or index, byte for byte as the registry has it: its digest is of these bytes."""

    media_type: str
    content: bytes

    @property
    def digest(self) -> str:
        """`sha256:…` of the bytes."""
        return digest_of(self.content)

    @property
    def document(self) -> dict[str, Any]:
        """What the bytes say. Raises `ValueError` when they are no JSON object."""
        document = json.loads(self.content)
        if not isinstance(document, dict):
            raise ValueError("a manifest is a JSON object")
        return document


class Registry(Protocol):
    """One repository of a registry. `reference` is a tag or a digest.

    Every call retries what is worth it. Raises `NetworkError` where the registry does not answer, `RegistryRefused`
    where it says no, and `TamperedError` where content is not what its digest says.
    """

    @property
    def repository(self) -> str:
        """HOST[:PORT]/PATH."""

    def find(self, reference: str) -> Manifest | None:
        """The manifest under a tag or digest; None where there is none."""

    def put(self, reference: str, manifest: Manifest) -> None:
        """Put these bytes under a tag or their digest, read back what is there and compare. Raises `TagMoved`."""

    def tags(self) -> Sequence[str]:
        """Every tag, in the registry's order; of all pages."""

    def untag(self, tag: str) -> bool:
        """Let a tag lead nowhere; the manifest stays. False where the registry does not do that, and the tag stays."""

    def blob(self, digest: str) -> Iterator[bytes]:
        """A blob's bytes, piece by piece, verified when they end."""

    def put_blob(self, content: bytes) -> Descriptor:
        """Send a small blob, unless it is there already. The descriptor's media type is `application/octet-stream`."""

    def put_stream(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:
        """Send a large blob, unless it is there already; the registry verifies its digest.

        Where the registry has lost what it had of it, `pieces` are iterated once more: an iterator cannot be.
        """

    def referrers(self, digest: str) -> Sequence[Descriptor]:
        """What refers to a manifest: the registry's own list, or that of the fallback tag where it keeps none."""

    def refer(self, manifest: Manifest, *, subject: str, artifact_type: str) -> Descriptor:
        """Put a manifest whose `subject` is another, and enter it in the fallback tag where there is no list."""


def digest_of(content: bytes) -> str:
    """`sha256:…` of bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
