"""Order of versions in the ecosystems of images: PEP 440 and Debian's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from tfimg.advisories.schema import Affected, Event, Range

PYPI = "PyPI"
DEBIAN = "Debian"

FIRST = "0"
"""The version that sorts before all others, in events."""

MAX_DIGITS = 100
"""Length of a version that is compared. Debian's longest have 60 characters."""


class UnorderedVersion(ValueError):
    """A version has no order in its ecosystem, so that a range of it says nothing."""


@lru_cache(maxsize=100_000)
def _parse(ecosystem: str, version: str) -> Any:
    try:
        if len(version) > MAX_DIGITS:
            raise ValueError
        if base_ecosystem(ecosystem) == PYPI:
            return Version(version)
        from debian_inspector.version import Version as DebianVersion

        # The library wants a letter or digit at the end; no digits count as 0 (Debian policy, 5.6.12).
        return DebianVersion.from_string(f"{version}0" if version.endswith(("~", "+")) else version)
    except (ValueError, TypeError):
        raise UnorderedVersion(f"{version[:MAX_DIGITS]!r} is not a version of {base_ecosystem(ecosystem)}") from None


def base_ecosystem(ecosystem: str) -> str:
    """Return an ecosystem without its release: `Debian:12` → `Debian`."""
    return ecosystem.partition(":")[0]


def normalize_name(ecosystem: str, name: str) -> str:
    """Return the name of a package as it is compared."""
    return str(canonicalize_name(name)) if base_ecosystem(ecosystem) == PYPI else name


def matches_ecosystem(advised: str, installed: str) -> bool:
    """Return whether an advisory of one ecosystem is about packages of another; without a release it is about all."""
    return advised in (installed, base_ecosystem(installed))


def sort_versions(ecosystem: str, versions: Sequence[str]) -> list[str]:
    """Return versions in order. Raises `UnorderedVersion`."""
    return sorted(set(versions), key=lambda version: _parse(ecosystem, version))


def is_before(ecosystem: str, version: str, other: str) -> bool:
    """Return whether a version sorts before another one. Raises `UnorderedVersion`."""
    return bool(_parse(ecosystem, version) < _parse(ecosystem, other))


def is_affected(affected: Affected, ecosystem: str, version: str) -> bool:
    """Return whether a version is vulnerable, as OSV's schema decides it: it is listed, or within a range.

    Raises `UnorderedVersion` where it cannot be decided: no range of versions, or one with versions without an order.
    """
    if any(is_same(ecosystem, listed, version) for listed in affected.versions):
        return True
    ranges = [one for one in affected.ranges if one.type == "ECOSYSTEM"]
    if not ranges and not affected.versions:
        raise UnorderedVersion("it states no range of versions")
    return any(_is_within(one, ecosystem, version) for one in ranges)


def find_fixes(affected: Affected, ecosystem: str, version: str) -> tuple[str, ...]:
    """Return for each range that contains a version, or for all, the first later version that is fixed.

    Ranges with versions without an order are left out: the package may be affected because its version is listed.
    """
    containing: list[str] = []
    others: list[str] = []
    contains_version = False
    for one in affected.ranges:
        if one.type == "ECOSYSTEM":
            with suppress(UnorderedVersion):
                later = [event.fixed for event in one.events if event.fixed]
                later = [fixed for fixed in later if is_before(ecosystem, version, fixed)]
                is_within = _is_within(one, ecosystem, version)
                (containing if is_within else others).extend(sort_versions(ecosystem, later)[:1])
                contains_version = contains_version or is_within
    return tuple(sort_versions(ecosystem, containing if contains_version else others))


def is_same(ecosystem: str, version: str, other: str) -> bool:
    """Return whether two texts are the same version; False for one that is not a version."""
    try:
        return version == other or bool(_parse(ecosystem, version) == _parse(ecosystem, other))
    except UnorderedVersion:
        return False


def _is_within(one: Range, ecosystem: str, version: str) -> bool:
    limits = [event.limit for event in one.events if event.limit]
    if limits and not any(limit == "*" or is_before(ecosystem, version, limit) for limit in limits):
        return False
    vulnerable = False
    for event in _sort_events(one, ecosystem):
        if event.introduced is not None and _reaches(ecosystem, version, event.introduced):
            vulnerable = True
        if event.fixed is not None and _reaches(ecosystem, version, event.fixed):
            vulnerable = False
        if event.last_affected is not None and is_before(ecosystem, event.last_affected, version):
            vulnerable = False
    return vulnerable


def _reaches(ecosystem: str, version: str, event: str) -> bool:
    return event == FIRST or not is_before(ecosystem, version, event)


def _sort_events(one: Range, ecosystem: str) -> list[Event]:
    """Return the events of a range in the order of their versions; `introduced: 0` is the first."""
    events = [(event, _version_of(event)) for event in one.events if event.limit is None]
    first = [event for event, version in events if version == FIRST and event.introduced]
    rest = [(event, version) for event, version in events if not (version == FIRST and event.introduced)]
    return [*first, *(event for event, _ in sorted(rest, key=lambda pair: _parse(ecosystem, pair[1])))]


def _version_of(event: Event) -> str:
    return event.introduced or event.fixed or event.last_affected or FIRST
