"""What matrix.yaml may say: the types of its parts and what each means.

The same models make the JSON Schema for editors (`tfimg schema`).
"""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


def _quoted(value: object) -> object:
    if isinstance(value, float | int) and not isinstance(value, bool):
        # YAML reads 3.10 as the number 3.1: a version that lost its zero cannot be told from one that had none.
        raise ValueError(f"{value!r} is a number to YAML; write the version in quotes")
    return value


def _version(value: str) -> str:
    try:
        version = Version(value)
    except InvalidVersion:
        raise ValueError(f"{value!r} is not a version (PEP 440)") from None
    if version.local or version.epoch:
        raise ValueError(f"{value!r} cannot be part of a tag: leave the epoch and what follows + out")
    return value


def _specifier(value: str) -> str:
    try:
        SpecifierSet(value)
    except InvalidSpecifier:
        raise ValueError(f"{value!r} is not a version range such as '>=9.3,<10'") from None
    return value


def _requirement(value: str) -> str:
    try:
        Requirement(value)
    except InvalidRequirement:
        raise ValueError(f"{value!r} is not a requirement such as 'setuptools<82'") from None
    return value


def repository_name(value: str) -> str:
    """An image's name without its tag, as the OCI distribution specification has it; raises `ValueError`."""
    part = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
    if not re.fullmatch(rf"(?:[a-z0-9.-]+(?::\d+)?/)?{part}(?:/{part})*", value):
        raise ValueError(f"{value!r} is not the name of a repository")
    return value


RepositoryText = Annotated[str, AfterValidator(repository_name)]
VersionText = Annotated[str, BeforeValidator(_quoted), AfterValidator(_version)]
MinorText = Annotated[str, BeforeValidator(_quoted), Field(pattern=r"^\d+\.\d+$")]
RangeText = Annotated[str, BeforeValidator(_quoted), AfterValidator(_specifier)]
RequirementText = Annotated[str, AfterValidator(_requirement)]
Sentence = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    """Base of every part: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Release(Part):
    """One TensorFlow release on the package index."""

    version: VersionText = Field(description="Exact release, e.g. 2.15.0.post1")
    released: date = Field(description="Day its first Linux wheel appeared on the package index")
    cutoff: date = Field(description="Its locks see the package index as it was at the end of this day")
    libtpu: VersionText | None = Field(
        default=None, description="libtpu that pairs with tensorflow-tpu of this release; none: no TPU image"
    )


class Gpu(Part):
    """What the GPU wheel of a row was built against."""

    cuda: MinorText = Field(description="CUDA minor, from tf.sysconfig.get_build_info()")
    cudnn: RangeText = Field(description="cuDNN releases that the wheel accepts: same major, a minor floor")
    driver: VersionText = Field(description="Lowest Linux driver that runs this CUDA major")
    architectures: tuple[str, ...] = Field(description="Compute capabilities compiled in (sm_) or as PTX")


class Constraint(Part):
    """A requirement that the wheel's own metadata lacks."""

    requirement: RequirementText
    reason: Sentence
    issue: str | None = Field(default=None, description="Upstream report, as owner/repository#number")


class Row(Part):
    """Releases that share all facts but their dates."""

    tensorflow: tuple[Release, ...] = Field(min_length=1)
    pythons: tuple[MinorText, ...] = Field(min_length=1, description="Python minors with a wheel")
    default_python: MinorText = Field(description="Taken when a request names none")
    gpu: Gpu | None = None
    constraints: tuple[Constraint, ...] = ()


class Base(Part):
    """Where an image's operating system and Python come from."""

    image: str = Field(
        description="Official image, as registry/repository:tag",
        pattern=r"^[a-z0-9-]+([.:][a-z0-9-]+)+/\S+:\S+$",
    )
    suite: str | None = Field(
        default=None, description="Debian suite whose own Python is this one; none: registry only"
    )


class Newer(Part):
    """Packages that may be newer than a release's cut-off, because they do not touch TensorFlow's ABI."""

    as_of: date = Field(description="The day up to which they may be new")
    packages: dict[str, Sentence] = Field(description="Package and why it may be newer")


class Matrix(Part):
    """The facts that people decide."""

    version: Literal[1] = Field(description="Version of this format")
    repository: RepositoryText = Field(description="Default repository of the tags")
    installer: VersionText = Field(description="uv release that installs inside the images")
    newer: Newer
    bases: dict[MinorText, Base]
    rows: tuple[Row, ...] = Field(min_length=1)
