"""Releases of packages on the package indexes, as an image's Python and platform see them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from tfimg.core.cache import make_cache_key, read_cache, write_cache
from tfimg.core.cancellation import map_in_threads
from tfimg.core.errors import NetworkError
from tfimg.index.client import MAX_WHEEL, Index, IndexedWheel, ProjectPage
from tfimg.matrix.schema import PROCESSORS, Platform
from tfimg.recipe.lock import list_wheel_tags

MAX_PAGES = 8  # pages that are read at once

MAX_SECONDS = 600
"""Age up to which what a page says is taken from an earlier run: as long as the public index lets clients keep it."""

SYSTEMS = {"win": "Windows", "macosx": "macOS"}
"""What the platform tags of other systems begin with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageRelease:
    """A release of a package; `uploaded` is the day of its first file, None if the index does not state it.

    `python` is its Requires-Python; a release before one that excludes the image's Python as too late does not support
    it. `usable` is the day of the first wheel that the image's Python and platform can install, `fits` says that there
    is one. `pythons` and `systems` are what its wheels are for where none fits.
    """

    version: Version
    uploaded: date | None
    supports_python: bool
    python: str
    fits: bool
    usable: date | None
    has_wheels: bool
    has_source: bool
    pythons: tuple[str, ...]
    systems: tuple[str, ...]

    def allows(self, python: str) -> bool:
        """Return whether its Requires-Python allows a minor such as 3.11."""
        return _supports(self.python, python)

    def is_there(self, day: date) -> bool:
        """Return whether the release was there on a day; so does one without a day, which uv leaves out."""
        return self.uploaded is None or self.uploaded <= day


@dataclass(frozen=True, kw_only=True)
class Releases:
    """Reads the releases of packages for one Python and platform; each page once.

    `cache` is the folder of what earlier runs have read: pages of the last minutes, and requirements of wheels, which
    never change. Every method raises `NetworkError`.
    """

    indexes: Sequence[Index]
    python: str
    platform: Platform
    cache: Path
    _known: dict[str, tuple[PackageRelease, ...] | None] = field(default_factory=dict)
    _requires: dict[tuple[str, str], tuple[str, ...] | None] = field(default_factory=dict)
    _failed: dict[str, NetworkError] = field(default_factory=dict)

    @cached_property
    def _tags(self) -> frozenset[object]:
        return frozenset(list_wheel_tags(self.python, PROCESSORS[self.platform]))

    def read(self, name: str) -> tuple[PackageRelease, ...] | None:
        """Return the releases of a package, the newest version first; None if no index has the package.

        Raises `NetworkError`, at once where `prefetch` has met it.
        """
        if name in self._failed:
            raise self._failed[name]
        if name not in self._known:
            file, key = self._find_file(name), make_cache_key(modules=(__file__,))
            kept = read_cache(file, key) or {"at": 0}
            if 0 <= time.time() - kept["at"] <= MAX_SECONDS:
                self._known[name] = tuple(map(_restore, kept["releases"]))
            else:
                pages = [page for index in self.indexes if (page := index.read_project(name)).exists]
                self._known[name] = found = self._list(pages) if pages else None
                if found:
                    write_cache(file, key, {"at": time.time(), "releases": [*map(_dump, found)]})
        return self._known[name]

    def _find_file(self, *what: str) -> Path:
        named = "\n".join([*(index.url for index in self.indexes), self.python, self.platform, *what])
        return self.cache / "packages" / f"{hashlib.sha256(named.encode()).hexdigest()}.json"

    def prefetch(self, names: Iterable[str]) -> None:
        """Read several packages at once; what cannot be read is an error when it is needed."""

        def read(name: str) -> None:
            try:
                self.read(name)
            except NetworkError as error:
                self._failed[name] = error

        for _ in map_in_threads(read, [name for name in names if name not in self._known], MAX_PAGES):
            pass

    def find(self, name: str, version: str) -> PackageRelease | None:
        """Return a release by its version; None if no index has it."""
        wanted = Version(version)
        return next((one for one in self.read(name) or () if one.version == wanted), None)

    def find_newest(self, name: str, specifier: SpecifierSet, day: date) -> PackageRelease | None:
        """Return the newest release for the image's Python that was there on a day, with wheels or not."""
        listed = (one for one in self.read(name) or () if one.is_there(day) and one.supports_python)
        return next((one for one in listed if specifier.contains(one.version, prereleases=False)), None)

    def read_requirements(self, name: str, version: str) -> tuple[str, ...] | None:
        """Return the requirements of a release's wheel; None without a wheel that fits."""
        if (name, version) not in self._requires:
            file, key = self._find_file(name, version), make_cache_key(modules=(__file__,))
            kept = read_cache(file, key)
            found = tuple(kept) if kept is not None else self._ask_requirements(name, version)
            if kept is None and found is not None:
                write_cache(file, key, found)
            self._requires[name, version] = found
        return self._requires[name, version]

    def _ask_requirements(self, name: str, version: str) -> tuple[str, ...] | None:
        for index in self.indexes:
            for wheel in index.wheels(name):
                if str(wheel.version) == version and self._fits(wheel):
                    return index.read_metadata(wheel, build=False).requires
        return None

    def find_size(self, name: str, version: str, sha256: str) -> int | None:
        """Return the bytes of a wheel; None if the index does not state them, or lacks it."""
        wheels = (one for index in self.indexes for one in index.find_wheels(name, version, sha256))
        return next((one.max_size for one in wheels if one.sha256 == sha256 and one.max_size < MAX_WHEEL), None)

    def _fits(self, wheel: IndexedWheel) -> bool:
        return not self._tags.isdisjoint(wheel.tags)

    def _list(self, pages: Sequence[ProjectPage]) -> tuple[PackageRelease, ...]:
        wheels: dict[Version, list[IndexedWheel]] = {}
        files: dict[Version, list[tuple[date | None, str | None]]] = {}
        sources: set[Version] = set()
        for page in pages:
            for wheel in page.wheels:
                if not wheel.is_yanked:
                    wheels.setdefault(wheel.version, []).append(wheel)
                    files.setdefault(wheel.version, []).append((wheel.uploaded, wheel.requires_python))
            sources |= {source.version for source in page.sources}
            for source in page.sources:
                files.setdefault(source.version, []).append((source.uploaded, source.requires_python))
        found = []
        is_too_late = False
        for version in sorted(files, reverse=True):
            one = self._summarize(version, wheels.get(version, []), files[version], has_source=version in sources)
            # Releases before one that excludes this Python as too late did not know of it, and have no such bound.
            is_too_late |= _is_too_late(one.python, self.python) and not version.is_prerelease
            found.append(replace(one, supports_python=one.supports_python and not is_too_late))
        return tuple(found)

    def _summarize(
        self,
        version: Version,
        wheels: Sequence[IndexedWheel],
        files: Sequence[tuple[date | None, str | None]],
        *,
        has_source: bool,
    ) -> PackageRelease:
        fitting = [wheel for wheel in wheels if self._fits(wheel)]
        platforms = {platform for wheel in wheels for tag in wheel.tags for platform in [tag.platform]}
        systems = {name for start, name in SYSTEMS.items() if any(one.startswith(start) for one in platforms)}
        is_foreign = bool(platforms) and not any("linux" in one or one == "any" for one in platforms)
        days = [day for day, _ in files if day]
        return PackageRelease(
            version=version,
            uploaded=min(days, default=None),
            supports_python=any(_supports(python or "", self.python) for _, python in files),
            python=next((python for _, python in files if python), ""),
            fits=bool(fitting),
            usable=min((wheel.uploaded for wheel in fitting if wheel.uploaded), default=None),
            has_wheels=bool(wheels),
            has_source=has_source,
            pythons=tuple(sorted({one for wheel in wheels for one in wheel.pythons}, key=Version)),
            systems=tuple(sorted(systems)) if is_foreign else (),
        )


@cache
def _supports(specifier: str, python: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(f"{python}.99")
    except InvalidSpecifier:
        return True


@cache
def _is_too_late(specifier: str, python: str) -> bool:
    """Return whether Requires-Python excludes a Python and allows an earlier one."""
    earlier = ["2.7", *(f"3.{minor}" for minor in range(3, int(python.partition(".")[2])))]
    return not _supports(specifier, python) and any(_supports(specifier, one) for one in earlier)


def _dump(release: PackageRelease) -> dict[str, Any]:
    """Return a release as plain JSON values."""
    named = ((one.name, getattr(release, one.name)) for one in fields(release))
    return {name: str(one) if isinstance(one, Version | date) else one for name, one in named}


def _restore(values: dict[str, Any]) -> PackageRelease:
    uploaded, usable = (date.fromisoformat(day) if day else None for day in (values["uploaded"], values["usable"]))
    lists = {name: tuple(values[name]) for name in ("pythons", "systems")}
    return PackageRelease(
        **{**values, **lists, "version": Version(values["version"]), "uploaded": uploaded, "usable": usable}
    )


def select_names(requires: Iterable[str], environment: dict[str, str], extras: Iterable[str]) -> list[Requirement]:
    """Return the requirements that apply in an environment with some extras, without their markers."""
    found = []
    for one in map(Requirement, requires):
        if one.marker is None or any(one.marker.evaluate({**environment, "extra": extra}) for extra in ("", *extras)):
            one.marker = None  # a requirement with an escaped character in it cannot be parsed again
            found.append(one)
    return found


def list_pythons(release: PackageRelease) -> str:
    """Return what the wheels of a release are for, in words: `Windows`, or `Python 3.7 to 3.10`."""
    if release.systems:
        return " and ".join(release.systems)
    if release.pythons:
        first, last = release.pythons[0], release.pythons[-1]
        return f"Python {first}" if first == last else f"Python {first} to {last}"
    return "another platform"
