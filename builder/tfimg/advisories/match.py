"""What advisories state of a package: a finding for each defect, whatever its names, and the versions that fix it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tfimg.advisories.packages import PYPI, AuditedPackage
from tfimg.advisories.schema import Advisory, Affected
from tfimg.advisories.severity import Rating, rate

PREFIXES = ("CVE-", "GHSA-", "PYSEC-", "DSA-", "DEBIAN-")
"""Beginnings of identifiers; the first that a defect has is its main name."""

ORDERED = "ECOSYSTEM"
"""Type of the ranges of versions; others are of commits."""

Bound = tuple[Version, str]
"""A version and `>=` or `>`: versions from there on lack a defect."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A defect of a package. `fixed` are the lowest later versions without it, one for each advisory that names one.

    `bound` is the specifier of the versions of a Python package that all advisories call fixed, such as `>=3.7`; None
    if one knows of none.
    """

    package: AuditedPackage
    identifier: str
    aliases: tuple[str, ...]
    severity: Rating
    fixed: tuple[str, ...]
    bound: str | None = None

    @property
    def identifiers(self) -> frozenset[str]:
        """All names of the defect."""
        return frozenset((self.identifier, *self.aliases))


def make_findings(package: AuditedPackage, advisories: Iterable[Advisory]) -> tuple[Finding, ...]:
    """Return the defects of a package that it has according to advisories, the gravest first.

    Advisories that were withdrawn say nothing.
    """
    records = [one for one in advisories if one.withdrawn is None]
    return tuple(sorted((_make_finding(package, group) for group in _group_aliases(records)), key=_gravest_first))


def _gravest_first(finding: Finding) -> tuple[int, float, str]:
    word, score = finding.severity.order
    return -word, -score, finding.identifier


def _group_aliases(records: Sequence[Advisory]) -> list[list[Advisory]]:
    """Return the records in groups that share an identifier, directly or through others. Takes linear time."""
    by_name: dict[str, list[int]] = {}
    for number, advisory in enumerate(records):
        for name in advisory.identifiers:
            by_name.setdefault(name, []).append(number)
    groups, grouped = [], set()
    for first in range(len(records)):
        if first not in grouped:
            grouped.add(first)
            members = [first]
            for number in members:  # which grows meanwhile
                found = (other for name in records[number].identifiers for other in by_name.pop(name, ()))
                more = [other for other in dict.fromkeys(found) if other not in grouped]
                grouped.update(more)
                members += more
            groups.append([records[number] for number in members])
    return groups


def _make_finding(package: AuditedPackage, records: Sequence[Advisory]) -> Finding:
    names = sorted({name for advisory in records for name in advisory.identifiers}, key=_rank)
    parts = [(advisory, _find_parts(package, advisory)) for advisory in records]
    if package.ecosystem == PYPI:
        bounds = [_find_bound(Version(package.version), own) for _, own in parts]
        fixed = [str(bound[0]) for bound in sorted(filter(None, bounds)) if bound[1] == ">="]
        version, operator = max(filter(None, bounds)) if all(bounds) else (None, "")
        bound = f"{operator}{version}" if version else None
    else:
        fixed, bound = [fixed for _, own in parts for fixed in _list_versions(own, "fixed")], None
    return Finding(
        package=package,
        identifier=names[0],
        aliases=tuple(names[1:]),
        severity=rate((advisory, part) for advisory, own in parts for part in own or [Affected()]),
        fixed=tuple(dict.fromkeys(fixed)),
        bound=bound,
    )


def _rank(identifier: str) -> tuple[int, str]:
    place = next((place for place, prefix in enumerate(PREFIXES) if identifier.startswith(prefix)), len(PREFIXES))
    return place, identifier


def _find_parts(package: AuditedPackage, advisory: Advisory) -> list[Affected]:
    """Return the parts of an advisory that are about a package."""
    names = set(map(canonicalize_name, (package.name, *package.aliases)))
    ecosystems = (package.ecosystem, package.ecosystem.partition(":")[0])
    return [
        part
        for part in advisory.affected
        if part.package and part.package.ecosystem in ecosystems and canonicalize_name(part.package.name) in names
    ]


def _find_bound(version: Version, parts: Sequence[Affected]) -> Bound | None:
    """Return from where on one advisory calls a package fixed: the lowest version after the present one.

    Its ranges do not overlap, so that the one with the present version ends first. Without ranges, every version after
    those that it lists counts as fixed.
    """
    ends = [(fixed, ">=") for fixed in _parse_versions(_list_versions(parts, "fixed")) if fixed > version]
    ends += [(last, ">") for last in _parse_versions(_list_versions(parts, "last_affected")) if last >= version]
    if not any(one.type == ORDERED for part in parts for one in part.ranges):
        listed = _parse_versions(one for part in parts for one in part.versions)
        return max(((one, ">") for one in listed), default=None)
    return min(ends, default=None)


def _list_versions(parts: Iterable[Affected], field: str) -> Iterator[str]:
    for part in parts:
        for one in part.ranges:
            for event in one.events if one.type == ORDERED else ():
                if value := getattr(event, field):
                    yield value


def _parse_versions(texts: Iterable[str]) -> list[Version]:
    """Return the texts that are versions; advisories also name others."""
    found = []
    for text in texts:
        with suppress(InvalidVersion):
            found.append(Version(text))
    return found
