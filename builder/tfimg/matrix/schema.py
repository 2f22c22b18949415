"""Schema of matrix.yaml; also the source of the JSON Schema for editors (`tfimg schema`)."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from tfimg.matrix.fields import (
    Architecture,
    Capability,
    Day,
    IssueText,
    LastDay,
    MatrixModel,
    MinorText,
    PackageText,
    RangeText,
    RequirementText,
    Sentence,
    SourceText,
    VersionText,
)
from tfimg.matrix.flavor import Flavor, FlavorName
from tfimg.matrix.risks import AcceptedRisk


def minor_version(version: str) -> str:
    """Return the minor version: `12.5.1` → `12.5`."""
    return ".".join(version.split(".")[:2])


def has_version_prefix(version: str, prefix: str) -> bool:
    """Return whether a version starts with these numbers: 2.18.1 starts with 2.18, but not with 2.1."""
    return f"{version}.".startswith(f"{prefix}.")


def check_repository_name(value: str) -> str:
    """Return a repository name of the OCI distribution specification. Raises `ValueError`."""
    part = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
    if not re.fullmatch(rf"(?:[a-z0-9.-]+(?::\d+)?/)?{part}(?:/{part})*", value):
        raise ValueError(f"{value!r} is not a repository name")
    return value


Device = Literal["cpu", "gpu", "tpu"]
DEVICES: tuple[Device, ...] = get_args(Device)

Platform = Literal["linux/amd64", "linux/arm64"]
"""Operating system and processor, as in the engine."""
PLATFORMS: tuple[Platform, ...] = get_args(Platform)
PROCESSORS: dict[Platform, str] = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
"""The processor of a platform, as in wheels and the kernel."""

RepositoryText = Annotated[str, AfterValidator(check_repository_name)]


class Tpu(MatrixModel):
    """The library that a release's TPU wheel was built against."""

    libtpu: VersionText = Field(description="libtpu that pairs with tensorflow-tpu of this release")
    unavailable: Sentence | None = Field(
        None, description="Why the pair cannot be installed from the package index; none: it can"
    )


class Release(MatrixModel):
    """One TensorFlow release on the package index."""

    version: VersionText = Field(description="Exact release, e.g. 2.15.0.post1")
    released: Day = Field(description="Day its first Linux wheel appeared on the package index")
    cutoff: Day = Field(description="Its locks see the package index as it was at the end of this day")
    tpu: Tpu | None = Field(None, description="None: there is no tensorflow-tpu of this release")
    missing: dict[Platform, Sentence] = Field({}, description="Platforms of the row that this release lacks, and why")


class Wheels(MatrixModel):
    """Wheels of a row's releases for one platform on the package index."""

    pythons: tuple[MinorText, ...] = Field(min_length=1, description="Python minors with a wheel")
    packages: dict[Device, PackageText] = Field(
        min_length=1, description="Distribution that carries TensorFlow for each device"
    )
    newer: dict[PackageText, Sentence] = Field({}, description="Like the row's, on this platform only")


class Libraries(MatrixModel):
    """NVIDIA's wheels in a row's GPU images."""

    toolkit: MinorText = Field(description="An entry of toolkits: all but cuDNN and NCCL")
    cudnn: VersionText = Field(description="Exact version of nvidia-cudnn")
    nccl: VersionText | None = Field(
        None, description="Exact version of nvidia-nccl; none: it is inside the TensorFlow wheel"
    )


class PtxReport(MatrixModel):
    """A report on a row's PTX on a GPU from the matrix's `ptx.below` on."""

    runs: Literal["fails", "unproven"] = Field(
        description="unproven: reports differ, so an image is offered with a note"
    )
    reason: Sentence
    issue: IssueText | None = None


class Gpu(MatrixModel):
    """Build information of a row's GPU wheel, and the libraries of its images."""

    cuda: MinorText = Field(description="CUDA minor, from tf.sysconfig.get_build_info()")
    cudnn: RangeText = Field(description="cuDNN releases that the wheel accepts: one major, a minor floor")
    architectures: tuple[Architecture, ...] = Field(
        min_length=1, description="Compute capabilities with code (sm_), or with code and PTX (compute_)"
    )
    ptx_driver: VersionText = Field(description="Lowest Linux driver that compiles the wheel's PTX")
    libraries: Libraries
    reports: dict[Capability, PtxReport] = Field(
        {}, description="Reports of this row's PTX on GPUs from ptx.below on, by compute capability; all others fail"
    )


class Constraint(MatrixModel):
    """A requirement that the wheel's own metadata lacks."""

    requirement: RequirementText
    reason: Sentence
    issue: IssueText | None = None


class LeftOut(MatrixModel):
    """Requirements of `[and-cuda]` that images do not carry."""

    packages: tuple[PackageText, ...] = Field(min_length=1)
    reason: Sentence
    issue: IssueText | None = None


class Toolkit(MatrixModel):
    """NVIDIA's wheels of one CUDA toolkit, without cuDNN and NCCL."""

    driver: VersionText = Field(description="Lowest Linux driver that runs this CUDA major")
    wheels: dict[PackageText, VersionText] = Field(min_length=1, description="Wheel and its exact version")


class Ptx(MatrixModel):
    """Support of GPUs that are newer than those a wheel has code for."""

    below: Capability = Field(
        description="GPUs from this compute capability on run older PTX only where a row's reports say so"
    )
    reason: Sentence
    issue: IssueText | None = None
    note: Sentence = Field(description="What to know where PTX is used")


class GpuDriver(MatrixModel):
    """Linux drivers that know a GPU."""

    since: VersionText | None = Field(default=None, description="The first that does; none: the floor of any CUDA")
    below: VersionText | None = Field(default=None, description="The first that no longer does")


class Row(MatrixModel):
    """Releases that share all facts but their dates."""

    tensorflow: tuple[Release, ...] = Field(min_length=1)
    wheels: dict[Platform, Wheels] = Field(min_length=1)
    blocked: dict[MinorText, Sentence] = Field({}, description="Pythons that have a wheel and yet no image, and why")
    default_python: MinorText = Field(description="Taken when a request names none")
    numpy: RangeText = Field(description="NumPy that the wheels' own metadata allows, over all Pythons")
    keras: RangeText = Field(description="Keras that the wheels' own metadata allows")
    gpu: Gpu | None = None
    newer: dict[PackageText, Sentence] = Field(
        {}, description="More packages that may be as new as the matrix's, and why"
    )
    constraints: tuple[str, ...] = Field((), description="Names under the matrix's constraints")
    waives: dict[str, Sentence] = Field(
        {}, description="Checks of the suite that the row's images do without, and why; all others are required"
    )


class Base(MatrixModel):
    """Source of an image's operating system and Python."""

    image: str = Field(
        description="Official image, as registry/repository:tag", pattern=r"^[a-z0-9-]+([.:][a-z0-9-]+)+/\S+:\S+$"
    )
    suite: str | None = Field(None, description="Debian suite whose own Python is this one; none: registry only")


class Newer(MatrixModel):
    """Packages that may be newer than a release's cut-off, because they do not touch TensorFlow's ABI."""

    as_of: Day = Field(description="The day up to which they may be new")
    packages: dict[PackageText, Sentence] = Field(description="Package and why it may be newer")


class LastFixes(MatrixModel):
    """The last day of security fixes, as who publishes them states it."""

    ends: LastDay = Field(description="The day, or a month, which means its last day")
    source: SourceText


class EndOfLife(MatrixModel):
    """The last day of security fixes of what an image is made of. Without an entry, no day was published."""

    python: dict[MinorText, LastFixes] = Field(default={}, description="By Python minor")
    official_images: dict[MinorText, LastFixes] = Field(
        default={}, description="By Python minor: the last day on which docker-library rebuilt its images"
    )
    debian: dict[Annotated[str, Field(pattern=r"^[a-z]+$")], LastFixes] = Field(
        default={}, description="By Debian suite; with long-term support"
    )
    tensorflow: dict[MinorText, LastFixes] = Field(default={}, description="By TensorFlow minor")


class Matrix(MatrixModel):
    """The facts that people decide."""

    version: Literal[2] = Field(description="Version of this format")
    repository: RepositoryText = Field(description="Default repository of the tags")
    installer: VersionText = Field(description="uv release that installs inside the images")
    newer: Newer
    bases: dict[MinorText, Base]
    end_of_life: EndOfLife = Field(default_factory=EndOfLife, description="When security fixes end")
    constraints: dict[str, Constraint] = Field(default_factory=dict)
    accepted_risks: tuple[AcceptedRisk, ...] = Field(
        (), description="Vulnerabilities that images keep for now, and why"
    )
    left_out: tuple[LeftOut, ...] = ()
    toolkits: dict[MinorText, Toolkit] = Field({}, description="By CUDA minor")
    gpus: dict[Capability, tuple[Sentence, ...]] = Field({}, description="Names of GPUs by compute capability")
    gpu_drivers: dict[Capability, GpuDriver] = Field(
        {}, description="GPUs that not every driver knows, by compute capability"
    )
    arm64_gpus: tuple[Sentence, ...] = Field((), description="Names of GPUs whose machines have an Arm processor")
    ptx: Ptx
    flavors: dict[FlavorName, Flavor] = Field(default_factory=dict, description="Flavours of every image, by name")
    rows: tuple[Row, ...] = Field(min_length=1)


def matrix_schema_text() -> str:
    """Return the JSON Schema of a matrix, as the committed file has it."""
    return json.dumps(Matrix.model_json_schema(), indent=2) + "\n"
