"""What an image holds → its bill of materials, in both forms that the field reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packageurl import PackageURL

from tfimg import __version__
from tfimg.errors import ValidationBroken
from tfimg.evidence.cyclonedx import cyclonedx
from tfimg.evidence.parts import parts
from tfimg.evidence.spdx import spdx
from tfimg.evidence.statement import CYCLONEDX, SPDX, Statement, Subject, statement
from tfimg.validation.text import plain

MAX_SHOWN = 500
"""Characters of a problem that are shown."""


def sboms(inventory: Mapping[str, Any], *, subject: Subject, made: datetime) -> tuple[Statement, Statement]:
    """CycloneDX and SPDX 2.3 of an inventory (`tfimg.validation.built.take_inventory`), each validated.

    `made` is the time that both say they were made at. Raises `ValidationBroken` for an inventory of another form.
    """
    try:
        return _sboms(inventory, subject, made)
    except ValueError as error:  # names and versions are the image's own
        raise ValidationBroken(
            f"What {subject.name}@{subject.digest} holds cannot be written as a bill of materials: "
            f"{plain(str(error))[:MAX_SHOWN]}.",
            next_step="Look inside with `tfimg inspect --local`: a package has a name that none can have.",
        ) from None


def _sboms(inventory: Mapping[str, Any], subject: Subject, made: datetime) -> tuple[Statement, Statement]:
    found, image = parts(inventory), image_purl(subject)
    # Named by what they are about: the same image has the same documents, whoever makes them.
    about, made = f"{image}#{made.isoformat()}", made.replace(microsecond=0)
    bom = cyclonedx(
        found, subject=subject, image=image, made=made, serial=uuid5(NAMESPACE_URL, f"{about}#cyclonedx")
    )
    document = spdx(
        found, subject=subject, image=image, made=made, serial=uuid5(NAMESPACE_URL, f"{about}#spdx"),
        version=__version__,
    )  # fmt: skip
    return statement(subject, CYCLONEDX, bom), statement(subject, SPDX, document)


def image_purl(subject: Subject) -> str:
    """The image's package URL, of type oci."""
    place, _, name = subject.name.rpartition("/")
    qualifiers = {"repository_url": f"{place}/{name}"} if place else {}
    return PackageURL("oci", name=name, version=subject.digest, qualifiers=qualifiers).to_string()
