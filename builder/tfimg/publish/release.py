"""Read which image a tag points to: its release and level from what trusted keys signed, or from its labels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from packaging.version import InvalidVersion, Version

from tfimg.core.documents import InvalidDocument
from tfimg.core.levels import Level
from tfimg.evidence.promotions import ImageStatements
from tfimg.recipe.labels import IDENTIFIER_LABEL, LABEL_PREFIX
from tfimg.registry.images import (
    CONFIGS,
    INDEXES,
    UNKNOWN,
    ImageConfig,
    image_manifest,
    index_entries,
    read_config,
)
from tfimg.registry.protocol import Manifest, Registry

TENSORFLOW = f"{LABEL_PREFIX}tensorflow"

MAX_NESTING = 4
"""Indexes inside of indexes that are followed; ours have one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """An image of tfimg, and when it was made; None where that is unknown."""

    identifier: str
    tensorflow: str
    created: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """The image that a tag points to. `release` is None where no trusted statement says which image it is.

    `level` is what its newest test result shows; None where that failed or there is none.
    """

    manifest: Manifest
    release: Release | None
    level: Level | None = None

    @property
    def digest(self) -> str:
        """Return the digest of the manifest."""
        return self.manifest.digest


def labelled_holder(registry: Registry, manifest: Manifest) -> Holder:
    """Describe an image by its labels, which anyone with push rights can write."""
    return Holder(manifest=manifest, release=release_of(registry, manifest))


def signed_holder(registry: Registry, manifest: Manifest, statements: ImageStatements) -> Holder:
    """Describe an image by its newest signed test result, and by the time of creation that its digest covers."""
    newest = next(iter(statements.outcomes), None)
    tensorflow = newest.identifier.partition("-")[0] if newest else ""
    if newest is None or not _is_version(tensorflow):
        return Holder(manifest=manifest, release=None)
    labelled = release_of(registry, manifest)
    release = Release(
        identifier=newest.identifier, tensorflow=tensorflow, created=labelled.created if labelled else None
    )
    level = None if newest.result == "FAILED" else newest.proven_level
    return Holder(manifest=manifest, release=release, level=level)


def release_of(registry: Registry, manifest: Manifest) -> Release | None:
    """Which image of tfimg a manifest is; None where it is none. Raises `TamperedError` for a broken one."""
    config = _config(registry, manifest)
    labels = config.config.labels
    identifier, tensorflow = labels.get(IDENTIFIER_LABEL), labels.get(TENSORFLOW)
    if not identifier or not tensorflow or not _is_version(tensorflow):
        return None
    return Release(identifier=identifier, tensorflow=tensorflow, created=config.created_at)


def is_image(manifest: Manifest, local: str) -> bool:
    """Whether a manifest is an engine's image: by its own digest, or by the configuration's in the classic store."""
    try:
        config = manifest.image.config
    except InvalidDocument:
        config = None
    return local in (manifest.digest, config.digest if config else None)


def _config(registry: Registry, manifest: Manifest) -> ImageConfig:
    """Return the image's configuration; of the first image in an index, whose labels are the others' too."""
    for _ in range(MAX_NESTING):
        if manifest.media_type not in INDEXES:
            described = image_manifest(registry, manifest).config
            is_image = described is not None and described.media_type in CONFIGS
            return read_config(registry, described) if described and is_image else ImageConfig()
        entries = index_entries(registry, manifest)
        first = next((one for one in entries if UNKNOWN not in (one.platform.os, one.platform.architecture)), None)
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
