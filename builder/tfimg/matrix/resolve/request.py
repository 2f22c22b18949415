"""What somebody asks for, and the conditions that it puts on images: one per option, in one table."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.core.errors import (
    ResolutionError,
    UnavailableCuda,
    UnavailableCudnn,
    UnavailableDevice,
    UnavailableDriver,
    UnavailableGpu,
    UnavailablePlatform,
    UnavailablePython,
    UnknownTensorFlow,
    UsageError,
)
from tfimg.matrix.gpus import find_driver_floor, find_execution_mode, find_gpu, is_arm64_gpu, parse_capability
from tfimg.matrix.schema import PLATFORMS, Device, Matrix, Platform, minor_version
from tfimg.matrix.spec import ImageSpec

PROCESSORS: Mapping[str, Platform] = {
    "amd64": "linux/amd64",
    "x86_64": "linux/amd64",
    "x86-64": "linux/amd64",
    "arm64": "linux/arm64",
    "aarch64": "linux/arm64",
    "arm64/v8": "linux/arm64",
}
"""What people call a processor → the platform."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What somebody asks for; None: no opinion."""

    tensorflow: str | None = None
    python: str | None = None
    device: Device | None = None
    cuda: str | None = None
    cudnn: str | None = None
    platform: str | None = None
    driver: str | None = None
    gpu: str | None = None

    @property
    def effective_device(self) -> Device:
        """The device asked for, or the one that the rest of the request implies."""
        return self.device or ("gpu" if self.gpu_options else "cpu")

    @property
    def gpu_options(self) -> tuple[str, ...]:
        """Options given that only a GPU image can meet."""
        given = {"--cuda": self.cuda, "--cudnn": self.cudnn, "--gpu": self.gpu, "--driver": self.driver}
        return tuple(option for option, value in given.items() if value is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """One thing that an image must meet: that it `takes` the image's `value`.

    `asked` is it as an option (`--tf 2.15`), `told` as words, `topic` what it is about; `path` is where the matrix
    says what an image has, `source` how that is known. `implied` says why it holds although nobody asked, `implied_by`
    which options make it so; `cost` is how much it hurts to give it up, compared with others; `remark` is what else to
    know where nothing meets it. `text` and `instead` say the value in words and as an option's, if not by itself;
    `alone` is the condition without what it asks only because of `--gpu`.
    """

    option: str
    asked: str
    told: str
    topic: str
    value: Callable[[ImageSpec], str | None]
    takes: Callable[[str], bool]
    path: Callable[[ImageSpec], str]
    source: str
    refusal: type[ResolutionError]
    cost: int
    implied: str | None = None
    implied_by: tuple[str, ...] = ()
    remark: str | None = None
    text: Callable[[ImageSpec], str] | None = None
    instead: Callable[[ImageSpec], str | None] | None = None
    alone: Condition | None = None

    def meets(self, spec: ImageSpec) -> bool:
        """Does the image meet the condition?"""
        value = self.value(spec)
        return value is not None and self.takes(value)

    def has(self, spec: ImageSpec) -> str:
        """What the image has, in words."""
        return self.text(spec) if self.text else self.value(spec) or "none"

    def request(self, spec: ImageSpec) -> str | None:
        """The option that asks for what the image has, or None: not to ask."""
        value = self.instead(spec) if self.instead else self.value(spec)
        return None if value is None else f"{self.option} {value}"


def list_conditions(matrix: Matrix, request: Request) -> tuple[Condition, ...]:
    """Everything that an image must meet, in the order in which it is told.

    Raises `UsageError` for a request that cannot be read.
    """
    return tuple(_conditions(matrix, request))


def _conditions(matrix: Matrix, request: Request) -> Iterator[Condition]:
    if request.tensorflow is not None:
        yield _tensorflow(request.tensorflow)
    yield _device(request)
    yield _platform(matrix, request)
    if request.cuda is not None:
        yield _cuda(request.cuda)
    if request.cudnn is not None:
        yield _cudnn(request.cudnn)
    sm = find_gpu(matrix, request.gpu) if request.gpu is not None else None
    if request.gpu is not None and sm:
        yield _gpu(matrix, request.gpu, sm)
    if request.driver is not None:
        yield _driver(matrix, request.driver, sm)
    if request.python is not None:
        yield _python(request.python)


def _tensorflow(asked: str) -> Condition:
    return Condition(
        option="--tf",
        asked=f"--tf {quote_argument(asked)}",
        told=f"TensorFlow {asked}",
        topic="TensorFlow",
        value=lambda spec: spec.tensorflow,
        takes=make_version_matcher(asked, option="--tf"),
        instead=lambda spec: spec.minor if spec.is_newest_patch else spec.tensorflow,
        path=lambda spec: f"rows[{spec.row}].tensorflow",
        source="releases on the package index",
        refusal=UnknownTensorFlow,
        cost=3,
    )


def _device(request: Request) -> Condition:
    device = request.effective_device
    return Condition(
        option="--device",
        asked=f"--device {device}",
        told=f"device {device}",
        topic="device",
        value=lambda spec: spec.device,
        takes=device.__eq__,
        path=lambda spec: f"rows[{spec.row}].wheels.{spec.platform}.packages",
        source="packages on the package index",
        refusal=UnavailableDevice,
        cost=5,
        implied=None if request.device else _why_device(request.gpu_options),
        implied_by=request.gpu_options,
    )


def _why_device(of_gpu: Sequence[str]) -> str:
    if not of_gpu:
        return "nothing asks for an accelerator"
    *most, last = of_gpu
    return f"as {', '.join(most)} and {last} imply" if most else f"as {last} implies"


def _platform(matrix: Matrix, request: Request) -> Condition:
    asked, implied = request.platform, "the default"
    platform = PLATFORMS[0] if asked is None else parse_platform(asked)
    arm64 = request.gpu is not None and is_arm64_gpu(matrix, request.gpu)
    if arm64 and asked is None:
        platform, implied = PLATFORMS[1], f"as --gpu {quote_argument(request.gpu or '')} implies"
    return Condition(
        option="--platform",
        asked=f"--platform {quote_argument(asked or platform)}",
        told=platform,
        topic="platform",
        value=lambda spec: spec.platform,
        takes=platform.__eq__,
        path=lambda spec: f"rows[{spec.row}].wheels",
        source="file names of the wheels",
        refusal=UnavailablePlatform,
        cost=6,
        implied=implied if asked is None else None,
        implied_by=("--gpu",) if arm64 and platform == PLATFORMS[1] else (),
    )


def _cuda(asked: str) -> Condition:
    return Condition(
        option="--cuda",
        asked=f"--cuda {quote_argument(asked)}",
        told=f"CUDA {asked}",
        topic="CUDA",
        value=lambda spec: spec.gpu.cuda if spec.gpu else None,
        takes=make_version_matcher(asked, option="--cuda"),
        path=lambda spec: f"rows[{spec.row}].gpu.cuda",
        source="build information inside the wheels",
        refusal=UnavailableCuda,
        cost=2,
    )


def _cudnn(asked: str) -> Condition:
    return Condition(
        option="--cudnn",
        asked=f"--cudnn {quote_argument(asked)}",
        told=f"cuDNN {asked}",
        topic="cuDNN",
        value=lambda spec: spec.gpu.libraries.cudnn if spec.gpu else None,
        takes=make_version_matcher(asked, option="--cudnn", whole=4),
        instead=lambda spec: minor_version(spec.gpu.libraries.cudnn) if spec.gpu else None,
        path=lambda spec: f"rows[{spec.row}].gpu.libraries.cudnn",
        source="NVIDIA's wheel in the images",
        refusal=UnavailableCudnn,
        cost=1,
    )


def _gpu(matrix: Matrix, asked: str, sm: str) -> Condition:
    name = sm if asked == sm else f"{asked} ({sm})"
    of_row = {f"rows[{number}]": row.gpu for number, row in enumerate(matrix.rows) if row.gpu}
    remark = None
    if parse_capability(sm) >= parse_capability(matrix.ptx.below):
        remark = f"{matrix.ptx.reason} ({matrix.ptx.issue}; matrix.yaml: ptx)"
    elif is_arm64_gpu(matrix, asked):
        remark = f"a {asked} sits beside an Arm processor (matrix.yaml: arm64_gpus)"
    return Condition(
        option="--gpu",
        asked=f"--gpu {quote_argument(asked)}",
        told=f"GPU {name}",
        topic="GPU",
        value=lambda spec: f"rows[{spec.row}]" if spec.gpu else None,
        takes=cache(lambda row: find_execution_mode(matrix, of_row[row], sm) is not None),
        text=lambda spec: f"code for {' '.join(spec.gpu.architectures)}" if spec.gpu else "none",
        instead=lambda _: None,
        path=lambda spec: f"rows[{spec.row}].gpu.architectures",
        source="build information inside the wheels",
        refusal=UnavailableGpu,
        cost=8,
        remark=remark,
    )


def _driver(matrix: Matrix, asked: str, sm: str | None) -> Condition:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})*", asked):
        raise UsageError(
            f"--driver {asked!r} is not the version of a driver.",
            next_step="Write what nvidia-smi shows, for example 535.104.05.",
        )
    for toolkit in matrix.toolkits.values():
        if toolkit.driver.startswith(f"{asked}."):
            raise UsageError(
                f"--driver {asked} may be older or newer than {toolkit.driver}, which decides what runs.",
                next_step="Write the whole version, as nvidia-smi shows it.",
            )
    alone = Condition(
        option="--driver",
        asked=f"--driver {asked}",
        told=f"driver {asked}",
        topic="driver",
        value=lambda spec: spec.driver,
        takes=lambda lowest: parse_version(asked) >= parse_version(lowest),
        text=lambda spec: f"{spec.driver} or newer" if spec.driver else "none",
        path=lambda spec: f"rows[{spec.row}].gpu.libraries.toolkit",
        source="NVIDIA's CUDA compatibility guide",
        refusal=UnavailableDriver,
        cost=7,
    )
    return _driver_for(matrix, sm, alone) if sm else alone


def _driver_for(matrix: Matrix, sm: str, alone: Condition) -> Condition:
    """The condition on the driver of a GPU: it knows the GPU, and compiles PTX where a wheel has no code for it."""
    known = matrix.gpu_drivers.get(sm)
    below = known.below if known else None

    def compiles(spec: ImageSpec) -> bool:
        return spec.gpu is not None and find_execution_mode(matrix, spec.gpu, sm) in ("ptx", "unproven")

    def floor(spec: ImageSpec) -> str | None:
        return find_driver_floor(matrix, spec, sm)

    def text(spec: ImageSpec) -> str:
        end = f", below {below}" if below else ""
        return f"{floor(spec)} or newer{end}{' to compile PTX' if compiles(spec) else ''} for {sm}"

    def path(spec: ImageSpec) -> str:
        if known and (below or floor(spec) == known.since):
            return f"gpu_drivers.{sm}"
        return f"rows[{spec.row}].gpu.{'ptx_driver' if compiles(spec) else 'libraries.toolkit'}"

    return replace(
        alone,
        value=floor,
        takes=lambda lowest: alone.takes(lowest) and not (below and alone.takes(below)),
        text=text,
        path=path,
        source="NVIDIA's CUDA compatibility guide and release notes",
        alone=alone,
    )


def _python(asked: str) -> Condition:
    takes = make_version_matcher(asked, option="--python")
    if (by_minor := _without_patch(asked)) != asked:
        raise UsageError(
            f"--python {asked}: the patch version of Python cannot be chosen, as an image has that of its base.",
            next_step=f"Name the minor version: --python {quote_argument(by_minor)}.",
        )
    return Condition(
        option="--python",
        asked=f"--python {quote_argument(asked)}",
        told=f"Python {asked}",
        topic="Python",
        value=lambda spec: spec.python,
        takes=takes,
        path=lambda spec: f"rows[{spec.row}].wheels.{spec.platform}.pythons",
        source="file names of the wheels",
        refusal=UnavailablePython,
        cost=2,
    )


def _without_patch(asked: str) -> str:
    """`3.11.4` → `3.11`, `>=3.9.2,<3.12` → `>=3.9,<3.12`, `3.13rc1` → `3.13`."""
    return re.sub(r"([0-9]+\.[0-9]+)(?!\.\*)[^\s,0-9][^\s,]*", r"\1", asked)


def quote_argument(value: str) -> str:
    """A value as a shell must be given it; zsh also expands words that begin with `=`."""
    return f"'{value}'" if value.startswith("=") and "'" not in value else shlex.quote(value)


def parse_platform(asked: str) -> Platform:
    """`linux/arm64`, `arm64`, `aarch64` → `linux/arm64`. Raises `UsageError` for anything else."""
    name = asked.lower().removeprefix("linux/")
    if name not in PROCESSORS:
        raise UsageError(
            f"--platform {asked!r} is none that TensorFlow has wheels for.",
            next_step=f"Write {' or '.join(PLATFORMS)}.",
        )
    return PROCESSORS[name]


def make_version_matcher(text: str, *, option: str, whole: int = 3) -> Callable[[str], bool]:
    """`2.15` matches every 2.15.x, `2.15.1` itself, `>=2.15,<2.17` a range, `latest` anything.

    A version of `whole` parts or more means exactly itself. Raises `UsageError` naming `option` when the text is
    none of these.
    """
    if text == "latest":
        return lambda _: True
    try:
        if not text.isprintable():
            raise ValueError("packaging takes white space of any kind around a version")
        matcher = _release_matcher(text, whole) if text[:1].isdigit() else _range_matcher(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is neither a version nor a range of versions.",
            next_step=f"Write for example {EXAMPLES.get(option, EXAMPLES['--tf'])}.",
        ) from None
    return cache(matcher)  # hundreds of images have few versions


def _release_matcher(text: str, whole: int) -> Callable[[str], bool]:
    wanted = Version(text)
    release = wanted.release
    if len(release) >= whole or str(wanted) != ".".join(map(str, release)):
        return lambda version: parse_version(version) == wanted
    return lambda version: parse_version(version).release[: len(release)] == release


def _range_matcher(text: str) -> Callable[[str], bool]:
    ranges = SpecifierSet(text)
    if not list(ranges):
        raise ValueError("a range without bounds, which is most likely a variable that is not set")
    ranges.contains("0")  # Python reads no number of thousands of digits, and says so only in use
    return lambda version: ranges.contains(parse_version(version))


EXAMPLES = {
    "--tf": "2.15, 2.15.1, '>=2.15,<2.17' or latest",
    "--cuda": "12, 12.2 or '>=12.3'",
    "--cudnn": "9, 8.9 or '>=8.9.4'",
    "--python": "3.11 or '>=3.10'",
}


@cache
def parse_version(version: str) -> Version:
    """A version that is compared again and again."""
    return Version(version)
