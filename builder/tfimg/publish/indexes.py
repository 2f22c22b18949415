"""Tags that several platforms share: an OCI image index of their images, composed of what each platform's tag names.

Statements name the tag of a platform (`find_platform_tag`): `2.15` for linux/amd64, `2.15-arm64` for linux/arm64. The
tag of the first platform is also the shared one. It points to that platform's manifest, or to an index while the other
tag points to a build of the same identifier that a trusted key promoted to it and that is not withdrawn. An index is
not signed: a reader requires the promotion of the image that it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tfimg.core.documents import InvalidDocument
from tfimg.core.events import Note, OnEvent, ignore
from tfimg.evidence.keys import VerifyingKey
from tfimg.evidence.promotions import ImageStatements, read_image_statements
from tfimg.matrix.schema import PLATFORMS, Platform
from tfimg.recipe.tags import find_platform_tag, find_shared_tag
from tfimg.registry.documents import INDEXES, Descriptor, Manifest, Registry
from tfimg.registry.platforms import find_platform_image, list_platforms, make_index

DEFAULT = PLATFORMS[0]
"""The platform whose tag is the shared one."""


@dataclass(frozen=True, slots=True)
class PlatformTags:
    """A registry in which each tag means the image of its platform: indexes are read and composed behind it.

    An index that is malformed or lacks the tag's platform is returned as it is, and is an unknown image to those who
    ask for it: raising would let everyone with write access to the registry block a rollback.
    """

    registry: Registry
    trusted: Sequence[VerifyingKey]

    @property
    def repository(self) -> str:
        return self.registry.repository

    def find(self, reference: str) -> Manifest | None:
        """Return the manifest under a digest, or the image of a tag's platform."""
        manifest = self.registry.find(reference)
        if manifest is None or manifest.media_type not in INDEXES or reference.startswith("sha256:"):
            return manifest
        entry = _list_entries(manifest).get(DEFAULT)
        return (self.registry.find(entry.digest) if entry else None) or manifest

    def put(self, reference: str, manifest: Manifest) -> None:
        """Put a manifest, and the index that its tag shares with other platforms."""
        shared = find_shared_tag(reference)
        if shared == reference:
            self.registry.put(reference, self._compose(reference, manifest))
        else:
            self.registry.put(reference, manifest)
            self.update(shared)

    def update(self, shared: str) -> bool:
        """Compose the index of a shared tag anew from what the platforms' tags point to; return whether it changed.

        A tag stays as it is if no trusted key promoted the image of its first platform to it.
        """
        root, manifest = self.registry.find(shared), self.find(shared)
        if root is None or manifest is None:
            return False
        composed = self._compose(shared, manifest)
        if composed.digest == root.digest or not self._read(manifest.digest).promotions_of(self.repository, shared):
            return False
        self.registry.put(shared, composed)
        return True

    def _compose(self, tag: str, manifest: Manifest) -> Manifest:
        """Return the index of a tag with the image of its first platform; that image where it has no counterpart."""
        if tag == find_platform_tag(tag, PLATFORMS[-1]) or manifest.media_type in INDEXES:
            return manifest  # no tag that platforms share
        images = {DEFAULT: manifest}
        outcomes = None
        for platform in PLATFORMS[1:]:
            own = find_platform_tag(tag, platform)
            other = self.registry.find(own)
            if other is None or other.media_type in INDEXES:
                continue
            outcomes = self._read(manifest.digest).outcomes if outcomes is None else outcomes
            statements = self._read(other.digest)
            is_counterpart = (
                bool(outcomes and statements.outcomes)
                and statements.outcomes[0].identifier == find_platform_tag(outcomes[0].identifier, platform)
                and bool(statements.promotions_of(self.repository, own))
                and not statements.in_force(self.repository, own)
            )
            if is_counterpart:
                images[platform] = other
        return make_index(images) if len(images) > 1 else manifest

    def delete_tag(self, tag: str) -> bool:
        """Delete a tag, and compose the index that it belongs to without it."""
        is_deleted = self.registry.delete_tag(tag)
        if (shared := find_shared_tag(tag)) != tag:
            self.update(shared)
        return is_deleted

    def _read(self, digest: str) -> ImageStatements:
        return read_image_statements(self.registry, digest, self.trusted)

    def list_tags(self) -> Sequence[str]:
        return self.registry.list_tags()

    def get_blob(self, digest: str) -> Iterator[bytes]:
        return self.registry.get_blob(digest)

    def list_referrers(self, digest: str) -> Sequence[Descriptor]:
        return self.registry.list_referrers(digest)

    def put_blob(self, content: bytes) -> Descriptor:
        return self.registry.put_blob(content)

    def put_referrers(
        self, manifests: Sequence[Manifest], *, subject: str, list_later: bool = False
    ) -> Sequence[Descriptor]:
        return self.registry.put_referrers(manifests, subject=subject, list_later=list_later)


def update_indexes(tags: PlatformTags, changed: Iterable[str], on_event: OnEvent = ignore) -> None:
    """Compose the indexes anew that tags belong to: statements about an image have changed, or a run was killed."""
    for shared in dict.fromkeys(map(find_shared_tag, changed)):
        if tags.update(shared):
            on_event(Note(text=f"{shared} is {_describe(tags.registry.find(shared))}"))


def list_platform_tags(registry: Registry, reference: str, platform: Platform | None = None) -> tuple[str, ...]:
    """Return the tags that stand for a tag on its platforms, or on one: `2.15-arm64` and `2.15` of an index `2.15`.

    The first platform is the last. `registry` is that behind `PlatformTags`.
    """
    if platform:
        return (find_platform_tag(reference, platform),)
    manifest = registry.find(reference)
    entries = _list_entries(manifest) if manifest else {}
    tags = [find_platform_tag(reference, one) for one in reversed(PLATFORMS) if one in entries]
    return tuple(dict.fromkeys(tags)) or (reference,)


def list_images(
    registry: Registry, reference: str, tag: str | None, platform: Platform | None = None
) -> Iterator[tuple[str, str | None]]:
    """Yield the images of an index, or the one for `platform`, each by digest with the tag that stands for it.

    What is no index is yielded as it is. Raises as `find_platform_image`.
    """
    manifest = registry.find(reference)
    entries = _list_entries(manifest) if manifest else {}
    for one in (platform,) if platform else entries or (None,):
        found = find_platform_image(registry, reference, one)
        yield (found[0], tag and find_platform_tag(tag, found[1])) if found else (reference, tag)


def list_digests(registry: Registry, digest: str) -> dict[str, Platform | None]:
    """Return the digests of an index's images for known platforms; an image's own digest without a platform."""
    manifest = registry.find(digest)
    entries = _list_entries(manifest) if manifest else {}
    return {entry.digest: platform for platform, entry in entries.items()} or {digest: None}


def find_own_tag(registry: Registry, tag: str, digest: str, platform: Platform | None) -> str:
    """Return the tag that stands for a tag on an image's platform: None is that for which an index lists the image."""
    manifest = registry.find(tag)
    entries = _list_entries(manifest) if manifest else {}
    platform = platform or next((one for one, entry in entries.items() if entry.digest == digest), None)
    return find_platform_tag(tag, platform) if platform else tag


def _list_entries(manifest: Manifest) -> dict[Platform, Descriptor]:
    try:
        return list_platforms(manifest)
    except InvalidDocument:
        return {}


def _describe(manifest: Manifest | None) -> str:
    entries = _list_entries(manifest) if manifest else {}
    return f"an index of {' and '.join(entries)}" if entries else f"an image for {DEFAULT} alone"
