"""The conditions that a request puts on images, one for each option."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from tfimg.core import errors
from tfimg.matrix.gpus import find_driver_floor, find_execution_mode, find_gpu, is_arm64_gpu, parse_capability
from tfimg.matrix.resolve.request import (
    Request,
    check_driver,
    check_python,
    make_version_matcher,
    parse_platform,
    parse_version,
    quote_argument,
)
from tfimg.matrix.schema import PLATFORMS, GpuDriver, Matrix, minor_version
from tfimg.matrix.spec import ImageSpec

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
        """The property of images that the condition tests."""
        return CRITERIA[self.option]

    @property
    def source(self) -> str:
        """The origin of the image's value."""
        return self.criterion.source

    def value(self, spec: ImageSpec) -> str | None:
        """Return the value of an image; None: it has none."""
        if self.option in ("--tf", "--device", "--platform", "--python", "--driver"):
            value: str | None = getattr(spec, self.criterion.name.lower())
            return value
        if spec.gpu is None:
            return None
        return {"--cuda": spec.gpu.cuda, "--cudnn": spec.gpu.libraries.cudnn, "--gpu": f"rows[{spec.row}]"}[self.option]

    def is_met_by(self, spec: ImageSpec) -> bool:
        """Return whether an image meets the condition."""
        value = self.value(spec)
        return value is not None and self.accepts(value)

    def describe_value(self, spec: ImageSpec) -> str:
        """Return the value of an image in words."""
        if self.option == "--gpu" and spec.gpu:
            return f"code for {' '.join(spec.gpu.architectures)}"
        if self.option == "--driver" and spec.driver:
            return f"{spec.driver} or newer"
        return self.value(spec) or "none"

    def suggest(self, spec: ImageSpec) -> str | None:
        """Return the value of the option that selects an image; None: leave the option out."""
        value = self.value(spec)
        if self.option == "--gpu" or value is None:
            return None
        is_minor = self.option == "--cudnn" or (self.option == "--tf" and spec.is_newest_patch)
        return minor_version(value) if is_minor else value

    def path(self, spec: ImageSpec) -> str:
        """Return where the matrix states the value of an image."""
        return f"rows[{spec.row}].{self.criterion.path.format(platform=spec.platform)}"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _DriverOfGpu(Condition):
    """The driver supports the GPU, and compiles PTX where a wheel has no code for it."""

    matrix: Matrix
    capability: str
    support: GpuDriver

    @property
    def source(self) -> str:
        return "NVIDIA's CUDA compatibility guide and release notes"

    def value(self, spec: ImageSpec) -> str | None:
        return find_driver_floor(self.matrix, spec, self.capability)

    def describe_value(self, spec: ImageSpec) -> str:
        end = f", below {self.support.below}" if self.support.below else ""
        purpose = " to compile PTX" if self._compiles_ptx(spec) else ""
        return f"{self.value(spec)} or newer{end}{purpose} for {self.capability}"

    def path(self, spec: ImageSpec) -> str:
        if self.support.below or self.value(spec) == self.support.since:
            return f"gpu_drivers.{self.capability}"
        return f"rows[{spec.row}].gpu.{'ptx_driver' if self._compiles_ptx(spec) else 'libraries.toolkit'}"

    def _compiles_ptx(self, spec: ImageSpec) -> bool:
        mode = find_execution_mode(self.matrix, spec.gpu, self.capability) if spec.gpu else None
        return mode in ("ptx", "unproven")


def list_conditions(matrix: Matrix, request: Request) -> Iterator[Condition]:
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
        yield _driver(matrix, request.driver, capability)
    if request.python is not None:
        condition = _version_condition("--python", request.python)
        check_python(request.python)
        yield condition


def _version_condition(option: str, text: str, *, exact_parts: int = 3) -> Condition:
    accepts = make_version_matcher(text, option=option, exact_parts=exact_parts)
    return Condition(option, text, f"{CRITERIA[option].name} {text}", accepts)


def _device(request: Request) -> Condition:
    options = request.gpu_options
    device = request.device or ("gpu" if options else "cpu")
    implied = None if request.device else "nothing asks for an accelerator"
    if implied and options:
        *others, last = options
        implied = f"as {', '.join(others)} and {last} imply" if others else f"as {last} implies"
    return Condition("--device", device, f"device {device}", device.__eq__, implied, options)


def _platform(matrix: Matrix, request: Request) -> Condition:
    is_arm64 = request.gpu is not None and is_arm64_gpu(matrix, request.gpu)
    default = PLATFORMS[1] if is_arm64 else PLATFORMS[0]
    platform = default if request.platform is None else parse_platform(request.platform)
    implied = None
    if request.platform is None:
        implied = f"as --gpu {quote_argument(request.gpu or '')} implies" if is_arm64 else "the default"
    implied_by = ("--gpu",) if is_arm64 and platform == PLATFORMS[1] else ()
    return Condition("--platform", request.platform or platform, platform, platform.__eq__, implied, implied_by)


def _gpu(matrix: Matrix, name: str, capability: str) -> Condition:
    gpus = {f"rows[{number}]": row.gpu for number, row in enumerate(matrix.rows) if row.gpu}
    remark = None
    if parse_capability(capability) >= parse_capability(matrix.ptx.below):
        remark = f"{matrix.ptx.reason} ({matrix.ptx.issue}; matrix.yaml: ptx)"
    elif is_arm64_gpu(matrix, name):
        remark = f"a {name} has an Arm processor (matrix.yaml: arm64_gpus)"
    description = f"GPU {capability if name == capability else f'{name} ({capability})'}"
    accepts = cache(lambda row: find_execution_mode(matrix, gpus[row], capability) is not None)
    return Condition("--gpu", name, description, accepts, remark=remark)


def _driver(matrix: Matrix, text: str, capability: str | None) -> Condition:
    check_driver(matrix, text)
    version, description = parse_version(text), f"driver {text}"
    condition = Condition("--driver", text, description, lambda lowest: version >= parse_version(lowest))
    if capability is None:
        return condition
    support = matrix.gpu_drivers.get(capability, GpuDriver())
    below = support.below
    return _DriverOfGpu(
        option="--driver",
        text=text,
        description=description,
        accepts=lambda lowest: condition.accepts(lowest) and not (below and condition.accepts(below)),
        matrix=matrix,
        capability=capability,
        support=support,
        without_gpu=condition,
    )
