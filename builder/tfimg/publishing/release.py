"""What a registry has under a tag or digest → which image of tfimg that is, and which of two is the newer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from packaging.version import InvalidVersion, Version

from tfimg.errors import TamperedError
from tfimg.recipe.labels import IDENTIFIER, PREFIX
from tfimg.registry.protocol import DOCKER_INDEX, OCI_CONFIG, OCI_INDEX, Manifest, Registry

TENSORFLOW = f"{PREFIX}tensorflow"

CONFIGS = (OCI_CONFIG, "application/vnd.docker.container.image.v1+json")
"""Media types of what an image has as its configuration; other artifacts have something else there."""


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
    runtime = config.get("config")
    labels = (runtime.get("Labels") or {}) if isinstance(runtime, dict) else {}
    identifier, tensorflow = labels.get(IDENTIFIER), labels.get(TENSORFLOW)
    if not identifier or not tensorflow or not _is_version(tensorflow):
        return None
    return Release(identifier=identifier, tensorflow=tensorflow, created=_moment(config.get("created")))


def is_image(manifest: Manifest, local: str) -> bool:
    """Whether a manifest is an engine's image: by its own digest, or by the configuration's in the classic store."""
    return local in (manifest.digest, manifest.document.get("config", {}).get("digest"))


def _config(registry: Registry, manifest: Manifest) -> Mapping[str, Any]:
    """The image's configuration; of the first image in an index, whose labels are the others' too."""
    document = manifest.document
    if manifest.media_type in (OCI_INDEX, DOCKER_INDEX):
        images = [one for one in document.get("manifests", ()) if "unknown" not in str(one.get("platform"))]
        first = registry.find(images[0]["digest"]) if images else None
        return _config(registry, first) if first else {}
    described = document.get("config", {})
    if described.get("mediaType") not in CONFIGS:
        return {}
    content = b"".join(registry.blob(described["digest"]))
    try:
        config = json.loads(content)
    except ValueError:
        raise TamperedError(
            f"The configuration of {registry.repository}@{manifest.digest} is no JSON.",
            next_step="Do not use it.",
        ) from None
    return config if isinstance(config, dict) else {}


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _moment(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
