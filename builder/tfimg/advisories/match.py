"""Match packages with advisories."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from packageurl import PackageURL
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfimg.advisories.osv import Advisory, Affected
from tfimg.core.documents import InvalidDocument
from tfimg.matrix.devices import PACKAGES
from tfimg.recipe.lock import LockedPackage

PYPI, DEBIAN = "PyPI", "Debian"  # ecosystems, as advisories name them; Debian's are followed by a release: `Debian:12`
MAX_COMPONENTS = 20_000  # components of one bill of materials. Ours have less than 1,000
MAX_NAME = 200
TENSORFLOW = "tensorflow"
VARIANTS = frozenset(PACKAGES) - {TENSORFLOW} | {"tensorflow-gpu"}
"""Distributions of the same TensorFlow: advisories about one name are about all. Their images also have metadata of the
plain name, without files (`tfimg.recipe.facts.ALIAS`)."""

_DEBIAN_VERSION = re.compile(r"(\d+:)?\d[A-Za-z0-9.+~:-]*", re.ASCII)
"""A version of Debian (policy, 5.6.12). A service compares another text with nothing, which is no proof."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedPackage:
    """A package of an image, with the name that advisories use.

    In Debian, `name` and `version` are those of the source package, `installed` are its binary packages. `aliases` are
    other names of the same code. `problem` says why no advisory can be about it.
    """

    ecosystem: str
    name: str
    version: str
    installed: str
    problem: str | None = None
    aliases: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def to_json(self) -> dict[str, str]:
        """Return its names and version as a JSON object."""
        names = {"ecosystem": self.ecosystem, "package": self.name}
        return {**names, "installed": self.installed, "version": self.version}


def read_lock_packages(packages: Iterable[LockedPackage]) -> tuple[AuditedPackage, ...]:
    return tuple(make_python_package(package.name, package.version) for package in packages)


def read_components(purls: Iterable[PackageURL], custom_version: str | None = None) -> tuple[AuditedPackage, ...]:
    """Return the Python and Debian packages among the components of an image. Raises `InvalidDocument`.

    `custom_version` is the version of a custom TensorFlow wheel, None for one from the package index.

    A component of a type that no advisory is read for is a package with a `problem`; the files of an accelerator's
    libraries belong to packages that are components themselves.
    """
    found = set()
    for number, purl in enumerate(purls):
        if number == MAX_COMPONENTS:
            raise InvalidDocument(f"it has more than {MAX_COMPONENTS} components")
        if purl.type != "generic":
            found.add(_read_purl(purl, custom_version))
    if not found:
        raise InvalidDocument("it lists no packages")
    binaries: dict[AuditedPackage, list[str]] = {}  # by source package of Debian: a defect of it is one defect
    for package in found:
        binaries.setdefault(replace(package, installed=""), []).append(package.installed)
    found = {replace(package, installed=", ".join(sorted(names))) for package, names in binaries.items()}
    variants = {package.version for package in found if package.name in VARIANTS}
    found = {package for package in found if package.name != TENSORFLOW or package.version not in variants}
    return tuple(sorted(found, key=lambda package: (package.ecosystem, package.installed, package.version)))


def _read_purl(purl: PackageURL, custom_version: str | None) -> AuditedPackage:
    name, version = purl.name[:MAX_NAME], (purl.version or "")[:MAX_NAME]
    qualifiers = purl.qualifiers if isinstance(purl.qualifiers, Mapping) else {}
    if purl.type == "pypi":
        return make_python_package(canonicalize_name(name), version, custom_version)
    if purl.type == "deb" and purl.namespace == "debian":
        release = qualifiers.get("distro", "").removeprefix("debian-").partition(".")[0]
        source, _, source_version = qualifiers.get("upstream", name).partition("@")
        version = source_version[:MAX_NAME] or version
        problem = None if _DEBIAN_VERSION.fullmatch(version) else "its version is not one of Debian"
        if not (has_release := release.isascii() and release.isdigit()):
            problem = "the bill of materials does not say of which Debian release it is"
        return AuditedPackage(
            ecosystem=f"{DEBIAN}:{release}" if has_release else DEBIAN,
            name=source[:MAX_NAME] or name,
            version=version,
            installed=name,
            problem=problem,
        )
    kind = "/".join(filter(None, (purl.type, purl.namespace)))
    return AuditedPackage(
        ecosystem=kind[:MAX_NAME],
        name=name,
        version=version,
        installed=name,
        problem=f"no advisories are read for {kind}",
    )


def make_python_package(name: str, version: str, custom_version: str | None = None) -> AuditedPackage:
    problem = None
    try:
        local = Version(version).local
    except ValueError:  # also a number of thousands of digits
        problem = "its version is not one of PEP 440"
    else:
        if version == custom_version and (TENSORFLOW in name or name.startswith("tf-nightly")):
            problem = "it is of a custom wheel, and advisories are about that of the package index"
        elif local:
            problem = f"its version has the local part +{local}, so it is not from the package index"
    aliases = (TENSORFLOW,) if name in VARIANTS else ()
    return AuditedPackage(ecosystem=PYPI, name=name, version=version, installed=name, problem=problem, aliases=aliases)


RATINGS = ("unknown", "none", "low", "medium", "high", "critical")
"""Qualitative ratings (CVSS 3.1, section 5), the lowest first; `unknown` means that the advisory has no rating."""

WORDS = {"moderate": "medium", "important": "high", "unimportant": "low"}
"""Words of databases for the same: GitHub's, Red Hat's and Debian's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rating:
    """Severity of a defect: `score` and `vector` are None where no CVSS vector can be read."""

    word: str = "unknown"
    score: float | None = None
    vector: str | None = None

    @property
    def order(self) -> tuple[int, float]:
        """A key that sorts the gravest last."""
        return RATINGS.index(self.word), self.score or 0.0

    def __str__(self) -> str:
        return f"{self.word} {self.score}" if self.score is not None else self.word


def _list_ratings(advisory: Advisory, affected: Affected) -> Iterator[Rating]:
    # The severity of a package replaces that of the whole advisory.
    for severity in affected.severity or advisory.severity:
        if rating := _score(severity.score):
            yield rating
    for values in (affected.database_specific, affected.ecosystem_specific, advisory.database_specific):
        for name in ("severity", "urgency"):
            value = (values or {}).get(name)
            if isinstance(value, str) and (word := _normalize(value)) != RATINGS[0]:
                yield Rating(word=word)
                break


def _score(vector: str) -> Rating | None:
    """Return the rating of a CVSS vector of version 2, 3 or 4; None for another text."""
    from cvss import CVSS2, CVSS3, CVSS4
    from cvss.exceptions import CVSSError

    try:
        if vector.startswith("CVSS:4"):
            found = CVSS4(vector)
            score, word = found.base_score, found.severity
        else:
            found = CVSS3(vector) if vector.startswith("CVSS:3") else CVSS2(vector)
            score, word = found.base_score, found.severities()[0]
    except (CVSSError, ArithmeticError, LookupError, ValueError):
        return None
    return Rating(word=_normalize(word), score=float(score), vector=vector)


def _normalize(word: str) -> str:
    lower = word.lower()[:20]
    name = WORDS.get(lower, lower)
    return name if name in RATINGS else RATINGS[0]


PREFIXES = ("CVE-", "GHSA-", "PYSEC-", "DSA-", "DEBIAN-")
"""Beginnings of identifiers; the first that a defect has is its main name."""

ORDERED = "ECOSYSTEM"  # type of the ranges of versions; others are of commits
Bound = tuple[Version, str]  # a version and `>=` or `>`: versions from there on lack a defect


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
        return frozenset((self.identifier, *self.aliases))


def make_findings(package: AuditedPackage, advisories: Iterable[Advisory]) -> tuple[Finding, ...]:
    """Return the defects of a package that it has according to advisories, the gravest first.

    Advisories that were withdrawn say nothing.
    """
    records = [one for one in advisories if one.withdrawn is None]
    findings = [_make_finding(package, group) for group in _group_aliases(records)]
    return tuple(sorted(findings, key=lambda one: (*(-part for part in one.severity.order), one.identifier)))


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
    names = sorted(
        {name for advisory in records for name in advisory.identifiers},
        key=lambda name: ([not name.startswith(prefix) for prefix in PREFIXES], name),
    )
    aliases = set(map(canonicalize_name, (package.name, *package.aliases)))
    ecosystems = (package.ecosystem, package.ecosystem.partition(":")[0])
    parts = [
        (
            advisory,
            [
                one
                for one in advisory.affected
                if (about := one.package) and about.ecosystem in ecosystems and canonicalize_name(about.name) in aliases
            ],
        )
        for advisory in records
    ]
    if package.ecosystem == PYPI:
        bounds = [_find_bound(Version(package.version), own) for _, own in parts]
        fixed = [str(bound[0]) for bound in sorted(filter(None, bounds)) if bound[1] == ">="]
        version, operator = max(filter(None, bounds)) if all(bounds) else (None, "")
        bound = f"{operator}{version}" if version else None
    else:
        fixed, bound = [fixed for _, own in parts for fixed in _list_versions(own, "fixed")], None
    ratings = [one for advisory, own in parts for part in own or [Affected()] for one in _list_ratings(advisory, part)]
    scored = [rating for rating in ratings if rating.score is not None]  # a CVSS score wins over words
    return Finding(
        package=package,
        identifier=names[0],
        aliases=tuple(names[1:]),
        severity=max(scored or ratings, key=lambda rating: rating.order, default=Rating()),
        fixed=tuple(dict.fromkeys(fixed)),
        bound=bound,
    )


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
        with suppress(ValueError):
            found.append(Version(text))
    return found
