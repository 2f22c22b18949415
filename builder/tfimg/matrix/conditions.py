"""What a user asks for, and conditions that decide which images meet it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.core import errors
from tfimg.core.text import quote_argument
from tfimg.matrix import schema
from tfimg.matrix.devices import CPU, DEVICES, GPU, Device
from tfimg.matrix.gpus import (
    describe_forward_compatibility,
    find_driver_floor,
    find_execution_mode,
    find_gpu,
    is_arm64_gpu,
    parse_capability,
)
from tfimg.matrix.spec import EXTRA_SUFFIX, ImageSpec, with_variant

PLATFORM_NAMES: Mapping[str, schema.Platform] = {
    "amd64": "linux/amd64",
    "x86_64": "linux/amd64",
    "x86-64": "linux/amd64",
    "arm64": "linux/arm64",
    "aarch64": "linux/arm64",
    "arm64/v8": "linux/arm64",
}
"""Common names of a processor, and the platform."""

EXAMPLES = {
    "--tf": "2.15, 2.15.1, '>=2.15,<2.17' or latest",
    "--cuda": "12, 12.2 or '>=12.3'",
    "--cudnn": "9, 8.9 or '>=8.9.4'",
    "--python": "3.11 or '>=3.10'",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """Requirements on an image; None: any value."""

    tensorflow: str | None = None
    python: str | None = None
    device: Device | None = None
    cuda: str | None = None
    cudnn: str | None = None
    platform: str | None = None
    driver: str | None = None
    gpu: str | None = None
    variant: str | None = None


def parse_platform(text: str) -> schema.Platform:
    """Return the platform for `linux/arm64`, `arm64` or `aarch64`. Raises `UsageError`."""
    name = text.lower().removeprefix("linux/")
    if name not in PLATFORM_NAMES:
        raise errors.UsageError(
            f"--platform {text!r} is not a platform that TensorFlow has wheels for.",
            next_step=f"Write {' or '.join(schema.PLATFORMS)}.",
        )
    return PLATFORM_NAMES[name]


def make_version_matcher(text: str, *, option: str, exact_parts: int = 3) -> Callable[[str], bool]:
    """Return the test for `2.15` (any 2.15.x), `2.15.1` (exact), `>=2.15,<2.17` (a range) or `latest` (any).

    A version of `exact_parts` parts or more is exact. The test is cached: hundreds of images have few versions. Raises
    `UsageError` naming `option`.
    """
    if text == "latest":
        return lambda _: True
    try:
        if not text.isprintable():
            raise ValueError("packaging accepts white space of any kind around a version")
        if text[:1].isdigit():
            wanted = Version(text)
            release = wanted.release
            if len(release) >= exact_parts or str(wanted) != ".".join(map(str, release)):
                return cache(lambda version: parse_version(version) == wanted)
            return cache(lambda version: parse_version(version).release[: len(release)] == release)
        specifiers = SpecifierSet(text)
        if not list(specifiers):
            raise ValueError("a range without bounds is most likely an unset variable")
        specifiers.contains("0")  # Python rejects numbers of thousands of digits only in use
        return cache(lambda version: specifiers.contains(parse_version(version)))
    except ValueError:
        raise errors.UsageError(
            f"{option} {text!r} is neither a version nor a range of versions.",
            next_step=f"Write for example {EXAMPLES.get(option, EXAMPLES['--tf'])}.",
        ) from None


@cache
def parse_version(version: str) -> Version:
    return Version(version)


BUILD_INFORMATION = "build information inside the wheels"
FILE_NAMES = "file names of the wheels"


@dataclass(frozen=True, slots=True)
class Criterion:
    """A property of images that an option selects.

    `name`, in lower case, is the field of a `Request` and of an `ImageSpec`. `path` is where a row of the matrix states
    it, `source` its origin, `cost` how much it hurts to give the option up.
    """

    name: str
    cost: int
    error: type[errors.ResolutionError]
    path: str
    source: str


CRITERIA = {
    "--tf": Criterion("TensorFlow", 3, errors.UnknownTensorFlow, "tensorflow", "releases on the package index"),
    "--device": Criterion(
        "device", 5, errors.UnavailableDevice, "wheels.{platform}.packages", "packages on the package index"
    ),
    "--platform": Criterion("platform", 6, errors.UnavailablePlatform, "wheels", FILE_NAMES),
    "--cuda": Criterion("CUDA", 2, errors.UnavailableCuda, "gpu.cuda", BUILD_INFORMATION),
    "--cudnn": Criterion("cuDNN", 1, errors.UnavailableCudnn, "gpu.libraries.cudnn", "NVIDIA's wheel in the images"),
    "--gpu": Criterion("GPU", 8, errors.UnavailableGpu, "gpu.architectures", BUILD_INFORMATION),
    "--driver": Criterion(
        "driver", 7, errors.UnavailableDriver, "gpu.libraries.toolkit", "NVIDIA's CUDA compatibility guide"
    ),
    "--python": Criterion("Python", 2, errors.UnavailablePython, "wheels.{platform}.pythons", FILE_NAMES),
}


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A condition on images: `accepts` is the test of the image's value.

    `text` is the value of the option and `description` the condition in words. `implied` says why it holds although
    the request does not name the option, `implied_by` which options cause that. `remark` is more on a refusal.
    `without_gpu` is the condition without what it requires only because of `--gpu`.
    """

    option: str
    text: str
    description: str
    accepts: Callable[[str], bool]
    implied: str | None = None
    implied_by: tuple[str, ...] = ()
    remark: str | None = None
    without_gpu: Condition | None = None

    @property
    def argument(self) -> str:
        """The option with its value, for a shell."""
        return f"{self.option} {quote_argument(self.text)}"

    @property
    def criterion(self) -> Criterion:
        return CRITERIA[self.option]

    @property
    def source(self) -> str:
        return self.criterion.source

    def value(self, spec: ImageSpec) -> str | None:
        """Return the value of an image; None: it has none."""
        if self.option in ("--tf", "--device", "--platform", "--python", "--driver"):
            value: str | None = getattr(spec, self.criterion.name.lower())
            return value
        if spec.gpu is None:
            return None
        toolkit = f"rows[{spec.row}] {spec.cuda}"
        return {"--cuda": spec.cuda, "--cudnn": spec.gpu.libraries.cudnn, "--gpu": toolkit}[self.option]

    def is_met_by(self, spec: ImageSpec) -> bool:
        value = self.value(spec)
        return value is not None and self.accepts(value)

    def describe_value(self, spec: ImageSpec) -> str:
        if self.option == "--gpu" and spec.gpu:
            code = " ".join(name.replace("compute_", "sm_") for name in spec.gpu.architectures)
            ptx = " ".join(name for name in spec.gpu.architectures if name.startswith("compute_"))
            return f"code for {code}{f', PTX of {ptx}' if ptx else ''}"
        if self.option == "--driver" and spec.driver:
            return f"{spec.driver} or newer"
        return self.value(spec) or "none"

    def suggest(self, spec: ImageSpec) -> str | None:
        """Return the value of the option that selects an image; None: leave the option out."""
        value = self.value(spec)
        if self.option == "--gpu" or value is None:
            return None
        is_minor = self.option == "--cudnn" or (self.option == "--tf" and spec.is_newest_patch)
        return schema.minor_version(value) if is_minor else value

    def describe_range(self, spec: ImageSpec) -> str:
        """Return which drivers an image takes, for a condition on the driver."""
        return f"any driver from {self.value(spec)} on"

    @property
    def is_too_new(self) -> bool:
        """Whether a driver no longer supports the GPU."""
        return False

    def path(self, spec: ImageSpec) -> str:
        """Return where the matrix states the value of an image."""
        stated = self.criterion.path.format(platform=spec.platform)
        if not spec.is_usual_toolkit and self.option in ("--cuda", "--cudnn", "--driver"):
            stated = "gpu.other_toolkits"
        return f"rows[{spec.row}].{stated}"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _DriverOfGpu(Condition):
    """The driver supports the GPU, and compiles PTX where a wheel has no code for it."""

    matrix: schema.Matrix
    capability: str
    support: schema.GpuDriver

    @property
    def source(self) -> str:
        return "NVIDIA's CUDA compatibility guide and release notes"

    def value(self, spec: ImageSpec) -> str | None:
        return find_driver_floor(self.matrix, spec, self.capability)

    @property
    def is_too_new(self) -> bool:
        return bool(self.support.below and parse_version(self.text) >= parse_version(self.support.below))

    def describe_range(self, spec: ImageSpec) -> str:
        drivers = format_drivers(self.value(spec) or "", self.support.below)
        return f"any driver {drivers}" if drivers.startswith("from") else f"any driver from {self.value(spec)} on"

    def describe_value(self, spec: ImageSpec) -> str:
        purpose = " to compile PTX" if self._compiles_ptx(spec) else ""
        return f"{format_drivers(self.value(spec) or '', self.support.below)}{purpose} for {self.capability}"

    def path(self, spec: ImageSpec) -> str:
        if self.support.below or self.value(spec) == self.support.since:
            return f"gpu_drivers.{self.capability}"
        return f"rows[{spec.row}].gpu.{'ptx_driver' if self._compiles_ptx(spec) else 'libraries.toolkit'}"

    def _compiles_ptx(self, spec: ImageSpec) -> bool:
        mode = find_execution_mode(self.matrix, spec.gpu, self.capability) if spec.gpu else None
        return mode in ("ptx", "unproven")


def format_drivers(since: str, below: str | None) -> str:
    """Return a range of drivers in words: a branch of drivers that ends is named by its number."""
    if below and below.isdecimal():
        return f"from {since} to {int(below) - 1}"
    return f"{since} or newer{f', below {below}' if below else ''}"


def list_conditions(matrix: schema.Matrix, request: Request) -> Iterator[Condition]:
    """Yield all conditions of a request, in the order of explanations. Raises `UsageError` for an invalid value."""
    if request.tensorflow is not None:
        yield _version_condition("--tf", request.tensorflow)
    yield _device(request)
    yield _platform(matrix, request)
    if request.cuda is not None:
        yield _version_condition("--cuda", request.cuda)
    if request.cudnn is not None:
        yield _version_condition("--cudnn", request.cudnn, exact_parts=4)
    capability = None
    if request.gpu is not None:
        capability = find_gpu(matrix, request.gpu)
        yield _gpu(matrix, request.gpu, capability)
    if request.driver is not None:
        yield _driver(matrix, request.driver, capability, request.gpu or "")
    if request.python is not None:
        condition = _version_condition("--python", request.python)
        minors = re.sub(r"([0-9]+\.[0-9]+)(?!\.\*)[^\s,0-9][^\s,]*", r"\1", request.python)
        if minors != request.python:
            raise errors.UsageError(
                f"--python {request.python}: the patch version of Python cannot be chosen, as an image has that of its "
                "base.",
                next_step=f"Name the minor version: --python {quote_argument(minors)}.",
            )
        yield condition


def _version_condition(option: str, text: str, *, exact_parts: int = 3) -> Condition:
    accepts = make_version_matcher(text, option=option, exact_parts=exact_parts)
    return Condition(option, text, f"{CRITERIA[option].name} {text}", accepts)


def _device(request: Request) -> Condition:
    only_gpus = {"--cuda": request.cuda, "--cudnn": request.cudnn, "--gpu": request.gpu, "--driver": request.driver}
    options = tuple(option for option, value in only_gpus.items() if value is not None)
    device = request.device or (GPU if options else CPU)
    implied = None if request.device else "nothing asks for an accelerator"
    if implied and options:
        *others, last = options
        implied = f"as {', '.join(others)} and {last} imply" if others else f"as {last} implies"
    return Condition("--device", device, f"device {device}", device.__eq__, implied, options)


def _platform(matrix: schema.Matrix, request: Request) -> Condition:
    is_arm64 = request.gpu is not None and is_arm64_gpu(matrix, request.gpu)
    default = schema.PLATFORMS[1] if is_arm64 else schema.PLATFORMS[0]
    platform = default if request.platform is None else parse_platform(request.platform)
    implied = None
    if request.platform is None:
        implied = f"as --gpu {quote_argument(request.gpu or '')} implies" if is_arm64 else "the default"
    implied_by = ("--gpu",) if is_arm64 and platform == schema.PLATFORMS[1] else ()
    return Condition("--platform", request.platform or platform, platform, platform.__eq__, implied, implied_by)


def _gpu(matrix: schema.Matrix, name: str, capability: str) -> Condition:
    gpus = {
        f"rows[{number}] {cuda}": gpu
        for number, row in enumerate(matrix.rows)
        if row.gpu
        for cuda, gpu in row.gpu.toolkits
    }
    remark = None
    if parse_capability(capability) >= parse_capability(matrix.ptx.below):
        remark = f"{matrix.ptx.reason} ({matrix.ptx.issue}; matrix.yaml: ptx)"
    elif is_arm64_gpu(matrix, name):
        remark = (
            f"TensorFlow's wheels for Arm processors, such as that of {name}, are for the CPU (matrix.yaml: arm64_gpus)"
        )
    description = f"GPU {capability if name == capability else f'{name} ({capability})'}"
    accepts = cache(lambda toolkit: find_execution_mode(matrix, gpus[toolkit], capability) is not None)
    return Condition("--gpu", name, description, accepts, remark=remark)


def _driver(matrix: schema.Matrix, text: str, capability: str | None, gpu: str) -> Condition:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})*", text):
        raise errors.UsageError(
            f"--driver {text!r} is not the version of a driver.",
            next_step="Write what nvidia-smi shows, for example 535.104.05.",
        )
    for toolkit in matrix.toolkits.values():
        if toolkit.driver.startswith(f"{text}."):
            raise errors.UsageError(
                f"--driver {text} is incomplete: it may be older or newer than {toolkit.driver}, which some images "
                "need.",
                next_step="Write the whole version, as nvidia-smi shows it.",
            )
    version, description = parse_version(text), f"driver {text}"
    support = matrix.gpu_drivers.get(capability or "", schema.GpuDriver())
    below = support.below
    is_too_new = below is not None and version >= parse_version(below)
    condition = Condition(
        option="--driver",
        text=text,
        description=description,
        accepts=lambda lowest: version >= parse_version(lowest),
        remark=None if is_too_new else describe_forward_compatibility(matrix, gpu),
    )
    if capability is None:
        return condition
    return _DriverOfGpu(
        option="--driver",
        text=text,
        description=description,
        accepts=lambda lowest: condition.accepts(lowest) and not is_too_new,
        remark=condition.remark,
        matrix=matrix,
        capability=capability,
        support=support,
        without_gpu=condition,
    )


_ABBREVIATION = re.compile(
    rf"(?P<release>\d[\w.]*)(?:-(?P<device>{'|'.join(DEVICES)}|cuda)(?P<cuda>[\d.]*))?(?:-py(?P<python>[\d.]+))?"
)


def preference_key(spec: ImageSpec) -> tuple[Version, bool, bool, Version]:
    """Return the sort key of images: newest TensorFlow, usual toolkit, default Python, newest Python."""
    return parse_version(spec.tensorflow), spec.is_usual_toolkit, spec.is_default_python, parse_version(spec.python)


MAX_PATTERN = 200  # characters; identifiers have 40. Python takes n² steps for n brackets that nothing closes


def select_specs(
    specs: Sequence[ImageSpec], patterns: Sequence[str], variants: Sequence[str] = ()
) -> tuple[ImageSpec, ...]:
    """Return the images whose identifier matches a pattern (`*`, `?`, `[…]`); all without patterns.

    A pattern that is neither a glob nor an identifier is a prefix: `2.15` means `2.15*`. `variants` are endings that an
    error suggests. Raises `ResolutionError` for a pattern without a match.
    """
    selected: set[str] = set()
    identifiers = {spec.identifier for spec in specs}
    for pattern in patterns:
        is_whole = any(sign in pattern for sign in "*?[") or pattern in identifiers
        glob = pattern if is_whole else f"{pattern}*"
        is_short = len(glob) <= MAX_PATTERN
        matches = {identifier for identifier in identifiers if is_short and fnmatchcase(identifier, glob)}
        if not matches:
            hint = _suggest_pattern(specs, pattern, variants)
            raise errors.ResolutionError(
                f"No image matches {pattern!r}: identifiers look like {max(specs, key=preference_key).identifier}.",
                next_step=f"{hint}`tfimg list` shows all of them.",
            )
        selected |= matches
    return tuple(spec for spec in specs if not patterns or spec.identifier in selected)


def _suggest_pattern(specs: Sequence[ImageSpec], pattern: str, variants: Sequence[str]) -> str:
    """Return a sentence that names what a pattern without a match may mean, with a space behind it; else nothing."""
    if "/" in pattern:
        return "Patterns are not names of images. "
    if pattern.endswith(EXTRA_SUFFIX):
        return f"Leave {EXTRA_SUFFIX} out and name the packages with `tfimg build --with`. "
    start, _, ending = pattern.rpartition("-")
    if near := get_close_matches(ending, variants, n=1):
        return f"Did you mean '{start}-{near[0]}'? "
    if found := find_spec(specs, pattern):  # tags are abbreviated like this
        return f"Did you mean '{found.identifier}'? "
    return ""


def select_variants(
    specs: Sequence[ImageSpec],
    patterns: Sequence[str],
    variants: Mapping[str, schema.Variant],
    variant: str = schema.RUNTIME,
) -> tuple[ImageSpec, ...]:
    """Return the images that patterns select, each in the variant that its pattern ends in, else in `variant`.

    `2.18*-slim` selects the slim images of `2.18*`. Raises as `select_specs` and `with_variant` do.
    """
    names = (schema.RUNTIME, *variants)
    chosen: dict[str, list[str]] = {} if patterns else {variant: []}
    for pattern in patterns:
        ending = next((name for name in names if pattern.endswith(f"-{name}")), None)
        chosen.setdefault(ending or variant, []).append(pattern.removesuffix(f"-{ending}"))
    found = [
        with_variant(spec, name, variants)
        for name, group in chosen.items()
        for spec in select_specs(specs, group, names)
    ]
    order = {spec.identifier: number for number, spec in enumerate(specs)}
    return tuple(sorted(found, key=lambda spec: (order[spec.runtime], names.index(spec.variant))))


def find_spec(specs: Sequence[ImageSpec], name: str) -> ImageSpec | None:
    """Return the image of an identifier or abbreviation: newest release, default Python, linux/amd64.

    Release and CUDA may end after any number: `2.18-cuda12`, `2.18-gpu`, `2.15.1-cpu-py3.9`; without a device it is for
    CPUs, as for tags. Without a minor of CUDA it has the usual toolkit. None without a match.
    """
    exact = next((spec for spec in specs if spec.identifier == name), None)
    abbreviation = _ABBREVIATION.fullmatch(name)
    if exact or not abbreviation:
        return exact
    matches = (spec for spec in specs if _matches(spec, **abbreviation.groupdict()))
    return max(matches, key=preference_key, default=None)


def _matches(spec: ImageSpec, release: str, device: str | None, cuda: str | None, python: str | None) -> bool:
    if device == "cuda":
        is_variant = spec.cuda is not None and (not cuda or schema.has_version_prefix(spec.cuda, cuda))
    else:
        is_variant = spec.device == (device or CPU)
    return (
        is_variant
        and spec.platform == schema.PLATFORMS[0]
        and schema.has_version_prefix(spec.tensorflow, release)
        and (spec.python == python if python else spec.is_default_python)
    )
