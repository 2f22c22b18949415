"""How old the releases are that a request takes: which of them are refused, and how newer ones are taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.core.cancellation import map_in_threads
from tfimg.core.errors import LockError, NetworkError
from tfimg.index.client import make_environment, select_requirements
from tfimg.matrix.schema import PROCESSORS
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import ALIAS
from tfimg.recipe.lock import MAX_RESOLUTIONS
from tfimg.recipe.packages import Resolver, is_exact, name_of
from tfimg.recipe.releases import PackageRelease, Releases

if TYPE_CHECKING:
    from packaging.pylock import Package

LATE_DAYS = 90
"""Days by which a release may be older than the newest of the day before it is asked why. keras-cv 0.4.0, which lacks
what it imports, is 256 days older than 0.6.4, which needs a wheel made of source."""

MAX_AGE_DAYS = 365
"""Days by which a release that a request takes without naming its version may be older than the newest of the day."""

MAX_LISTED = 5  # old releases that are tried to avoid


@dataclass(frozen=True, kw_only=True, slots=True)
class OldRelease:
    """A release that a resolution takes, although the day has a newer one that supports the image's Python.

    `specifier` is what the request names for the package, None for a package that only others need. `is_companion`: it
    says itself that it is made for the image's TensorFlow, as releases of TensorFlow Text do.
    """

    name: str
    version: str
    uploaded: date | None
    newest: str
    newest_day: date | None
    specifier: str | None
    is_companion: bool = False

    @property
    def days(self) -> int:
        """How many days older than the newest release it is; 0 where the index states no days."""
        return (self.newest_day - self.uploaded).days if self.newest_day and self.uploaded else 0

    @property
    def is_late(self) -> bool:
        """Whether a request without a version ends in it because the newest may need what has no wheel."""
        return self.specifier == "" and self.days > LATE_DAYS and not self.is_companion

    @property
    def is_refused(self) -> bool:
        """Whether a request without a version must not end in it."""
        is_old = self.days > MAX_AGE_DAYS and not self.is_companion
        return self.specifier == "" and (is_old or Version(self.version).is_prerelease)

    def describe(self) -> str:
        """Return the release and the newest one in words."""
        newest = f"the newest of the day is {self.newest} of {self.newest_day}"
        return f"{self.name} {self.version} of {self.uploaded}; {newest}"


def find_old_releases(
    releases: Releases, spec: ImageSpec, found: Mapping[str, str], requirements: Iterable[str], day: date
) -> tuple[OldRelease, ...]:
    """Return the releases among `found` versions that are older than the newest of a day, the oldest first.

    Those that a request bounds are compared with the newest that the bounds allow. Raises `NetworkError`.
    """
    named: dict[str, SpecifierSet] = {}
    for one in map(Requirement, requirements):
        named[name_of(str(one))] = named.get(name_of(str(one)), SpecifierSet()) & one.specifier
    releases.prefetch(found)
    old = []
    for name, version in found.items():
        here = releases.find(name, version)
        newest = releases.find_newest(name, named.get(name, SpecifierSet()), day)
        if here is None or newest is None or newest.version <= here.version:
            continue
        old.append(
            OldRelease(
                name=name,
                version=version,
                uploaded=here.uploaded,
                newest=str(newest.version),
                newest_day=newest.uploaded,
                specifier=str(named[name]) if name in named else None,
                is_companion=name in named and _is_companion(releases, spec, name, version),
            )
        )
    return tuple(sorted(old, key=lambda one: (-one.days, one.name)))


def take_newer_releases(
    resolver: Resolver, releases: Releases, requirements: Sequence[str], found: Sequence[Package]
) -> tuple[Sequence[Package], OldRelease | None]:
    """Return what a request resolves to, without releases of long ago of packages that only others need.

    uv keeps what the image has, and may take an old release for it. Also return the first that it has to take because
    of what does not move. Raises `NetworkError`.
    """
    versions = {str(one.name): str(one.version) for one in found}
    named = {name_of(one) for one in requirements} - resolver.versions.keys()
    others = {name: one for name, one in versions.items() if name not in named | resolver.versions.keys()}
    # What the request names becomes no older for it.
    pinned = (*requirements, *(f"{name}=={versions[name]}" for name in sorted(named & versions.keys())))
    listed = find_old_releases(releases, resolver.spec, others, (), resolver.day)
    free = [name for name in resolver.versions if not resolver.is_held(name, [name])]

    def ask(one: OldRelease) -> str:
        for answer, names in (("avoidable", ()), ("forced", free)):
            try:
                resolver.find((*pinned, bounds[one.name]), names)
                return answer
            except LockError:
                continue
        return "bounded by the request"

    old = [one for one in listed if one.days > MAX_AGE_DAYS][:MAX_LISTED]
    bounds = {one.name: _bound_age(releases, one.name, one.newest_day) for one in old if one.newest_day}
    answers = list(zip(old, map_in_threads(ask, old, MAX_RESOLUTIONS), strict=True))
    newer = tuple(bounds[one.name] for one, answer in answers if answer == "avoidable")
    if newer:
        with suppress(LockError):
            found = replace(resolver, constraints=(*resolver.constraints, *newer)).find(pinned)
    return found, next((one for one, answer in answers if answer == "forced"), None)


def find_recent(
    resolver: Resolver, releases: Releases, requirements: Sequence[str], free: Sequence[str] = ()
) -> Sequence[Package]:
    """Return what a request resolves to, without the releases that would be refused for their age.

    uv would read the metadata of every release, down to the first. Raises as `Resolver.find`.
    """
    bounds: dict[str, str] = {}
    with suppress(NetworkError):  # which uv reports
        bounds = _find_oldest(releases, requirements, resolver)
    try:
        return replace(resolver, constraints=(*resolver.constraints, *bounds.values())).find(requirements, free)
    except LockError:
        # The release for the image's TensorFlow may be of any age.
        newest = {name: releases.find_newest(name, SpecifierSet(), resolver.day) for name in bounds}
        kept = [
            bounds[name]
            for name, one in newest.items()
            if one is None or not is_for_later(releases, resolver.spec, name, str(one.version))
        ]
        if len(kept) == len(bounds):
            raise
    return replace(resolver, constraints=(*resolver.constraints, *kept)).find(requirements, free)


def _find_oldest(releases: Releases, requirements: Sequence[str], resolver: Resolver) -> dict[str, str]:
    """Return the bound of the oldest release that is not refused for each package without a version.

    No release meets that of a package of which the request would take a pre-release without naming one.
    """
    named = [(name_of(one), Requirement(one)) for one in requirements if not is_exact(one)]
    named = [(name, one) for name, one in named if name not in resolver.versions]
    releases.prefetch(name for name, _ in named)
    bounds = {}
    for name, one in named:
        newest = releases.find_newest(name, SpecifierSet(), resolver.day)
        listed = releases.read(name) or ()
        there = [release for release in listed if release.is_there(resolver.day)]
        is_of_others = not one.specifier and not any(release.supports_python for release in there)
        if listed and (is_of_others or has_only_pre_releases(one, listed, resolver.day)):
            bounds[name] = f"{name}>{listed[0].version.public}"
        elif newest is not None and newest.uploaded is not None and not one.specifier:
            bounds[name] = _bound_age(releases, name, newest.uploaded)
    return bounds


def has_only_pre_releases(wanted: Requirement, listed: Iterable[PackageRelease], day: date) -> bool:
    """Return whether a requirement that names no pre-release is met by pre-releases alone as of a day."""
    if wanted.specifier.prereleases:
        return False
    there = [one for one in listed if one.is_there(day) and one.supports_python]
    met = [one for one in there if wanted.specifier.contains(one.version, prereleases=True)]
    return bool(met) and all(one.version.is_prerelease for one in met)


def _bound_age(releases: Releases, name: str, newest: date) -> str:
    """Return the requirement of a release that is not old beside the newest of the day, which is of `newest`."""
    since = newest - timedelta(days=MAX_AGE_DAYS)
    listed = releases.read(name) or ()
    recent = (one.version for one in listed if one.uploaded and one.uploaded >= since and one.supports_python)
    # A bound with a pre-release would allow them.
    return f"{name}>={min(one for one in recent if not one.is_prerelease).public}"


def is_for_later(releases: Releases, spec: ImageSpec, name: str, version: str) -> bool:
    """Return whether a release of a package is made for a TensorFlow after an image's. Raises `NetworkError`."""
    environment = make_environment(spec.python, PROCESSORS[spec.platform])
    bounds = select_requirements(releases.read_requirements(name, version) or (), environment)
    asked = [bound for one in (ALIAS, spec.package) for bound in bounds.get(one, ())]
    lowest = [Version(one.version.removesuffix(".*")) for one in asked if one.operator in ("==", ">=", ">", "~=")]
    return any(version > Version(spec.tensorflow) for version in lowest)


def _is_companion(releases: Releases, spec: ImageSpec, name: str, version: str) -> bool:
    """Return whether a release requires the image's TensorFlow, and none of any time to come."""
    environment = make_environment(spec.python, PROCESSORS[spec.platform])
    bounds = select_requirements(releases.read_requirements(name, version) or (), environment)
    found = (bounds[one] for one in (ALIAS, spec.package) if one in bounds)
    return any(one.contains(spec.tensorflow, prereleases=True) and not one.contains("999") for one in found)
