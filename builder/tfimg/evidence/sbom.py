"""Bill of materials of an image: a CycloneDX statement, made from its inventory."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packageurl import PackageURL

from tfimg.core.errors import ValidationBroken
from tfimg.core.text import plain
from tfimg.evidence.cyclonedx import cyclonedx
from tfimg.evidence.parts import parts
from tfimg.evidence.statement import CYCLONEDX, Statement, Subject, statement

MAX_SHOWN = 500
"""Characters of a problem that are shown."""


def make_sbom(inventory: Mapping[str, Any], *, subject: Subject, made: datetime) -> Statement:
    """Return the CycloneDX statement of an inventory (`tfimg.validation.inventory.take_inventory`), validated.

    `made` is the document's timestamp. Raises `ValidationBroken` if the inventory cannot be read or expressed.
    """
    image, made = image_purl(subject), made.replace(microsecond=0)
    # Derived from image and time: making the document again gives the same bytes.
    serial = uuid5(NAMESPACE_URL, f"{image}#{made.isoformat()}#cyclonedx")
    try:
        bom = cyclonedx(parts(inventory), subject=subject, image=image, made=made, serial=serial)
    except ValueError as error:  # names and versions come from the image
        raise ValidationBroken(
            f"The contents of {subject.name}@{subject.digest} cannot be written as a bill of materials: "
            f"{plain(str(error))[:MAX_SHOWN]}.",
            next_step="Look inside with `tfimg inspect --local`: a package has an invalid name or version.",
        ) from None
    return statement(subject, CYCLONEDX, bom)


def image_purl(subject: Subject) -> str:
    """The image's package URL, of type oci."""
    place, _, name = subject.name.rpartition("/")
    qualifiers = {"repository_url": f"{place}/{name}"} if place else {}
    return PackageURL("oci", name=name, version=subject.digest, qualifiers=qualifiers).to_string()
