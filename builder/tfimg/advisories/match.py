"""Match packages with advisories: one finding for each defect of a package, whatever its names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfimg.advisories.packages import AuditedPackage
from tfimg.advisories.schema import Advisory, Affected
from tfimg.advisories.severity import Rating, rate
from tfimg.advisories.versions import (
    UnorderedVersion,
    base_ecosystem,
    find_fixes,
    is_affected,
    matches_ecosystem,
    normalize_name,
    sort_versions,
)

PREFIXES = ("CVE-", "GHSA-", "PYSEC-", "DSA-", "DEBIAN-")
"""Beginnings of identifiers; the first that a defect has is its main name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A defect of a package. `fixed` are the versions without it: one for each range of versions that has it."""

    package: AuditedPackage
    identifier: str
    aliases: tuple[str, ...]
    severity: Rating
    fixed: tuple[str, ...]

    @property
    def identifiers(self) -> frozenset[str]:
        """All names of the defect."""
        return frozenset((self.identifier, *self.aliases))


@dataclass(frozen=True, kw_only=True, slots=True)
class Matches:
    """Findings of packages, and the packages that could not be judged, each with the reason."""

    findings: tuple[Finding, ...]
    not_audited: Mapping[AuditedPackage, str]


class AdvisoryIndex:
    """Advisories by ecosystem and name of the packages that they are about. Withdrawn ones are left out.

    `source` is the folder or service that they come from; `ecosystems` are those that it has advisories of, if not
    those of the advisories.
    """

    def __init__(self, advisories: Iterable[Advisory], *, source: str, ecosystems: Iterable[str] = ()) -> None:
        self._by_name: dict[tuple[str, str], list[tuple[Advisory, Affected]]] = {}
        self.source = source
        self.ecosystems = set(ecosystems)
        self.count = 0
        self.withdrawn = 0
        for advisory in advisories:
            self.count += 1
            self.withdrawn += advisory.withdrawn is not None
            for affected in advisory.affected:
                if affected.package:
                    advised = affected.package
                    self.ecosystems.add(advised.ecosystem)
                    if advisory.withdrawn is None:
                        name = normalize_name(advised.ecosystem, advised.name)
                        self._by_name.setdefault((advised.ecosystem, name), []).append((advisory, affected))

    def covers(self, ecosystem: str) -> bool:
        """Return whether the source has advisories about packages of an ecosystem, withdrawn ones included."""
        return any(matches_ecosystem(advised, ecosystem) for advised in self.ecosystems)

    def find(self, package: AuditedPackage) -> tuple[tuple[Finding, ...], str | None]:
        """Return the defects of a package, the gravest first, and why some of them could not be judged."""
        hits, problem = [], package.problem
        if problem is None and not self.covers(package.ecosystem):
            problem = f"{self.source} has no advisories of {package.ecosystem}"
        for advisory, affected in () if problem else self._about(package):
            try:
                if is_affected(affected, package.ecosystem, package.version):
                    hits.append((advisory, affected))
            except UnorderedVersion as error:
                problem = f"{advisory.id} cannot be compared with it: {error}"
        found = [_make_finding(package, group) for group in _group_aliases(hits)]
        return tuple(sorted(found, key=_gravest_first)), problem

    def _about(self, package: AuditedPackage) -> Iterator[tuple[Advisory, Affected]]:
        for ecosystem in dict.fromkeys((package.ecosystem, base_ecosystem(package.ecosystem))):
            for name in (package.name, *package.aliases):
                yield from self._by_name.get((ecosystem, name), ())


def match_packages(packages: Iterable[AuditedPackage], index: AdvisoryIndex) -> Matches:
    """Return the defects of packages, and the packages that could not be judged."""
    findings: list[Finding] = []
    not_audited: dict[AuditedPackage, str] = {}
    for package in sorted(set(packages), key=lambda one: (one.ecosystem, one.installed, one.version)):
        found, problem = index.find(package)
        findings += found
        if problem:
            not_audited[package] = problem
    return Matches(findings=tuple(findings), not_audited=not_audited)


def _gravest_first(finding: Finding) -> tuple[int, float, str]:
    word, score = finding.severity.order
    return -word, -score, finding.identifier


def _group_aliases(records: Sequence[tuple[Advisory, Affected]]) -> list[list[tuple[Advisory, Affected]]]:
    """Return the records in groups that share an identifier, directly or through others. Takes linear time."""
    by_name: dict[str, list[int]] = {}
    for number, (advisory, _) in enumerate(records):
        for name in advisory.identifiers:
            by_name.setdefault(name, []).append(number)
    groups, grouped = [], set()
    for first in range(len(records)):
        if first not in grouped:
            grouped.add(first)
            members = [first]
            for number in members:  # which grows meanwhile
                found = (other for name in records[number][0].identifiers for other in by_name.pop(name, ()))
                more = [other for other in dict.fromkeys(found) if other not in grouped]
                grouped.update(more)
                members += more
            groups.append([records[number] for number in members])
    return groups


def _make_finding(package: AuditedPackage, records: Sequence[tuple[Advisory, Affected]]) -> Finding:
    names = sorted({name for advisory, _ in records for name in advisory.identifiers}, key=_rank)
    fixes = [fix for _, affected in records for fix in find_fixes(affected, package.ecosystem, package.version)]
    return Finding(
        package=package,
        identifier=names[0],
        aliases=tuple(names[1:]),
        severity=rate(records),
        fixed=tuple(sort_versions(package.ecosystem, fixes)),
    )


def _rank(identifier: str) -> tuple[int, str]:
    place = next((place for place, prefix in enumerate(PREFIXES) if identifier.startswith(prefix)), len(PREFIXES))
    return place, identifier
