"""Bill of materials of an image: a CycloneDX 1.6 statement, made from the image's inventory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.exception import CycloneDxException
from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from tfimg.core.errors import ValidationAborted
from tfimg.core.text import to_plain_text
from tfimg.evidence.statement import CYCLONEDX, Statement, Subject, make_statement
from tfimg.validation.report import About, Inventory

MAX_PROBLEM = 200
"""Characters of a problem that a message shows."""

MAX_ADDRESS, MAX_ADDRESSES = 200, 500
"""Characters of a homepage, and packages whose homepage is listed. The validator takes half a millisecond for each
character: a hostile image could make it run for hours. The longest homepage of our images has 77 characters."""

MAX_COMPONENTS = 5_000
"""Components of one bill of materials. The validator compares each with each: 1,000 take 2 seconds, 4,000 take 30.
Our images have less than 1,000."""

MAX_VERSION = 1024
"""Characters of a component's version (CycloneDX 1.6)."""

INVALID_CONTENTS = "Look inside with `tfimg inspect --local`: a package has an invalid name, version or homepage."
"""The next step where what an image contains cannot be expressed."""

VENDORS = {"libtpu": "google"}
"""Vendors of libraries that are not NVIDIA's."""


def make_sbom(inventory: Inventory, *, subject: Subject, created: datetime) -> Statement:
    """Return the CycloneDX statement of an inventory, validated; `created` is the document's timestamp.

    Raises `ValidationAborted` for names, versions and addresses that it cannot express.
    """
    try:
        bom = _make_cyclonedx(list_components(inventory), subject, created.replace(microsecond=0))
    except (ValueError, CycloneDxException) as error:  # names, versions and addresses come from the image
        raise ValidationAborted(
            f"The contents of {subject.name}@{subject.digest} cannot be written as a bill of materials: "
            f"{to_plain_text(str(error)).rstrip('.')[:MAX_PROBLEM]}.",
            next_step=INVALID_CONTENTS,
        ) from None
    return make_statement(subject, CYCLONEDX, bom)


def image_purl(subject: Subject) -> str:
    """Return the image's package URL, of type oci."""
    folder, _, name = subject.name.rpartition("/")
    qualifiers = {"repository_url": subject.name} if folder else {}
    return PackageURL("oci", name=name, version=subject.digest, qualifiers=qualifiers).to_string()


def list_components(inventory: Inventory) -> Iterator[tuple[Component, str | None]]:
    """Yield the Python packages, Debian packages and accelerator libraries of an inventory, sorted.

    Each comes with the purl of the package that contains it, None for the image itself. Raises `ValueError` for a name
    or version that cannot be expressed.
    """
    for number, (name, version) in enumerate(sorted(inventory.packages.items())):
        about = inventory.about.get(name, About())
        sites = []
        if about.homepage and len(about.homepage) <= MAX_ADDRESS and number < MAX_ADDRESSES:
            sites = [ExternalReference(type=ExternalReferenceType.WEBSITE, url=XsUri(about.homepage))]
        licence = [LicenseFactory().make_from_string(about.licence)] if about.licence else []
        purl = PackageURL("pypi", name=name, version=version)
        yield _component(name, purl, external_references=sites, licenses=licence), None
    for package in sorted(inventory.debian, key=lambda package: (package.package, package.architecture)):
        qualifiers = {"arch": package.architecture, "distro": f"{inventory.system.id}-{inventory.system.version}"}
        if package.upstream:
            qualifiers["upstream"] = package.upstream
        purl = PackageURL("deb", inventory.system.id, package.package, package.version, qualifiers)
        yield _component(package.package, purl), None
    # One component for all libraries of one name from one package.
    libraries: dict[tuple[str, str], list[str]] = {}
    for path, owner in sorted(inventory.libraries.items()):
        libraries.setdefault((PurePosixPath(path).name, canonicalize_name(owner or "")), []).append(path)
    for (name, owner), paths in sorted(libraries.items()):
        known = inventory.packages.get(owner)
        purl = PackageURL("generic", VENDORS.get(name.partition(".")[0], "nvidia"), name, known)
        within = PackageURL("pypi", name=owner, version=known).to_string() if known else None
        properties = [Property(name="tfimg:path", value=path) for path in paths]
        yield _component(name, purl, type=ComponentType.FILE, properties=properties), within


def _component(name: str, purl: PackageURL, **fields: Any) -> Component:
    if len(purl.version or "") > MAX_VERSION:
        raise ValueError(f"the version of {name} has more than {MAX_VERSION} characters")
    return Component(name=name, version=purl.version, purl=purl, bom_ref=purl.to_string(), **fields)


def _make_cyclonedx(
    parts: Iterable[tuple[Component, str | None]], subject: Subject, created: datetime
) -> dict[str, Any]:
    """Return the document, validated against the schema. Raises `ValueError`."""
    # Importing the validator takes seconds: it compiles a grammar of addresses.
    from cyclonedx.validation.json import JsonStrictValidator

    image = image_purl(subject)
    root = _component(subject.name.rpartition("/")[2], PackageURL.from_string(image), type=ComponentType.CONTAINER)
    components: dict[str, Component] = {}
    contained: dict[str, list[Dependency]] = {}
    for component, within in parts:
        components[str(component.purl)] = component
        contained.setdefault(within or image, []).append(Dependency(component.bom_ref))
        if len(components) > MAX_COMPONENTS:
            raise ValueError(f"the image has more than {MAX_COMPONENTS} packages and libraries")
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
        # The other lines quote the schema.
        raise ValueError(f"the document is not valid CycloneDX: {str(problem).splitlines()[0]}")
    document: dict[str, Any] = json.loads(text)
    return document
