"""Bill of materials of an image: a CycloneDX 1.6 statement, made from the image's inventory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from tfimg.core.documents import Document, InvalidDocument, validate
from tfimg.core.errors import ValidationAborted
from tfimg.core.text import to_plain_text
from tfimg.evidence.statement import CYCLONEDX, Statement, Subject, make_statement

MAX_PROBLEM = 500
"""Characters of a problem that a message shows."""

VENDORS = {"libtpu": "google"}
"""Vendors of libraries that are not NVIDIA's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SbomPart:
    """A component of an image. `within` is the purl of the component that contains it, `paths` are a library's files.

    `version` and `licence` are None if they are unknown.
    """

    kind: Literal["python", "debian", "library"]
    name: str
    version: str | None
    purl: str
    licence: str | None = None
    homepage: str | None = None
    within: str | None = None
    paths: tuple[str, ...] = ()


class _About(Document):
    licence: str | None = None
    homepage: str | None = None


class _DebianPackage(Document):
    package: str
    version: str
    architecture: str
    source: str


class _System(Document):
    id: str = "linux"
    version: str = ""


class _Inventory(Document):
    packages: dict[str, str]
    about: dict[str, _About]
    libraries: dict[str, str | None]
    debian: tuple[_DebianPackage, ...]
    system: _System


def make_sbom(inventory: Mapping[str, Any], *, subject: Subject, created: datetime) -> Statement:
    """Return the CycloneDX statement of an inventory (`tfimg.validation.inventory.take_inventory`), validated.

    `created` is the document's timestamp. Raises `ValidationAborted` if the inventory cannot be read or expressed.
    """
    try:
        bom = _make_cyclonedx(list_parts(inventory), subject, created.replace(microsecond=0))
    except ValueError as error:  # names and versions come from the image
        raise ValidationAborted(
            f"The contents of {subject.name}@{subject.digest} cannot be written as a bill of materials: "
            f"{to_plain_text(str(error))[:MAX_PROBLEM]}.",
            next_step="Look inside with `tfimg inspect --local`: a package has an invalid name or version.",
        ) from None
    return make_statement(subject, CYCLONEDX, bom)


def image_purl(subject: Subject) -> str:
    """Return the image's package URL, of type oci."""
    folder, _, name = subject.name.rpartition("/")
    qualifiers = {"repository_url": subject.name} if folder else {}
    return PackageURL("oci", name=name, version=subject.digest, qualifiers=qualifiers).to_string()


def list_parts(inventory: Mapping[str, Any]) -> tuple[SbomPart, ...]:
    """Return the Python packages, Debian packages and accelerator libraries of an inventory, sorted.

    Raises `ValidationAborted` for an invalid inventory.
    """
    try:
        parsed = validate(_Inventory, dict(inventory))
    except InvalidDocument as error:
        raise ValidationAborted(
            f"The inventory of the image is invalid: {error}.",
            next_step="Take it again with the same version of tfimg.",
        ) from None
    return (*_python_parts(parsed), *_debian_parts(parsed), *_library_parts(parsed))


def _python_parts(inventory: _Inventory) -> Iterator[SbomPart]:
    for name, version in sorted(inventory.packages.items()):
        about = inventory.about.get(name, _About())
        purl = _pypi_purl(name, version)
        yield SbomPart(
            kind="python", name=name, version=version, purl=purl, licence=about.licence, homepage=about.homepage
        )


def _pypi_purl(name: str, version: str) -> str:
    return PackageURL("pypi", name=name, version=version).to_string()


def _debian_parts(inventory: _Inventory) -> Iterator[SbomPart]:
    system = inventory.system
    for package in sorted(inventory.debian, key=lambda package: (package.package, package.architecture)):
        qualifiers = {"arch": package.architecture, "distro": f"{system.id}-{system.version}"}
        if package.source != package.package:
            qualifiers["upstream"] = package.source
        purl = PackageURL("deb", system.id, package.package, package.version, qualifiers)
        yield SbomPart(kind="debian", name=package.package, version=package.version, purl=purl.to_string())


def _library_parts(inventory: _Inventory) -> Iterator[SbomPart]:
    """Yield one part for all libraries of one name from one package."""
    libraries: dict[tuple[str, str], list[str]] = {}
    for path, owner in sorted(inventory.libraries.items()):
        libraries.setdefault((PurePosixPath(path).name, canonicalize_name(owner or "")), []).append(path)
    for (name, owner), paths in sorted(libraries.items()):
        version = inventory.packages.get(owner)
        purl = PackageURL("generic", VENDORS.get(name.partition(".")[0], "nvidia"), name, version).to_string()
        within = _pypi_purl(owner, version) if version else None
        yield SbomPart(kind="library", name=name, version=version, purl=purl, within=within, paths=tuple(paths))


def _make_cyclonedx(parts: Sequence[SbomPart], subject: Subject, created: datetime) -> dict[str, Any]:
    """Return the document, validated against the schema. Raises `ValueError`."""
    # Importing the validator takes seconds: it compiles a grammar of addresses.
    from cyclonedx.validation.json import JsonStrictValidator

    image = image_purl(subject)
    name = subject.name.rpartition("/")[2]
    purl = PackageURL.from_string(image)
    root = Component(name=name, version=subject.digest, type=ComponentType.CONTAINER, bom_ref=image, purl=purl)
    components = {part.purl: _make_component(part) for part in parts}
    contained: dict[str, list[Dependency]] = {}
    for part in parts:
        contained.setdefault(part.within or image, []).append(Dependency(components[part.purl].bom_ref))
    bom = Bom(
        components=components.values(),
        # Derived from image and time, so that the same input gives the same bytes.
        serial_number=uuid5(NAMESPACE_URL, f"{image}#{created.isoformat()}#cyclonedx"),
        dependencies=[
            Dependency(component.bom_ref, contained.get(purl, ()))
            for purl, component in {image: root, **components}.items()
        ],
        metadata=BomMetaData(component=root, timestamp=created),
    )
    text = JsonV1Dot6(bom).output_as_string()
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the bill of materials is not valid CycloneDX: {problem}")
    document: dict[str, Any] = json.loads(text)
    return document


def _make_component(part: SbomPart) -> Component:
    web = [ExternalReference(type=ExternalReferenceType.WEBSITE, url=XsUri(part.homepage))] if part.homepage else []
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.FILE if part.kind == "library" else ComponentType.LIBRARY,
        bom_ref=part.purl,
        purl=PackageURL.from_string(part.purl),
        external_references=web,
        licenses=[LicenseFactory().make_from_string(part.licence)] if part.licence else [],
        properties=[Property(name="tfimg:path", value=path) for path in part.paths],
    )
