"""Read which release an image is: from what trusted keys signed, or from its labels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from packaging.version import InvalidVersion, Version

from tfimg.core.documents import InvalidDocument
from tfimg.core.levels import Level
from tfimg.evidence.promotions import ImageStatements
from tfimg.recipe.labels import IDENTIFIER_LABEL, LABEL_PREFIX
from tfimg.registry.images import CONFIGS, INDEXES, UNKNOWN, ImageConfig, image_manifest, index_entries, read_config
from tfimg.registry.protocol import Manifest, Registry

TENSORFLOW = f"{LABEL_PREFIX}tensorflow"

MAX_NESTING = 4
"""Nested indexes that are followed; those of tfimg have one level."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """An image of tfimg and its time of creation, None if unknown."""

    identifier: str
    tensorflow: str
    created: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggedImage:
    """The image that a tag points to. `release` is None if no trusted statement says which image it is.

    `level` is that of its newest test result; None if that failed or there is none.
    """

    digest: str
    release: Release | None
    level: Level | None = None


def read_labelled_image(registry: Registry, manifest: Manifest) -> TaggedImage:
    """Describe an image by its labels, which anyone with push rights can write."""
    return TaggedImage(digest=manifest.digest, release=read_release(registry, manifest))


def read_signed_image(registry: Registry, manifest: Manifest, statements: ImageStatements) -> TaggedImage:
    """Describe an image by its newest signed test result, and by the time of creation that its digest covers."""
    newest = next(iter(statements.outcomes), None)
    tensorflow = newest.identifier.partition("-")[0] if newest else ""
    if newest is None or not _is_version(tensorflow):
        return TaggedImage(digest=manifest.digest, release=None)
    labelled = read_release(registry, manifest)
    created = labelled.created if labelled else None
    release = Release(identifier=newest.identifier, tensorflow=tensorflow, created=created)
    level = None if newest.result == "FAILED" else newest.proven_level
    return TaggedImage(digest=manifest.digest, release=release, level=level)


def read_release(registry: Registry, manifest: Manifest) -> Release | None:
    """Return the release that an image's labels name, or None. Raises `TamperedError` for an invalid image."""
    config = _read_config(registry, manifest)
    labels = config.config.labels
    identifier, tensorflow = labels.get(IDENTIFIER_LABEL), labels.get(TENSORFLOW)
    if not identifier or not tensorflow or not _is_version(tensorflow):
        return None
    return Release(identifier=identifier, tensorflow=tensorflow, created=config.created_at)


def is_same_image(manifest: Manifest, local_digest: str) -> bool:
    """Return whether a manifest is an engine's image, whose digest is its configuration's in the classic store."""
    try:
        config = manifest.image.config
    except InvalidDocument:
        config = None
    return local_digest in (manifest.digest, config.digest if config else None)


def _read_config(registry: Registry, manifest: Manifest) -> ImageConfig:
    """Return the image's configuration; for an index that of its first image, as all have the same labels."""
    for _ in range(MAX_NESTING):
        if manifest.media_type not in INDEXES:
            config = image_manifest(registry, manifest).config
            return read_config(registry, config) if config and config.media_type in CONFIGS else ImageConfig()
        entries = index_entries(registry, manifest)
        images = (entry for entry in entries if UNKNOWN not in (entry.platform.os, entry.platform.architecture))
        first = next(images, None)
        found = registry.find(first.digest) if first else None
        if found is None:
            break
        manifest = found
    return ImageConfig()


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
