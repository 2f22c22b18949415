"""What an image holds → its bill of materials, in both forms that the field reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tfimg.registry.statement import Statement, Subject


def sboms(inventory: Mapping[str, Any], *, subject: Subject, made: datetime) -> tuple[Statement, Statement]:
    """CycloneDX and SPDX 2.3 of an inventory (`tfimg.validation.built.take_inventory`), each validated.

    `made` is the time that both say they were made at. Raises `ValidationBroken` for an inventory of another form.
    """
    raise NotImplementedError
