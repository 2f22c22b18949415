"""Parts of an image → its bill of materials as SPDX 2.3."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

from license_expression import ExpressionError, LicenseExpression, Licensing, get_spdx_licensing
from spdx_tools.spdx.jsonschema.document_converter import DocumentConverter
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    Package,
    PackagePurpose,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from tfimg.evidence.parts import Part
from tfimg.evidence.statement import Subject

DOCUMENT, IMAGE = "SPDXRef-DOCUMENT", "SPDXRef-image"


def spdx(
    parts: Sequence[Part], *, subject: Subject, image: str, made: datetime, serial: UUID, version: str
) -> dict[str, Any]:
    """The document, held against the rules. `image` is the subject's purl, `version` is tfimg's.

    Raises `ValueError` where it is wrong.
    """
    names = {part.purl: _name(number, part) for number, part in enumerate(parts)}
    root = _package(IMAGE, subject.name.rpartition("/")[2], subject.digest, image)
    root.primary_package_purpose = PackagePurpose.CONTAINER
    contains = [
        Relationship(names.get(part.within or "", IMAGE), RelationshipType.CONTAINS, names[part.purl])
        for part in parts
    ]
    document = Document(
        CreationInfo(
            "SPDX-2.3", DOCUMENT, f"{subject.name}@{subject.digest}", serial.urn,
            [Actor(ActorType.TOOL, f"tfimg-{version}")], made.astimezone(UTC).replace(microsecond=0, tzinfo=None),
        ),
        packages=[root, *(_of(part, names[part.purl]) for part in parts)],
        relationships=[Relationship(DOCUMENT, RelationshipType.DESCRIBES, IMAGE), *contains],
    )  # fmt: skip
    if problems := validate_full_spdx_document(document):
        raise ValueError(f"the bill of materials is no SPDX: {problems[0].validation_message}")
    converted: dict[str, Any] = DocumentConverter().convert(document)
    return converted


def _name(number: int, part: Part) -> str:
    # Letters, digits, dots and dashes (SPDX 2.3, 3.2); the number keeps names apart that differ in other signs.
    return f"SPDXRef-{part.kind}-{number}-{re.sub(r'[^A-Za-z0-9.]+', '-', part.name).strip('-')}"


def _of(part: Part, name: str) -> Package:
    package = _package(name, part.name, part.version, part.purl)
    licence = _licence(part.licence)
    if licence is not None:
        package.license_declared = licence
    elif part.licence:
        package.license_comment = f"The package says: {part.licence}"
    if part.paths:
        package.comment = f"It lies at {', '.join(part.paths)}"
    return package


def _package(name: str, called: str, version: str | None, purl: str) -> Package:
    reference = ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", purl)
    nothing = SpdxNoAssertion()
    return Package(
        name, called, nothing, version=version, files_analyzed=False, license_concluded=nothing,
        license_declared=nothing, copyright_text=nothing, external_references=[reference],
    )  # fmt: skip


def _licence(text: str | None) -> LicenseExpression | None:
    """Return the licence that a package states, if it is an SPDX expression."""
    try:
        return _licensing().parse(text, validate=True) if text else None
    except ExpressionError:
        return None


@cache
def _licensing() -> Licensing:
    # Building the index of SPDX licences takes 50 ms, and an image has a hundred packages.
    return get_spdx_licensing()
