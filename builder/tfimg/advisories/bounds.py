"""Which versions of a package the other packages of an image accept, by the metadata of their wheels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfimg.index.client import IndexedWheel
from tfimg.index.wheel_metadata import WheelMetadata
from tfimg.matrix.schema import PROCESSORS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lockfile import LockedPackage

MAX_CANDIDATES = 300
"""Later versions of one package that are considered, the lowest ones."""


class MetadataIndex(Protocol):
    """The part of a package index that is read here; see `tfimg.index.client.Index`."""

    def wheels(self, project: str) -> tuple[IndexedWheel, ...]:
        """Return the wheels of a project that are not yanked."""

    def find_wheels(self, project: str, version: str, sha256: str) -> Sequence[IndexedWheel]:
        """Return the wheels of a locked version."""

    def read_metadata(self, wheel: IndexedWheel, *, build: bool) -> WheelMetadata:
        """Return the requirements of a wheel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """A requirement that excludes versions of a package. `owner` states it; `needs` is the package that it is about.

    The owner is a locked package, a later version of one, or the matrix, of which `reason` says why.
    """

    owner: str
    needs: str
    requirement: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.owner} requires {self.requirement}{f' ({self.reason})' if self.reason else ''}"


@dataclass(frozen=True)
class MetadataReader:
    """Reads each wheel's metadata once, for all images; the index reads each page once."""

    index: MetadataIndex
    _requirements: dict[tuple[str, str], tuple[Requirement, ...]] = field(default_factory=dict)

    def later_versions(self, name: str, version: str, tags: frozenset[Tag], python: str) -> tuple[Version, ...]:
        """Return the final releases after a version that have a wheel for the tags and Python, the lowest first."""
        wheels = self.index.wheels(name)
        found = {wheel.version for wheel in wheels if not tags.isdisjoint(wheel.tags) and wheel.supports(python)}
        later = (one for one in found if one > Version(version) and not one.is_prerelease and not one.local)
        return tuple(sorted(later))[:MAX_CANDIDATES]

    def locked_requirements(self, package: LockedPackage) -> tuple[Requirement, ...]:
        """Return what a locked wheel requires; nothing if the index lacks it: no bound of it is known."""
        key = package.name, package.sha256
        if key not in self._requirements:
            self._requirements[key] = self._read(self.index.find_wheels(package.name, package.version, package.sha256))
        return self._requirements[key]

    def requirements(self, name: str, version: Version) -> tuple[Requirement, ...]:
        """Return what a version requires, by the metadata of one of its wheels."""
        key = name, str(version)
        if key not in self._requirements:
            wheels = [wheel for wheel in self.index.wheels(name) if wheel.version == version]
            # Those of Linux first: the metadata of all wheels of a release is the same with few exceptions.
            self._requirements[key] = self._read(sorted(wheels, key=lambda wheel: not wheel.processors))
        return self._requirements[key]

    def _read(self, wheels: Sequence[IndexedWheel]) -> tuple[Requirement, ...]:
        if not wheels:
            return ()
        return tuple(map(Requirement, self.index.read_metadata(wheels[0], build=False).requires))


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The bounds in one image: `locked` are all its packages by name."""

    spec: ImageSpec
    locked: Mapping[str, LockedPackage]
    reader: MetadataReader

    def find_excluding(self, name: str, versions: Sequence[Version], free: Sequence[str]) -> tuple[Bound, ...]:
        """Return the bounds that exclude all versions of a package; none if they leave one.

        Packages in `free` have none: their version is not decided.
        """
        left, excluding = set(versions), []
        for bound, requirement in self._list_bounds(name, free):
            allowed = {version for version in left if requirement.specifier.contains(version, prereleases=True)}
            if allowed != left:
                excluding.append(bound)
            left = allowed
        return () if left else tuple(excluding)

    def find_unmet(self, name: str, version: Version, free: Sequence[str]) -> tuple[Bound, ...]:
        """Return what a version of a package requires that the locked packages do not meet."""
        return tuple(
            Bound(owner=f"{name} {version}", needs=needed, requirement=_format(requirement))
            for requirement in self._applicable(self.reader.requirements(name, version))
            if (needed := canonicalize_name(requirement.name)) in self.locked
            and needed not in free
            and not requirement.specifier.contains(self.locked[needed].version, prereleases=True)
        )

    def find_requirement(self, owner: str, version: Version, name: str) -> SpecifierSet:
        """Return what a version of a package requires of another one."""
        found = SpecifierSet()
        for requirement in self._applicable(self.reader.requirements(owner, version)):
            if canonicalize_name(requirement.name) == name:
                found &= requirement.specifier
        return found

    def list_allowed(self, name: str, versions: Sequence[Version], free: Sequence[str]) -> list[Version]:
        """Return the versions of a package that all bounds allow."""
        required = [requirement.specifier for _, requirement in self._list_bounds(name, free)]
        return [version for version in versions if all(one.contains(version, prereleases=True) for one in required)]

    def _list_bounds(self, name: str, free: Sequence[str]) -> Iterator[tuple[Bound, Requirement]]:
        """Yield the requirements of a package that the matrix and the locked packages have."""
        for constraint in self.spec.constraints:
            requirement = Requirement(constraint.requirement)
            if canonicalize_name(requirement.name) == name:
                yield (
                    Bound(owner="matrix.yaml", needs=name, requirement=str(requirement), reason=constraint.reason),
                    requirement,
                )
        # TensorFlow's bounds explain most: it is what cannot move.
        for package in sorted(self.locked.values(), key=lambda one: not one.name.startswith("tensorflow")):
            if package.name not in free:
                for requirement in self._applicable(self.reader.locked_requirements(package)):
                    if canonicalize_name(requirement.name) == name:
                        owner = f"{package.name} {package.version}"
                        yield Bound(owner=owner, needs=name, requirement=_format(requirement)), requirement

    def _applicable(self, requirements: Sequence[Requirement]) -> Iterator[Requirement]:
        environment = {
            "python_version": self.spec.python,
            "python_full_version": f"{self.spec.python}.0",
            "platform_machine": PROCESSORS[self.spec.platform],
            "platform_system": "Linux",
            "sys_platform": "linux",
            "os_name": "posix",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "extra": "",
        }
        return (one for one in requirements if one.marker is None or one.marker.evaluate(environment))


def _format(requirement: Requirement) -> str:
    """Return a requirement without its marker."""
    return f"{canonicalize_name(requirement.name)}{requirement.specifier}"
