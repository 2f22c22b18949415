"""Bill of materials of an image: a CycloneDX statement, made from its inventory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Literal
from uuid import NAMESPACE_URL, UUID, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL
from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict, ValidationError

from tfimg.core.errors import ValidationAborted
from tfimg.core.text import to_plain_text
from tfimg.evidence.statement import CYCLONEDX, Statement, Subject, make_statement

MAX_SHOWN = 500
"""Characters of a problem that are shown."""


def make_sbom(inventory: Mapping[str, Any], *, subject: Subject, made: datetime) -> Statement:
    """Return the CycloneDX statement of an inventory (`tfimg.validation.inventory.take_inventory`), validated.

    `made` is the document's timestamp. Raises `ValidationAborted` if the inventory cannot be read or expressed.
    """
    image, made = image_purl(subject), made.replace(microsecond=0)
    # Derived from image and time: making the document again gives the same bytes.
    serial = uuid5(NAMESPACE_URL, f"{image}#{made.isoformat()}#cyclonedx")
    try:
        bom = make_cyclonedx(list_parts(inventory), subject=subject, image=image, made=made, serial=serial)
    except ValueError as error:  # names and versions come from the image
        raise ValidationAborted(
            f"The contents of {subject.name}@{subject.digest} cannot be written as a bill of materials: "
            f"{to_plain_text(str(error))[:MAX_SHOWN]}.",
            next_step="Look inside with `tfimg inspect --local`: a package has an invalid name or version.",
        ) from None
    return make_statement(subject, CYCLONEDX, bom)


def image_purl(subject: Subject) -> str:
    """The image's package URL, of type oci."""
    place, _, name = subject.name.rpartition("/")
    qualifiers = {"repository_url": f"{place}/{name}"} if place else {}
    return PackageURL("oci", name=name, version=subject.digest, qualifiers=qualifiers).to_string()


Kind = Literal["python", "debian", "library"]

VENDORS = {"libtpu": "google"}
"""Whose a library is that is not NVIDIA's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SbomPart:
    """One thing in an image. `purl` names it for everybody (package-url), `within` is the purl of what it came with.

    `version` and `licence` are None where the image does not tell; `paths` are where it lies, of a library.
    """

    kind: Kind
    name: str
    version: str | None
    purl: str
    licence: str | None = None
    homepage: str | None = None
    within: str | None = None
    paths: tuple[str, ...] = ()


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True)


class _About(_Told):
    licence: str | None = None
    homepage: str | None = None


class _Debian(_Told):
    package: str
    version: str
    architecture: str
    source: str


class _System(_Told):
    id: str = "linux"
    version: str = ""
    name: str = "Linux"


class _Inventory(_Told):
    packages: dict[str, str]
    about: dict[str, _About]
    libraries: dict[str, str | None]
    debian: tuple[_Debian, ...]
    system: _System


def list_parts(inventory: Mapping[str, Any]) -> tuple[SbomPart, ...]:
    """Every part, in an order of their own: Python packages, Debian packages, the accelerator's libraries.

    Raises `ValidationAborted` for an inventory of another form.
    """
    try:
        told = _Inventory.model_validate(inventory)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise ValidationAborted(
            f"The inventory of the image has another form than this version reads: {where}.",
            next_step="Take it anew with the same version of tfimg.",
        ) from None
    return (*_python(told), *_debian(told), *_libraries(told))


def _python(told: _Inventory) -> Iterator[SbomPart]:
    for name, version in sorted(told.packages.items()):
        about = told.about.get(name, _About())
        yield SbomPart(
            kind="python",
            name=name,
            version=version,
            purl=_pypi(name, version),
            licence=about.licence,
            homepage=about.homepage,
        )


def _pypi(name: str, version: str) -> str:
    return PackageURL("pypi", name=name, version=version).to_string()


def _debian(told: _Inventory) -> Iterator[SbomPart]:
    system = told.system
    for one in sorted(told.debian, key=lambda one: (one.package, one.architecture)):
        qualifiers = {"arch": one.architecture, "distro": f"{system.id}-{system.version}"}
        if one.source != one.package:
            qualifiers["upstream"] = one.source
        purl = PackageURL("deb", system.id, one.package, one.version, qualifiers)
        yield SbomPart(kind="debian", name=one.package, version=one.version, purl=purl.to_string())


def _libraries(told: _Inventory) -> Iterator[SbomPart]:
    """Libraries of one name that came with one package are one part."""
    found: dict[tuple[str, str | None], list[str]] = {}
    for path, owner in sorted(told.libraries.items()):
        found.setdefault((PurePosixPath(path).name, owner and canonicalize_name(owner)), []).append(path)
    for (name, owner), paths in sorted(found.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        version = told.packages.get(owner) if owner else None
        vendor = VENDORS.get(name.partition(".")[0], "nvidia")
        purl = PackageURL("generic", vendor, name, version).to_string()
        within = _pypi(owner, version) if owner and version else None
        yield SbomPart(kind="library", name=name, version=version, purl=purl, within=within, paths=tuple(paths))


KINDS = {"python": ComponentType.LIBRARY, "debian": ComponentType.LIBRARY, "library": ComponentType.FILE}


def make_cyclonedx(
    parts: Sequence[SbomPart], *, subject: Subject, image: str, made: datetime, serial: UUID
) -> dict[str, Any]:
    """The document, held against the schema. `image` is the subject's purl. Raises `ValueError` where it is wrong."""
    # Importing the validator takes seconds, as its grammar of addresses is compiled then.
    from cyclonedx.validation.json import JsonStrictValidator

    name = subject.name.rpartition("/")[2]
    root = Component(
        name=name,
        version=subject.digest,
        type=ComponentType.CONTAINER,
        bom_ref=image,
        purl=PackageURL.from_string(image),
    )
    components = {part.purl: _component(part) for part in parts}
    inside: dict[str, list[Dependency]] = {}
    for part in parts:
        inside.setdefault(part.within or image, []).append(Dependency(components[part.purl].bom_ref))
    dependencies = [Dependency(root.bom_ref, inside.get(image, ()))]
    dependencies += [Dependency(one.bom_ref, inside.get(purl, ())) for purl, one in components.items()]
    bom = Bom(
        components=components.values(),
        serial_number=serial,
        dependencies=dependencies,
        metadata=BomMetaData(component=root, timestamp=made),
    )
    text = JsonV1Dot6(bom).output_as_string()
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the bill of materials is no CycloneDX: {problem}")
    document: dict[str, Any] = json.loads(text)
    return document


def _component(part: SbomPart) -> Component:
    web = [ExternalReference(type=ExternalReferenceType.WEBSITE, url=XsUri(part.homepage))] if part.homepage else []
    return Component(
        name=part.name,
        version=part.version,
        type=KINDS[part.kind],
        bom_ref=part.purl,
        purl=PackageURL.from_string(part.purl),
        external_references=web,
        licenses=[LicenseFactory().make_from_string(part.licence)] if part.licence else [],
        properties=[Property(name="tfimg:path", value=path) for path in part.paths],
    )
