"""Indexes of images for several platforms: read, choose and make them.

Statements name the tag of a platform (`find_platform_tag`): `2.15` for linux/amd64, `2.15-arm64` for linux/arm64. The
tag of the first platform is also the shared one. It points to that platform's manifest, or to an index while the other
tag points to a build of the same identifier that a trusted key promoted to it and that is not withdrawn. An index is
not signed: a reader requires the promotion of the image that it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tfimg.attestations import keys, promotions
from tfimg.core import errors, events
from tfimg.core.documents import InvalidDocument
from tfimg.core.text import canonical_json, quote_value
from tfimg.matrix.schema import PLATFORMS, Platform
from tfimg.recipe.labels import IDENTIFIER_LABEL
from tfimg.recipe.tags import find_platform_tag, find_shared_tag
from tfimg.registry import documents

MAX_ENTRIES = 100
"""Entries of an index. Ours have two; python:3.11-slim has 18, of eight platforms with an attestation each."""


def list_platforms(manifest: documents.Manifest) -> dict[Platform, documents.Descriptor]:
    """Return the entries for known platforms of an index of several; none for an image and for an index of one.

    Raises `InvalidDocument` for too many entries, and for two images or a nested index for a known platform.
    """
    if manifest.media_type not in documents.INDEXES:
        return {}
    entries = manifest.index.manifests
    if len(entries) > MAX_ENTRIES:
        raise InvalidDocument(f"the index has {len(entries)} entries, and at most {MAX_ENTRIES} are read")
    names = [f"{entry.platform.os}/{entry.platform.architecture}" for entry in entries]
    if len({*names} - {"/", "unknown/unknown"}) < 2:
        return {}
    found: dict[Platform, documents.Descriptor] = {}
    for platform in PLATFORMS:
        own = [entry for entry, name in zip(entries, names, strict=True) if name == platform]
        if len({entry.digest for entry in own}) > 1:
            raise InvalidDocument(f"the index has {len(own)} images for {platform}")
        if own and own[0].media_type in documents.INDEXES:
            raise InvalidDocument(f"its entry for {platform} is an index again")
        if own:
            found[platform] = own[0]
    return found


def find_platform_image(
    registry: documents.Reader, reference: str, platform: Platform | None, *, default: Platform | None = None
) -> tuple[str, Platform] | None:
    """Return the digest of an index's image for a platform, and the platform; None where the reference is the image.

    Without `platform`, an index of several means the image for `default`, the platform of this machine. Raises
    `NotInRegistry` for a missing platform, `TamperedError` for an index that is malformed or not what it claims.
    """
    manifest = registry.find(reference)
    if manifest is None:
        return None
    name = f"{registry.repository}{'@' if reference.startswith('sha256:') else ':'}{reference}"
    try:
        entries = list_platforms(manifest)
    except InvalidDocument as error:
        raise _hostile(name, str(error)) from None
    if not entries:
        if platform:
            known = {image.platform for image in documents.open_image(registry, manifest.digest).images}
            _require_platform(name, platform, sorted(filter(None, known)))
        return None
    wanted = platform or default
    _require_platform(name, wanted, [*entries])
    assert wanted  # noqa: S101 - it is one of the entries
    images = {one: _open_entry(registry, name, one, entry) for one, entry in entries.items()}
    labelled = {one: image.labels.get(IDENTIFIER_LABEL) for one, image in images.items() if image}
    identifiers = {one: find_shared_tag(identifier) if identifier else None for one, identifier in labelled.items()}
    if len({*identifiers.values()}) > 1:
        listed = ", ".join(
            f"{quote_value(named or 'an unknown image')} for {one}" for one, named in identifiers.items()
        )
        raise _hostile(name, f"the index mixes different images: {listed}")
    if images[wanted] is None:
        raise errors.NotInRegistry(
            f"{name} lists {entries[wanted].digest} for {wanted}, which the registry does not have.",
            next_step="Ask its publisher, who can publish the image again.",
        )
    return entries[wanted].digest, wanted


def make_index(manifests: Mapping[Platform, documents.Manifest]) -> documents.Manifest:
    """Return the OCI image index of images for platforms: the same input gives the same bytes."""
    entries = []
    for platform, manifest in manifests.items():
        system, _, architecture = platform.partition("/")
        entry = replace(manifest.descriptor, platform=documents.EntryPlatform(os=system, architecture=architecture))
        entries.append(entry.to_document())
    content = canonical_json({"schemaVersion": 2, "mediaType": documents.OCI_INDEX, "manifests": entries})
    return documents.Manifest(media_type=documents.OCI_INDEX, content=content)


def _require_platform(name: str, platform: Platform | None, known: list[str]) -> None:
    if platform not in known:
        raise errors.NotInRegistry(
            f"{name} has no image for {platform or 'this machine'}, but for {', '.join(known) or 'no platform'}.",
            next_step="Name one of its platforms with --platform, or another tag.",
        )


def _open_entry(
    registry: documents.Reader, name: str, platform: Platform, entry: documents.Descriptor
) -> documents.PlatformImage | None:
    """Return the image of an entry, None if it was deleted. Raises `TamperedError` if it is for another platform."""
    try:
        opened = documents.open_image(registry, entry.digest)
    except errors.NotInRegistry:
        return None
    if opened.indexes:
        raise _hostile(name, f"its entry for {platform} is an index again")
    (image,) = opened.images
    if image.platform != platform:
        raise _hostile(name, f"its entry for {platform} is an image for {quote_value(image.platform or 'no platform')}")
    return image


def _hostile(name: str, reason: str) -> errors.TamperedError:
    return errors.TamperedError(f"{name} is not a valid index of platforms: {reason}.", next_step=documents.DISCARD)


DEFAULT = PLATFORMS[0]  # the platform whose tag is the shared one


@dataclass(frozen=True, slots=True)
class PlatformTags:
    """A registry in which each tag means the image of its platform: indexes are read and composed behind it.

    An index that is malformed or lacks the tag's platform is returned as it is, and is an unknown image to those who
    ask for it: raising would let everyone with write access to the registry block a rollback.
    """

    registry: documents.Tags
    trusted: Sequence[keys.VerifyingKey]

    @property
    def repository(self) -> str:
        return self.registry.repository

    def find(self, reference: str) -> documents.Manifest | None:
        manifest = self.registry.find(reference)
        if manifest is None or manifest.media_type not in documents.INDEXES or reference.startswith("sha256:"):
            return manifest
        entry = _list_entries(manifest).get(DEFAULT)
        return (self.registry.find(entry.digest) if entry else None) or manifest

    def put(self, reference: str, manifest: documents.Manifest) -> None:
        """Put a manifest, and the index that its tag shares with other platforms."""
        shared = find_shared_tag(reference)
        if shared == reference:
            self.registry.put(reference, self._compose(reference, manifest))
        else:
            self.registry.put(reference, manifest)
            with suppress(errors.TagImmutable):  # the platform's own tag is enough; `update_indexes` reports it
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

    def _compose(self, tag: str, manifest: documents.Manifest) -> documents.Manifest:
        """Return the index of a tag with the image of its first platform; that image where it has no counterpart."""
        if tag == find_platform_tag(tag, PLATFORMS[-1]) or manifest.media_type in documents.INDEXES:
            return manifest  # no tag that platforms share
        images = {DEFAULT: manifest}
        for platform in PLATFORMS[1:]:
            own = find_platform_tag(tag, platform)
            other = self.registry.find(own)
            if other is None or other.media_type in documents.INDEXES:
                continue
            outcomes, statements = self._read(manifest.digest).outcomes, self._read(other.digest)
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
        is_deleted = self.registry.delete_tag(tag)
        if (shared := find_shared_tag(tag)) != tag:
            with suppress(errors.TagImmutable):
                self.update(shared)
        return is_deleted

    def _read(self, digest: str) -> promotions.ImageStatements:
        return promotions.read_image_statements(self.registry, digest, self.trusted)

    def list_tags(self) -> Sequence[str]:
        return self.registry.list_tags()

    def get_blob(self, digest: str) -> Iterator[bytes]:
        return self.registry.get_blob(digest)

    def list_referrers(self, digest: str) -> Sequence[documents.Descriptor]:
        return self.registry.list_referrers(digest)


def update_indexes(tags: PlatformTags, changed: Iterable[str], on_event: events.OnEvent = events.ignore) -> None:
    """Compose the indexes anew that tags belong to: statements about an image have changed, or a run was killed."""
    for shared in dict.fromkeys(map(find_shared_tag, changed)):
        try:
            is_changed = tags.update(shared)
        except errors.TagImmutable as error:
            on_event(events.WarningEvent(text=f"{shared} does not have all of its platforms: {error.what}"))
            continue
        if is_changed:
            platforms = " and ".join(_list_entries(tags.registry.find(shared)))
            what = f"an index of {platforms}" if platforms else f"an image for {DEFAULT} alone"
            on_event(events.WarningEvent(text=f"{shared} is {what}"))


def list_platform_tags(registry: documents.Reader, reference: str, platform: Platform | None = None) -> tuple[str, ...]:
    """Return the tags that stand for a tag on its platforms, or on one: `2.15-arm64` and `2.15` of an index `2.15`.

    The first platform is the last. `registry` is that behind `PlatformTags`.
    """
    if platform:
        return (find_platform_tag(reference, platform),)
    entries = _list_entries(registry.find(reference))
    tags = [find_platform_tag(reference, one) for one in reversed(PLATFORMS) if one in entries]
    return tuple(dict.fromkeys(tags)) or (reference,)


def list_images(
    registry: documents.Reader, reference: str, tag: str | None, platform: Platform | None = None
) -> Iterator[tuple[str, str | None]]:
    """Yield the images of an index, or the one for `platform`, each by digest with the tag that stands for it.

    What is no index is yielded as it is. Raises as `find_platform_image`.
    """
    entries = _list_entries(registry.find(reference))
    for one in (platform,) if platform else entries or (None,):
        found = find_platform_image(registry, reference, one)
        yield (found[0], tag and find_platform_tag(tag, found[1])) if found else (reference, tag)


def find_own_tags(registry: documents.Reader, digest: str, tags: Iterable[str]) -> dict[str, list[str]]:
    """Return an image, or those of an index for known platforms, each with the tags that stand for `tags` there."""
    images = _list_entries(registry.find(digest))
    platforms: dict[str, Platform | None] = {entry.digest: platform for platform, entry in images.items()}
    of_tags = {tag: _list_entries(registry.find(tag)) for tag in tags}
    found: dict[str, list[str]] = {}
    for image, platform in (platforms or {digest: None}).items():
        own = set()
        for tag, entries in of_tags.items():
            place = platform or next((one for one, entry in entries.items() if entry.digest == image), None)
            own.add(find_platform_tag(tag, place) if place else tag)
        found[image] = sorted(own)
    return found


def _list_entries(manifest: documents.Manifest | None) -> dict[Platform, documents.Descriptor]:
    try:
        return list_platforms(manifest) if manifest else {}
    except InvalidDocument:
        return {}
