"""Indexes of images for several platforms: read them, choose the image of a platform, make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import NotInRegistry, TamperedError
from tfimg.core.text import canonical_json, quote_value
from tfimg.matrix.schema import PLATFORMS, Platform
from tfimg.recipe.labels import IDENTIFIER_LABEL
from tfimg.recipe.tags import find_shared_tag
from tfimg.registry.documents import (
    DISCARD,
    INDEXES,
    OCI_INDEX,
    Descriptor,
    Manifest,
    PlatformImage,
    Reader,
    open_image,
)
from tfimg.registry.documents import Platform as EntryPlatform

MAX_ENTRIES = 100
"""Entries of an index. Ours have two; python:3.11-slim has 18, of eight platforms with an attestation each."""


def list_platforms(manifest: Manifest) -> dict[Platform, Descriptor]:
    """Return the entries for known platforms of an index of several; none for an image and for an index of one.

    Raises `InvalidDocument` for too many entries, and for two images or a nested index for a known platform.
    """
    if manifest.media_type not in INDEXES:
        return {}
    entries = manifest.index.manifests
    if len(entries) > MAX_ENTRIES:
        raise InvalidDocument(f"the index has {len(entries)} entries, and at most {MAX_ENTRIES} are read")
    names = [f"{entry.platform.os}/{entry.platform.architecture}" for entry in entries]
    if len({*names} - {"/", "unknown/unknown"}) < 2:
        return {}
    found: dict[Platform, Descriptor] = {}
    for platform in PLATFORMS:
        own = [entry for entry, name in zip(entries, names, strict=True) if name == platform]
        if len({entry.digest for entry in own}) > 1:
            raise InvalidDocument(f"the index has {len(own)} images for {platform}")
        if own and own[0].media_type in INDEXES:
            raise InvalidDocument(f"its entry for {platform} is an index again")
        if own:
            found[platform] = own[0]
    return found


def find_platform_image(
    registry: Reader, reference: str, platform: Platform | None, *, default: Platform | None = None
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
            known = {image.platform for image in open_image(registry, manifest.digest).images}
            _require_platform(name, platform, sorted(filter(None, known)))
        return None
    wanted = platform or default
    _require_platform(name, wanted, [*entries])
    assert wanted  # noqa: S101 - it is one of the entries
    images = {one: _open_entry(registry, name, one, entry) for one, entry in entries.items()}
    identifiers = {one: _shared_identifier(image) for one, image in images.items() if image}
    if len({*identifiers.values()}) > 1:
        listed = ", ".join(
            f"{quote_value(named or 'an unknown image')} for {one}" for one, named in identifiers.items()
        )
        raise _hostile(name, f"the index mixes different images: {listed}")
    if images[wanted] is None:
        raise NotInRegistry(
            f"{name} lists {entries[wanted].digest} for {wanted}, which the registry does not have.",
            next_step="Ask its publisher, who can publish the image again.",
        )
    return entries[wanted].digest, wanted


def make_index(manifests: Mapping[Platform, Manifest]) -> Manifest:
    """Return the OCI image index of images for platforms: the same input gives the same bytes."""
    entries = []
    for platform, manifest in manifests.items():
        system, _, architecture = platform.partition("/")
        entry = replace(manifest.descriptor, platform=EntryPlatform(os=system, architecture=architecture))
        entries.append(entry.to_document())
    content = canonical_json({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries})
    return Manifest(media_type=OCI_INDEX, content=content)


def _require_platform(name: str, platform: Platform | None, known: list[str]) -> None:
    if platform not in known:
        raise NotInRegistry(
            f"{name} has no image for {platform or 'this machine'}, but for {', '.join(known) or 'no platform'}.",
            next_step="Name one of its platforms with --platform, or another tag.",
        )


def _open_entry(registry: Reader, name: str, platform: Platform, entry: Descriptor) -> PlatformImage | None:
    """Return the image of an entry, None if it was deleted. Raises `TamperedError` if it is for another platform."""
    try:
        opened = open_image(registry, entry.digest)
    except NotInRegistry:
        return None
    if opened.indexes:
        raise _hostile(name, f"its entry for {platform} is an index again")
    (image,) = opened.images
    if image.platform != platform:
        raise _hostile(name, f"its entry for {platform} is an image for {quote_value(image.platform or 'no platform')}")
    return image


def _shared_identifier(image: PlatformImage) -> str | None:
    identifier = image.labels.get(IDENTIFIER_LABEL)
    return find_shared_tag(identifier) if identifier else None


def _hostile(name: str, reason: str) -> TamperedError:
    return TamperedError(f"{name} is not a valid index of platforms: {reason}.", next_step=DISCARD)
