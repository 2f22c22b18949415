"""A registry in memory, for tests of what is done with one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tfimg.core.errors import NotInRegistry, TamperedError
from tfimg.registry.documents import OCI_INDEX, Descriptor, Manifest, digest_of


def make_descriptor(
    manifest: Manifest, artifact_type: str | None, annotations: Mapping[str, str] | None = None
) -> Descriptor:
    return Descriptor(
        media_type=manifest.media_type, digest=manifest.digest, size=len(manifest.content),
        annotations=annotations or {}, artifact_type=artifact_type,
    )  # fmt: skip


@dataclass(kw_only=True)
class MemoryRegistry:
    """A `Registry` whose content tests may look at and change; `sent` are the digests that went over the line.

    `deletes` is whether it lets tags be deleted: not all registries do.
    """

    repository: str = "registry.test:5000/team/tensorflow"
    manifests: dict[str, Manifest] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    deletes: bool = True

    @classmethod
    def with_content_of(cls, other: MemoryRegistry, **behaviour: Any) -> Self:
        """Return a registry of another class that has what another one has."""
        return cls(manifests=other.manifests, blobs=other.blobs, named=other.named, **behaviour)

    def find(self, reference: str) -> Manifest | None:
        return self.manifests.get(self.named.get(reference, reference))

    def put(self, reference: str, manifest: Manifest) -> None:
        self.manifests[manifest.digest] = manifest
        self.sent.append(manifest.digest)
        if not reference.startswith("sha256:"):
            self.named[reference] = manifest.digest

    def list_tags(self) -> Sequence[str]:
        return sorted(self.named)

    def delete_tag(self, tag: str) -> bool:
        if self.deletes:
            self.named.pop(tag, None)
        return self.deletes

    def get_blob(self, digest: str) -> Iterator[bytes]:
        if digest not in self.blobs:
            raise NotInRegistry(f"There is no {digest}.", next_step="Push it first.")
        content = self.blobs[digest]
        yield content
        if digest_of(content) != digest:
            raise TamperedError(f"{digest} has other bytes.", next_step="Do not use it.")

    def put_blob(self, content: bytes) -> Descriptor:
        digest = digest_of(content)
        if digest not in self.blobs:
            self.blobs[digest] = content
            self.sent.append(digest)
        return Descriptor(media_type="application/octet-stream", digest=digest, size=len(content))

    def list_referrers(self, digest: str) -> Sequence[Descriptor]:
        found = []
        for manifest in self.manifests.values():
            document = manifest.document
            if document.get("subject", {}).get("digest") == digest and manifest.media_type != OCI_INDEX:
                found.append(make_descriptor(manifest, document.get("artifactType"), document.get("annotations")))
        return found

    def put_referrers(
        self,
        manifests: Sequence[Manifest],
        *,
        subject: str,
        list_later: bool = False,  # noqa: ARG002  it needs no tag
    ) -> Sequence[Descriptor]:
        for manifest in manifests:
            assert manifest.document["subject"]["digest"] == subject
            if manifest.digest not in self.manifests:
                self.put(manifest.digest, manifest)
        return [make_descriptor(manifest, manifest.document.get("artifactType")) for manifest in manifests]
