"""Types of values in matrix.yaml: versions, ranges, requirements, days."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date
from typing import Annotated

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema


def _short(value: object) -> str:
    """Return a wrong value, shortened for a message."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        text = "the number"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _quoted(value: object) -> object:
    if isinstance(value, float | int) and not isinstance(value, bool):
        # YAML reads 3.10 as the number 3.1: a version that lost its zero cannot be told from one that had none.
        raise ValueError(f"{_short(value)} is a number to YAML; write the version in quotes")
    return value


def _version(value: str) -> str:
    try:
        version = Version(value)
    except ValueError:
        raise ValueError(f"{_short(value)} is not a version (PEP 440)") from None
    if version.local or version.epoch:
        raise ValueError(f"{_short(value)} cannot be part of a tag: leave the epoch and what follows + out")
    if not re.fullmatch(r"[0-9][0-9a-z.]{0,40}", value):
        raise ValueError(f"{_short(value)} cannot be part of a tag: at most 40 digits, small letters and dots")
    return value


def _specifier(value: str) -> str:
    try:
        # Also what only fails in use: === has no order, and Python reads no number of thousands of digits.
        SpecifierSet(value).is_disjoint(SpecifierSet(">=0"))
    except ValueError:
        raise ValueError(f"{_short(value)} is not a version range such as '>=9.3,<10'") from None
    return value


def _requirement(value: str) -> str:
    try:
        Requirement(value).specifier.is_disjoint(SpecifierSet(">=0"))
    except (ValueError, RecursionError):  # the latter: brackets nested too deeply
        raise ValueError(f"{_short(value)} is not a requirement such as 'setuptools<82'") from None
    return value


def _day(value: object) -> object:
    # pydantic also takes seconds since 1970, which is what a day without its dashes would be.
    text = value if isinstance(value, str) else ""
    if not isinstance(value, date) and not re.fullmatch(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}", text):
        raise ValueError(f"{_short(value)} is not a day such as 2024-05-01")
    return value


def _last_day(value: object) -> object:
    """Return the last day of a month such as 2026-10; some publishers name no day."""
    if isinstance(value, str) and (month := re.fullmatch(r"(20[0-9]{2})-(0[1-9]|1[0-2])", value)):
        year, number = int(month[1]), int(month[2])
        return date(year, number, monthrange(year, number)[1])
    return _day(value)


VersionText = Annotated[str, BeforeValidator(_quoted), AfterValidator(_version)]
MinorText = Annotated[str, BeforeValidator(_quoted), Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$")]
Day = Annotated[date, BeforeValidator(_day)]
LastDay = Annotated[
    date,
    BeforeValidator(_last_day),
    WithJsonSchema({"type": "string", "pattern": r"^20[0-9]{2}-[0-9]{2}(-[0-9]{2})?$"}),
]
"""A day, or a month, which means its last day."""
RangeText = Annotated[str, BeforeValidator(_quoted), AfterValidator(_specifier)]
RequirementText = Annotated[str, AfterValidator(_requirement)]
Sentence = Annotated[str, Field(min_length=1)]
PackageText = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
IssueText = Annotated[
    str, Field(pattern=r"^[\w.-]+/[\w.-]+#[0-9]+$", description="Upstream report, as owner/repository#number")
]
SourceText = Annotated[
    str,
    Field(
        pattern=r"^(https://[^\s<>\"]+|[\w.-]+/[\w.-]+#[0-9]+)$",
        description="Address of the page, or upstream report as owner/repository#number",
    ),
]
Capability = Annotated[str, Field(pattern=r"^sm_[0-9]{2,3}$")]
"""Compute capability of a GPU, e.g. sm_75 for 7.5: the last digit is the minor."""
Architecture = Annotated[str, Field(pattern=r"^(sm|compute)_[0-9]{2,3}$")]


class MatrixModel(BaseModel):
    """Base of every part: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
