"""Parts of an image → its bill of materials as CycloneDX 1.6."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL

from tfimg.evidence.parts import Part
from tfimg.evidence.statement import Subject

KINDS = {"python": ComponentType.LIBRARY, "debian": ComponentType.LIBRARY, "library": ComponentType.FILE}


def cyclonedx(parts: Sequence[Part], *, subject: Subject, image: str, made: datetime, serial: UUID) -> dict[str, Any]:
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


def _component(part: Part) -> Component:
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
