"""Find the images of an engine that are behind their base: packages that Debian has newer, or a renewed base."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from debian_inspector.version import Version

from tfimg.core.errors import NetworkError
from tfimg.engine.base_images.choose import BASE_REPOSITORY
from tfimg.engine.protocol import Engine, LocalImage
from tfimg.inspect.contents import list_contents
from tfimg.matrix.schema import Platform
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.labels import BASE_DIGEST_LABEL, BASE_NAME_LABEL
from tfimg.recipe.tags import list_tags


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """A package with a newer version, or the `base` with another digest."""

    package: str
    installed: str
    available: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OutdatedImage:
    """An image that would have other bytes on today's base."""

    identifier: str
    image: str
    updates: tuple[Update, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseUpdates:
    """Images behind their base; `current` are identifiers of images that are not, `missing` of those not built here."""

    outdated: tuple[OutdatedImage, ...]
    current: tuple[str, ...]
    missing: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


def find_base_updates(
    specs: Sequence[ImageSpec], project: Project, engine: Engine, say: Callable[[str], object]
) -> BaseUpdates:
    """Compare the images of an engine with the engine's bases and with Debian's mirror of this machine.

    Installed versions are those of the inventory that a build kept. The mirror is asked once for each Debian release
    and platform. Raises as `read_available` and `InventoryCache.take`.
    """
    local = {name: image for image in engine.list_images() for name in image.names}
    built = {
        spec: (name, local[name])
        for spec in specs
        if (name := list_tags(spec, repository=project.repository)[0]) in local
    }
    contents = {
        spec: list_contents(project.inventories.take(name, image.content, engine)).debian
        for spec, (name, image) in built.items()
    }
    available: dict[tuple[str | None, Platform], Mapping[str, str]] = {}
    for release in dict.fromkeys(map(_release, built)):
        suite, platform = release
        names = {name for spec in built if _release(spec) == release for name in contents[spec]}
        if suite and names:
            say(f"Asking Debian's mirror for {len(names)} packages of {suite}")
            available[release] = project.services.debian_packages(names, suite=suite, platform=platform)
    outdated, current = [], []
    for spec, (name, image) in built.items():
        updates = (
            *_compare_base(image, engine),
            *_compare_packages(contents[spec], available.get(_release(spec), {})),
        )
        if updates:
            outdated.append(OutdatedImage(identifier=spec.identifier, image=name, updates=updates))
        else:
            current.append(spec.identifier)
    return BaseUpdates(
        outdated=tuple(outdated),
        current=tuple(current),
        missing=tuple(spec.identifier for spec in specs if spec not in built),
    )


def _release(spec: ImageSpec) -> tuple[str | None, Platform]:
    return spec.base.codename, spec.platform


def _compare_base(image: LocalImage, engine: Engine) -> list[Update]:
    """Return the base as an update if its name now has another digest: in a registry, or bootstrapped again."""
    name, digest = image.labels.get(BASE_NAME_LABEL), image.labels.get(BASE_DIGEST_LABEL)
    present = None
    if name and digest:
        if name.startswith(f"{BASE_REPOSITORY}:"):
            present = engine.find_digest(name)
        else:
            with suppress(NetworkError):  # a registry that cannot be asked says nothing
                present = engine.resolve_digest(name)
    if not (name and digest and present) or present == digest:
        return []
    return [Update(package=name, installed=digest, available=present)]


def _compare_packages(installed: Mapping[str, str], available: Mapping[str, str]) -> list[Update]:
    """Return the packages that have a newer version; versions without an order are left out."""
    found = []
    for name, version in sorted(installed.items()):
        with suppress(ValueError, TypeError):
            if name in available and Version.from_string(version) < Version.from_string(available[name]):
                found.append(Update(package=name, installed=version, available=available[name]))
    return found
