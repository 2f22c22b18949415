"""Packages that are audited: those of a lock, or of an image by its bill of materials."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from packageurl import PackageURL
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tfimg.core.documents import InvalidDocument
from tfimg.recipe.lock import LockedPackage

PYPI, DEBIAN = "PyPI", "Debian"
"""Ecosystems, as advisories name them; Debian's are followed by a release: `Debian:12`."""

MAX_COMPONENTS = 20_000
"""Components of one bill of materials. Ours have less than 1,000."""

MAX_NAME = 200

TENSORFLOW = "tensorflow"
VARIANTS = frozenset(("tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-gpu", "tensorflow-tpu"))
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


def read_lock_packages(packages: Iterable[LockedPackage]) -> tuple[AuditedPackage, ...]:
    """Return the packages of a lock."""
    return tuple(make_python_package(package.name, package.version) for package in packages)


def read_components(purls: Iterable[PackageURL], supplied: str | None = None) -> tuple[AuditedPackage, ...]:
    """Return the Python and Debian packages among the components of an image. Raises `InvalidDocument`.

    `supplied` is the version of a TensorFlow whose wheel a user supplied, None for one from the package index.

    A component of a type that no advisory is read for is a package with a `problem`; the files of an accelerator's
    libraries belong to packages that are components themselves.
    """
    found = set()
    for number, purl in enumerate(purls):
        if number == MAX_COMPONENTS:
            raise InvalidDocument(f"it has more than {MAX_COMPONENTS} components")
        if purl.type != "generic":
            found.add(_read_purl(purl, supplied))
    if not found:
        raise InvalidDocument("it lists no packages")
    found = set(_merge_binaries(found))
    variants = {package.version for package in found if package.name in VARIANTS}
    found = {package for package in found if package.name != TENSORFLOW or package.version not in variants}
    return tuple(sorted(found, key=lambda package: (package.ecosystem, package.installed, package.version)))


def _merge_binaries(packages: Iterable[AuditedPackage]) -> Iterator[AuditedPackage]:
    """Yield packages, those of one source package of Debian as one: a defect of it is one defect."""
    groups: dict[AuditedPackage, list[str]] = {}
    for package in packages:
        groups.setdefault(replace(package, installed=""), []).append(package.installed)
    for package, names in groups.items():
        yield replace(package, installed=", ".join(sorted(names)))


def _read_purl(purl: PackageURL, supplied: str | None) -> AuditedPackage:
    name, version = purl.name[:MAX_NAME], (purl.version or "")[:MAX_NAME]
    qualifiers = purl.qualifiers if isinstance(purl.qualifiers, Mapping) else {}
    if purl.type == "pypi":
        return make_python_package(canonicalize_name(name), version, supplied)
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


def make_python_package(name: str, version: str, supplied: str | None = None) -> AuditedPackage:
    """Return a Python package by its normalized name."""
    problem = None
    try:
        local = Version(version).local
    except InvalidVersion:
        problem = "its version is not one of PEP 440"
    else:
        if version == supplied and (TENSORFLOW in name or name.startswith("tf-nightly")):
            problem = "its wheel was supplied, and advisories are about that of the package index"
        elif local:
            problem = f"its version has the local part +{local}, so it is not from the package index"
    aliases = (TENSORFLOW,) if name in VARIANTS else ()
    return AuditedPackage(ecosystem=PYPI, name=name, version=version, installed=name, problem=problem, aliases=aliases)
