"""Read which image a tag points to: its release and level from what trusted keys signed, or from its labels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from packaging.version import InvalidVersion, Version

from tfimg.documents import MAX_BYTES, Digest, Document, InvalidDocument, parse_document, validate
from tfimg.errors import TamperedError
from tfimg.evidence.promotions import Statements
from tfimg.recipe.describe import Level
from tfimg.recipe.labels import IDENTIFIER, PREFIX
from tfimg.registry.protocol import DOCKER_INDEX, OCI_CONFIG, OCI_INDEX, Manifest, Registry

TENSORFLOW = f"{PREFIX}tensorflow"

CONFIGS = (OCI_CONFIG, "application/vnd.docker.container.image.v1+json")
"""Media types of an image's configuration; other artifacts have other ones."""


class _Entry(Document):
    digest: Digest
    platform: dict[str, Any] | None = None


class _Config(Document):
    created: str | None = None
    config: dict[str, Any] | None = None


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


def signed_holder(registry: Registry, manifest: Manifest, statements: Statements) -> Holder:
    """Describe an image by its newest signed test result, and by the time of creation that its digest covers."""
    newest = next(iter(statements.outcomes), None)
    tensorflow = newest.identifier.partition("-")[0] if newest else ""
    if newest is None or not _is_version(tensorflow):
        return Holder(manifest=manifest, release=None)
    labelled = release_of(registry, manifest)
    release = Release(
        identifier=newest.identifier, tensorflow=tensorflow, created=labelled.created if labelled else None
    )
    level = None if newest.result == "FAILED" else newest.shown
    return Holder(manifest=manifest, release=release, level=level)


def release_of(registry: Registry, manifest: Manifest) -> Release | None:
    """Return which image the labels name; None without labels. Raises `TamperedError` for an invalid document."""
    try:
        config = _config(registry, manifest)
        labels = (config.config or {}).get("Labels") if config else None
    except InvalidDocument as error:
        raise TamperedError(
            f"The configuration of {registry.repository}@{manifest.digest} is invalid: {error}.",
            next_step="Do not use the image.",
        ) from None
    if config is None or not isinstance(labels, dict):
        return None
    identifier, tensorflow = str(labels.get(IDENTIFIER, "")), str(labels.get(TENSORFLOW, ""))
    if not identifier or not _is_version(tensorflow):
        return None
    return Release(identifier=identifier, tensorflow=tensorflow, created=_moment(config.created))


def is_image(manifest: Manifest, local: str) -> bool:
    """Return whether a manifest is an engine's image: the classic store names it by the configuration's digest."""
    if local == manifest.digest:
        return True
    try:
        config = None if manifest.media_type in (OCI_INDEX, DOCKER_INDEX) else manifest.image.config
    except InvalidDocument:
        return False
    return config is not None and config.digest == local


def _config(registry: Registry, manifest: Manifest) -> _Config | None:
    """Return the image's configuration; of an index, that of its first image, whose labels the others share."""
    if manifest.media_type in (OCI_INDEX, DOCKER_INDEX):
        listed = manifest.document.get("manifests")
        entries = validate(list[_Entry], listed if isinstance(listed, list) else [])
        digest = next((one.digest for one in entries if "unknown" not in str(one.platform)), None)
        first = registry.find(digest) if digest else None
        is_index = first is not None and first.media_type in (OCI_INDEX, DOCKER_INDEX)
        return _config(registry, first) if first and not is_index else None
    described = manifest.image.config
    if described is None or described.media_type not in CONFIGS:
        return None
    content = bytearray()
    for piece in registry.blob(described.digest):
        content += piece
        if len(content) > MAX_BYTES:
            raise InvalidDocument(f"it has more than {MAX_BYTES} bytes")
    return parse_document(_Config, bytes(content))


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _moment(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
