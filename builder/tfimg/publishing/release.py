"""What a registry has under a tag or digest → which image of tfimg that is, and which of two is the newer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from packaging.version import InvalidVersion, Version

from tfimg.contents.images import (
    CONFIGS,
    INDEXES,
    UNKNOWN,
    ImageConfig,
    image_manifest,
    index_entries,
    read_config,
)
from tfimg.documents import InvalidDocument
from tfimg.recipe.labels import IDENTIFIER, PREFIX
from tfimg.registry.protocol import Manifest, Registry

TENSORFLOW = f"{PREFIX}tensorflow"

MAX_NESTING = 4
"""Indexes inside of indexes that are followed; ours have one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """An image of tfimg: what its labels say, and when it was made; None where that is not known."""

    identifier: str
    tensorflow: str
    created: datetime | None = None

    @property
    def rank(self) -> tuple[Version, datetime]:
        """The newer release has the higher one; of one release, the newer build."""
        return Version(self.tensorflow), self.created or datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What a tag leads to. `release` is None where that is no image of tfimg."""

    manifest: Manifest
    release: Release | None

    @property
    def digest(self) -> str:
        """Of the manifest."""
        return self.manifest.digest


def held(registry: Registry, reference: str) -> Held | None:
    """What is under a tag or digest; None where there is nothing."""
    manifest = registry.find(reference)
    return Held(manifest=manifest, release=release_of(registry, manifest)) if manifest else None


def release_of(registry: Registry, manifest: Manifest) -> Release | None:
    """Which image of tfimg a manifest is; None where it is none. Raises `TamperedError` for a broken one."""
    config = _config(registry, manifest)
    labels = config.config.labels
    identifier, tensorflow = labels.get(IDENTIFIER), labels.get(TENSORFLOW)
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
        first = next(
            (one for one in entries if UNKNOWN not in (one.platform.os, one.platform.architecture)), None
        )
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
