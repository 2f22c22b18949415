"""Read which release an image is: from what trusted keys signed, or from its labels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from packaging.version import InvalidVersion, Version

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import NotInRegistry
from tfimg.core.levels import Level
from tfimg.evidence.promotions import ImageStatements
from tfimg.matrix.spec import parse_release
from tfimg.recipe.labels import IDENTIFIER_LABEL, LABEL_PREFIX
from tfimg.registry.documents import Manifest, Registry, open_image

TENSORFLOW = f"{LABEL_PREFIX}tensorflow"


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


def read_signed_image(registry: Registry, manifest: Manifest, statements: ImageStatements) -> TaggedImage:
    """Describe an image by its newest signed test result, and by the time of creation that its digest covers."""
    newest = next(iter(statements.outcomes), None)
    tensorflow = parse_release(newest.identifier) if newest else ""
    if newest is None or not parse_version(tensorflow):
        return TaggedImage(digest=manifest.digest, release=None)
    labelled = read_release(registry, manifest)
    created = labelled.created if labelled else None
    release = Release(identifier=newest.identifier, tensorflow=tensorflow, created=created)
    level = None if newest.result == "FAILED" else newest.proven_level
    return TaggedImage(digest=manifest.digest, release=release, level=level)


def read_release(registry: Registry, manifest: Manifest) -> Release | None:
    """Return the release that an image's labels name, or None. Raises `TamperedError` for an invalid image."""
    try:
        image = open_image(registry, manifest.digest)
    except NotInRegistry:  # a part of it was deleted
        return None
    # All images of an index have the same labels; those without a platform are attestations.
    first = next(iter(image.platforms if image.indexes else image.images), None)
    tensorflow = first.labels.get(TENSORFLOW, "") if first else ""
    identifier = first.labels.get(IDENTIFIER_LABEL) if first else None
    if first is None or not identifier or not parse_version(tensorflow):
        return None
    return Release(identifier=identifier, tensorflow=tensorflow, created=first.settings.created_at)


def is_same_image(manifest: Manifest, local_digest: str) -> bool:
    """Return whether a manifest is an engine's image, whose digest is its configuration's in the classic store."""
    try:
        config = manifest.image.config
    except InvalidDocument:
        config = None
    return local_digest in (manifest.digest, config.digest if config else None)


def parse_version(text: str) -> Version | None:
    """Return a version; None for another text."""
    try:
        return Version(text)
    except InvalidVersion:
        return None
