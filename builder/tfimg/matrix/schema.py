"""Schema of matrix.yaml."""

import json
import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, replace
from datetime import date
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, get_args

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.core.text import list_first, quote_value, require_integer
from tfimg.matrix.devices import Device


def _quoted(value: object) -> object:
    if isinstance(value, float | int) and not isinstance(value, bool):
        # YAML reads 3.10 as the number 3.1: a version that lost its zero cannot be told from one that had none.
        raise ValueError(f"{quote_value(value)} is a number to YAML; write the version in quotes")
    return value


def _version(value: str) -> str:
    try:
        version = Version(value)
    except ValueError:
        raise ValueError(f"{quote_value(value)} is not a version (PEP 440)") from None
    if version.local or version.epoch:
        raise ValueError(f"{quote_value(value)} cannot be part of a tag: leave the epoch and what follows + out")
    if not re.fullmatch(r"[0-9][0-9a-z.]{0,40}", value):
        raise ValueError(f"{quote_value(value)} cannot be part of a tag: at most 40 digits, small letters and dots")
    return value


def _specifier(value: str) -> str:
    try:
        # Also what only fails in use: === has no order, and Python reads no number of thousands of digits.
        SpecifierSet(value).is_disjoint(SpecifierSet(">=0"))
    except ValueError:
        raise ValueError(f"{quote_value(value)} is not a version range such as '>=9.3,<10'") from None
    return value


def _requirement(value: str) -> str:
    from packaging.requirements import Requirement  # a matrix that was checked needs none

    try:
        Requirement(value).specifier.is_disjoint(SpecifierSet(">=0"))
    except (ValueError, RecursionError):  # the latter: brackets nested too deeply
        raise ValueError(f"{quote_value(value)} is not a requirement such as 'setuptools<82'") from None
    return value


def _day(value: object) -> object:
    # pydantic also takes seconds since 1970, which is what a day without its dashes would be.
    text = value if isinstance(value, str) else ""
    if not isinstance(value, date) and not re.fullmatch(r"20[0-9]{2}-[0-9]{2}-[0-9]{2}", text):
        raise ValueError(f"{quote_value(value)} is not a day such as 2024-05-01")
    return value


def _last_day(value: object) -> object:
    """Return the last day of a month such as 2026-10; some publishers name no day."""
    if isinstance(value, str) and (month := re.fullmatch(r"(20[0-9]{2})-(0[1-9]|1[0-2])", value)):
        year, number = int(month[1]), int(month[2])
        return date(year, number, monthrange(year, number)[1])
    return _day(value)


class Rule:
    """A rule for the text of a field, with pydantic's own protocol: its import takes longer than most commands run."""

    def __init__(
        self,
        *,
        before: Callable[[object], object] | None = None,
        after: Callable[[str], str] | None = None,
        json_schema: dict[str, str] | None = None,
        **constraints: Any,
    ) -> None:
        self.before, self.after = before, after
        self.json_schema, self.constraints = json_schema or {}, constraints

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return the schema of a type with this rule."""
        from pydantic_core import core_schema

        schema = handler(source) | self.constraints
        if self.after:
            schema = core_schema.no_info_after_validator_function(self.after, schema)
        return core_schema.no_info_before_validator_function(self.before, schema) if self.before else schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        """Return the JSON Schema of a type with this rule; a rule that states a type states all of it."""
        return self.json_schema if "type" in self.json_schema else handler(schema) | self.json_schema


VersionText = Annotated[str, Rule(before=_quoted, after=_version)]
MinorText = Annotated[str, Rule(before=_quoted, pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$")]
Day = Annotated[date, Rule(before=_day)]
LastDay = Annotated[
    date,
    Rule(before=_last_day, json_schema={"type": "string", "pattern": r"^20[0-9]{2}-[0-9]{2}(-[0-9]{2})?$"}),
]
"""A day, or a month, which means its last day."""
RangeText = Annotated[str, Rule(before=_quoted, after=_specifier)]
RequirementText = Annotated[str, Rule(after=_requirement)]
Sentence = Annotated[str, Rule(min_length=1)]
PackageText = Annotated[str, Rule(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
IssueText = Annotated[
    str,
    Rule(
        pattern=r"^[\w.-]+/[\w.-]+#[0-9]+$",
        json_schema={"description": "Upstream report, as owner/repository#number"},
    ),
]
SourceText = Annotated[
    str,
    Rule(
        pattern=r"^(https://[^\s<>\"]+|[\w.-]+/[\w.-]+#[0-9]+)$",
        json_schema={"description": "Address of the page, or upstream report as owner/repository#number"},
    ),
]
Capability = Annotated[str, Rule(pattern=r"^sm_[0-9]{2,3}$")]
"""Compute capability of a GPU, e.g. sm_75 for 7.5: the last digit is the minor."""
Architecture = Annotated[str, Rule(pattern=r"^(sm|compute)_[0-9]{2,3}$")]


def fact(*, default: Any = MISSING, default_factory: Any = MISSING, **settings: Any) -> Any:
    """Declare a field; more `settings` are those of pydantic's `Field`, such as `description` and `min_length`."""
    if isinstance(default, dict):
        settings["json_schema_extra"] = {"default": default}
        default, default_factory = MISSING, partial(dict, default)
    return field(default=default, default_factory=default_factory, metadata=settings)


class Facts:
    """Base of every part: pydantic refuses unknown keys.

    Parts compare here, because compiling these functions for each of them took 5 ms of each start.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


RUNTIME = "runtime"  # the variant of an image whose identifier and tags name none: TensorFlow with its dependencies

VariantName = Annotated[str, Rule(pattern=r"^[a-z]{2,20}(-[a-z]{2,20})?$")]
PackagePattern = Annotated[str, Rule(pattern=r"^[a-z0-9*]+([-*][a-z0-9*]+)*$", max_length=100)]
"""Pattern of names of Python packages, e.g. `nvidia-*`."""
SystemPackage = Annotated[str, Rule(pattern=r"^[a-z0-9][a-z0-9+.-]{1,80}$")]
"""Name of a Debian package (Debian policy, 5.6.7)."""
FilePattern = Annotated[str, Rule(pattern=r"^[^\s/'\"\\$`][^\s'\"\\$`]{0,200}$")]
"""Pattern of the shell for a path below site-packages, as RECORD writes it; `*` also matches `/`."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Variant(Facts):
    """Packages above the runtime, or files that it does without."""

    description: Sentence
    extends: VariantName | None = fact(default=None, description="Another variant, whose packages this one has too")
    requirements: tuple[RequirementText, ...] = fact(
        default=(), description="Python packages, locked as of the release's cut-off"
    )
    newer: dict[PackageText, Sentence] = fact(
        default={}, description="Packages that may be as new as the matrix's, and why"
    )
    alone: dict[PackageText, Sentence] = fact(
        default={},
        description="Packages that are installed without their dependencies, and why; their checks are waived",
    )
    system_packages: tuple[SystemPackage, ...] = fact(default=(), description="Debian packages")
    removed: tuple[FilePattern, ...] = fact(
        default=(), description="Patterns of the packages' files that the image does without"
    )
    removed_system: tuple[FilePattern, ...] = fact(
        default=(),
        description="Patterns of Debian's and Python's own files, from the root, that the image does without",
    )
    uncompiled: tuple[FilePattern, ...] = fact(
        default=(), description="Patterns of the packages' modules that get no byte code"
    )
    port: int | None = fact(default=None, ge=1, le=65535, description="Port that its program listens to")
    health: Sentence | None = fact(default=None, description="Program that tells whether the one of the port answers")
    command: tuple[Sentence, ...] = fact(default=(), description="Program that a container starts; none: python")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Exporter(Facts):
    """A format that models are exported to, and the releases that have an image with converter and runtime."""

    description: Sentence
    variant: VariantName = fact(description="The variant that has converter and runtime")
    releases: dict[MinorText, Sentence] = fact(description="TensorFlow minors with a way, and what is known of each")
    otherwise: Sentence = fact(description="Why other releases have no way")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ServingImage(Facts):
    """An image of TensorFlow Serving, and the libraries in the one for GPUs."""

    release: VersionText
    released: Day
    cuda: VersionText
    cudnn: VersionText


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AcceptedRisk(Facts):
    """Vulnerabilities of a package that images keep for now, for one reason."""

    advisories: tuple[Annotated[str, Rule(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$")], ...] = fact(
        min_length=1, description="Identifiers or aliases of the advisories, e.g. CVE-2026-1234"
    )
    package: Annotated[str, Rule(pattern=r"^[a-z0-9][a-z0-9+.-]{0,99}$")] = fact(
        description="Python package, or source package of Debian"
    )
    images: Annotated[str, Rule(pattern=r"^[A-Za-z0-9.*?!\[\]-]{1,100}$")] = fact(
        default="*", description="Pattern of the images that keep it, e.g. 2.15*-cpu-*"
    )
    reason: Sentence
    review_by: Day = fact(description="Last day of the acceptance; after it, `audit` and `check` fail")

    def __str__(self) -> str:
        return f"{list_first(self.advisories, 3)} of {self.package}"


def minor_version(version: str) -> str:
    """Return the minor version: `12.5.1` → `12.5`."""
    return ".".join(version.split(".")[:2])


def has_version_prefix(version: str, prefix: str) -> bool:
    """Return whether a version starts with these numbers: 2.18.1 starts with 2.18, but not with 2.1."""
    return f"{version}.".startswith(f"{prefix}.")


MAX_REPOSITORY = 255  # characters of a repository's name with its registry (distribution, `NameTotalLengthMax`)


def check_repository_name(value: str) -> str:
    """Return a repository name of the OCI distribution specification. Raises `ValueError`."""
    label, part = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
    name = rf"(?:{label}(?:\.{label})*(?::(?P<port>[0-9]{{1,5}}))?/)?{part}(?:/{part})*"
    found = re.fullmatch(name, value)
    if not found or not 0 < int(found["port"] or 1) < 1 << 16 or len(value) > MAX_REPOSITORY:
        raise ValueError(f"{value!r} is not a repository name")
    return value


Platform = Literal["linux/amd64", "linux/arm64"]  # operating system and processor, as in the engine
PLATFORMS: tuple[Platform, ...] = get_args(Platform)
PROCESSORS: dict[Platform, str] = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
"""The processor of a platform, as in wheels and the kernel."""
PLATFORM_OF: dict[str, Platform] = {processor: platform for platform, processor in PROCESSORS.items()}

RepositoryText = Annotated[str, Rule(after=check_repository_name)]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tpu(Facts):
    """The library that a release's TPU wheel was built against."""

    libtpu: VersionText = fact(description="libtpu that pairs with tensorflow-tpu of this release")
    unavailable: Sentence | None = fact(
        default=None, description="Why the pair cannot be installed from the package index; none: it can"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Release(Facts):
    """One TensorFlow release on the package index."""

    version: VersionText = fact(description="Exact release, e.g. 2.15.0.post1")
    released: Day = fact(description="Day its first Linux wheel appeared on the package index")
    cutoff: Day = fact(description="Its locks see the package index as it was at the end of this day")
    tpu: Tpu | None = fact(default=None, description="None: there is no tensorflow-tpu of this release")
    missing: dict[Platform, Sentence] = fact(
        default={}, description="Platforms of the row that this release lacks, and why"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Wheels(Facts):
    """Wheels of a row's releases for one platform on the package index."""

    pythons: tuple[MinorText, ...] = fact(min_length=1, description="Python minors with a wheel")
    packages: dict[Device, PackageText] = fact(
        min_length=1, description="Distribution that carries TensorFlow for each device"
    )
    newer: dict[PackageText, Sentence] = fact(default={}, description="Like the row's, on this platform only")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Libraries(Facts):
    """NVIDIA's wheels in a row's GPU images."""

    toolkit: MinorText = fact(description="An entry of toolkits: all but cuDNN and NCCL")
    cudnn: VersionText = fact(description="Exact version of nvidia-cudnn")
    nccl: VersionText | None = fact(
        default=None, description="Exact version of nvidia-nccl; none: it is inside the TensorFlow wheel"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PtxReport(Facts):
    """A report on a row's PTX on a GPU from the matrix's `ptx.below` on."""

    runs: Literal["fails", "unproven"] = fact(
        description="unproven: nothing shows it, so an image is offered with a note"
    )
    reason: Sentence
    issue: IssueText | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OtherToolkit(Facts):
    """A CUDA toolkit that a row's images can have in the place of the usual one."""

    reason: Sentence
    libraries: Libraries
    reports: dict[Capability, PtxReport] = fact(
        default={}, description="Reports of the row's PTX beside this toolkit, as those of the row"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Gpu(Facts):
    """Build information of a row's GPU wheel, and the libraries of its images."""

    cuda: MinorText = fact(description="CUDA minor, from tf.sysconfig.get_build_info()")
    cudnn: RangeText = fact(description="cuDNN releases that the wheel accepts: one major, a minor floor")
    architectures: tuple[Architecture, ...] = fact(
        min_length=1, description="Compute capabilities with code (sm_), or with code and PTX (compute_)"
    )
    ptx_driver: VersionText = fact(description="Lowest Linux driver that compiles the wheel's PTX")
    libraries: Libraries
    reports: dict[Capability, PtxReport] = fact(
        default={},
        description="Reports of this row's PTX on GPUs from ptx.below on, by compute capability; all others fail",
    )
    other_toolkits: tuple[OtherToolkit, ...] = fact(
        default=(), description="More toolkits, whose images are further ones: chosen with --cuda, or for their GPUs"
    )

    @property
    def toolkits(self) -> tuple[tuple[str, "Gpu"], ...]:
        """The CUDA of identifiers, tags and `--cuda`, and the facts with that toolkit; the usual one is the first.

        The usual one is called by the CUDA of the wheel, of which its toolkit may be a newer minor.
        """
        others = (
            (one.libraries.toolkit, replace(self, libraries=one.libraries, reports=one.reports, other_toolkits=()))
            for one in self.other_toolkits
        )
        return (self.cuda, replace(self, other_toolkits=())), *others


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Constraint(Facts):
    """A requirement that the wheel's own metadata lacks."""

    requirement: RequirementText
    reason: Sentence
    issue: IssueText | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Companion(Facts):
    """A package that works with some releases of TensorFlow alone, which its metadata does not say."""

    reason: Sentence
    tensorflow: dict[VersionText, RangeText] = fact(
        min_length=1, description="The TensorFlow that its releases need, by the first of them; earlier ones take any"
    )

    def find_need(self, version: Version) -> str:
        """Return the TensorFlow that a release needs; empty if that is not known."""
        known = [first for first in self._order if Version(first) <= version]
        return self.tensorflow[known[-1]] if known else ""

    def find_releases(self, tensorflow: str) -> str:
        """Return the specifier of the releases that work with a TensorFlow; empty if all do."""
        order = self._order
        works = [SpecifierSet(self.tensorflow[first]).contains(tensorflow, prereleases=True) for first in order]
        if True not in works:
            return f"<{order[0]}"
        start, end = works.index(True), len(works) - works[::-1].index(True)
        return ",".join([f">={order[start]}"] * (start > 0) + [f"<{one}" for one in order[end : end + 1]])

    @property
    def _order(self) -> list[str]:
        return sorted(self.tensorflow, key=Version)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LeftOut(Facts):
    """Requirements of `[and-cuda]` that images do not carry."""

    packages: tuple[PackageText, ...] = fact(min_length=1)
    reason: Sentence
    issue: IssueText | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Toolkit(Facts):
    """NVIDIA's wheels of one CUDA toolkit, without cuDNN and NCCL."""

    driver: VersionText = fact(description="Lowest Linux driver that runs this CUDA major")
    wheels: dict[PackageText, VersionText] = fact(min_length=1, description="Wheel and its exact version")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ptx(Facts):
    """Support of GPUs that are newer than those a wheel has code for."""

    below: Capability = fact(
        description="GPUs from this compute capability on run older PTX only where a row's reports say so"
    )
    reason: Sentence
    issue: IssueText | None = None
    note: Sentence = fact(description="What to know where PTX is used")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GpuReport(Facts):
    """What a user has reported of a TensorFlow on a GPU from the matrix's `ptx.below` on."""

    tensorflow: VersionText = fact(description="A release, or a nightly build such as 2.21.0.dev20250722")
    wheel: Literal["published", "compiled for the GPU"] = fact(
        default="published", description="compiled for the GPU: by the user who reports"
    )
    cuda: MinorText | None = fact(default=None, description="The toolkit beside it; none: the report does not say")
    gpu: Sentence = fact(description="As the report names it")
    capability: Capability
    result: Literal["runs", "fails", "XLA fails"]
    saw: Sentence = fact(description="What the user saw")
    reported: Day
    issue: IssueText


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GpuDriver(Facts):
    """Linux drivers that know a GPU."""

    since: VersionText | None = fact(default=None, description="The first that does; none: the floor of any CUDA")
    below: VersionText | None = fact(default=None, description="The first that no longer does")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Row(Facts):
    """Releases that share all facts but their dates."""

    tensorflow: tuple[Release, ...] = fact(min_length=1)
    wheels: dict[Platform, Wheels] = fact(min_length=1)
    blocked: dict[MinorText, Sentence] = fact(
        default={}, description="Pythons that have a wheel and yet no image, and why"
    )
    default_python: MinorText = fact(description="Taken when a request names none")
    numpy: RangeText = fact(description="NumPy that the wheels' own metadata allows, over all Pythons")
    keras: RangeText = fact(description="Keras that the wheels' own metadata allows")
    gpu: Gpu | None = None
    newer: dict[PackageText, Sentence] = fact(
        default={}, description="More packages that may be as new as the matrix's, and why"
    )
    constraints: tuple[str, ...] = fact(default=(), description="Names under the matrix's constraints")
    waives: dict[str, Sentence] = fact(
        default={}, description="Checks of the suite that the row's images do without, and why; all others are required"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Base(Facts):
    """Source of an image's operating system and Python."""

    image: str = fact(
        description="Official image, as registry/repository:tag", pattern=r"^[a-z0-9-]+([.:][a-z0-9-]+)+/\S+:\S+$"
    )
    suite: str | None = fact(default=None, description="Debian suite whose own Python is this one; none: registry only")

    @property
    def codename(self) -> str | None:
        """The Debian release: the suite, or what the official image's tag ends in; None if it states none."""
        name = self.suite or self.image.rpartition(":")[2].rpartition("-")[2]
        return name if name.isalpha() else None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Newer(Facts):
    """Packages that may be newer than a release's cut-off, because they do not touch TensorFlow's ABI."""

    as_of: Day = fact(description="The day up to which they may be new")
    packages: dict[PackageText, Sentence] = fact(description="Package and why it may be newer")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LastFixes(Facts):
    """The last day of security fixes, as who publishes them states it."""

    ends: LastDay = fact(description="The day, or a month, which means its last day")
    source: SourceText


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EndOfLife(Facts):
    """The last day of security fixes of what an image is made of. Without an entry, no day was published."""

    python: dict[MinorText, LastFixes] = fact(default={}, description="By Python minor")
    official_images: dict[MinorText, LastFixes] = fact(
        default={}, description="By Python minor: the last day on which docker-library rebuilt its images"
    )
    debian: dict[Annotated[str, Rule(pattern=r"^[a-z]+$")], LastFixes] = fact(
        default={}, description="By Debian suite; with long-term support"
    )
    tensorflow: dict[MinorText, LastFixes] = fact(default={}, description="By TensorFlow minor")
    cuda: dict[MinorText, LastFixes] = fact(
        default={}, description="By CUDA minor, as identifiers name it: the end of the driver branch of that toolkit"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Matrix(Facts):
    """The facts that people decide."""

    version: Annotated[Literal[2], Rule(before=require_integer)] = fact(description="Version of this format")
    repository: RepositoryText = fact(description="Default repository of the tags")
    installer: VersionText = fact(description="uv release that installs inside the images")
    newer: Newer
    bases: dict[MinorText, Base]
    end_of_life: EndOfLife = fact(default_factory=EndOfLife, description="When security fixes end")
    constraints: dict[str, Constraint] = fact(default_factory=dict)
    fixed: dict[PackagePattern, Sentence] = fact(
        default={"*": "this matrix does not say which packages may move"},
        description="Patterns of packages that extra packages do not move, and why; none: no package moves",
    )
    companions: dict[PackageText, Companion] = fact(
        default={}, description="Packages that need certain releases of TensorFlow without saying so in their metadata"
    )
    accepted_risks: tuple[AcceptedRisk, ...] = fact(
        default=(), description="Vulnerabilities that images keep for now, and why"
    )
    left_out: tuple[LeftOut, ...] = ()
    toolkits: dict[MinorText, Toolkit] = fact(default={}, description="By CUDA minor")
    gpus: dict[Capability, tuple[Sentence, ...]] = fact(default={}, description="Names of GPUs by compute capability")
    gpu_drivers: dict[Capability, GpuDriver] = fact(
        default={}, description="GPUs that not every driver knows, by compute capability"
    )
    arm64_gpus: tuple[Sentence, ...] = fact(
        default=(), description="Names of GPUs whose machines have an Arm processor"
    )
    data_center_gpus: tuple[Sentence, ...] = fact(
        default=(), description="Names of GPUs on which NVIDIA's forward compatibility works"
    )
    ptx: Ptx
    gpu_reports: tuple[GpuReport, ...] = fact(
        default=(), description="Reports of users, for people; what is offered stands in each row's `reports`"
    )
    variants: dict[VariantName, Variant] = fact(default_factory=dict, description="Variants of every image, by name")
    exporters: dict[str, Exporter] = fact(default={}, description="What `tfimg export --to` writes, by name")
    tensorflow_serving: dict[MinorText, ServingImage] = fact(
        default={}, description="Images of TensorFlow Serving by TensorFlow minor, which are not of this project"
    )
    rows: tuple[Row, ...] = fact(min_length=1)


def matrix_schema_text() -> str:
    """Return the JSON Schema of a matrix, as the committed file has it."""
    from pydantic import TypeAdapter

    return json.dumps(TypeAdapter(Matrix).json_schema(), indent=2) + "\n"
