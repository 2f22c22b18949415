"""The image of a supplied wheel: facts from the wheel, missing ones from options, the rest from the nearest row."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.core.documents import InvalidDocument, validate
from tfimg.core.errors import (
    InvalidWheel,
    NotTensorFlowWheel,
    UnavailableCuda,
    UnavailableCudnn,
    UnavailableDevice,
    UnavailablePlatform,
    UsageError,
)
from tfimg.core.text import escape_unprintable
from tfimg.custom.facts import WheelFacts
from tfimg.custom.labels import ImageFacts, find_row, make_spec
from tfimg.matrix.schema import PLATFORMS, Device, Gpu, Matrix, Platform, Row, has_version_prefix
from tfimg.matrix.spec import ImageSpec, SuppliedWheel

PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws", "tensorflow-gpu", "tf-nightly")
"""Distributions that the suite knows to bring TensorFlow for CPUs or NVIDIA's GPUs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenFacts:
    """Facts that a user states, because the wheel may not; each must agree with the wheel."""

    python: str | None = None
    platform: str | None = None
    device: str | None = None
    cuda: str | None = None
    cudnn: str | None = None


def make_custom_spec(matrix: Matrix, facts: WheelFacts, given: GivenFacts, as_of: date) -> ImageSpec:
    """Return the image of a wheel, with a lock as of a day.

    Raises `UsageError` for a fact that neither wheel nor options state, or that they state differently;
    `ResolutionError` and `NotTensorFlowWheel` for a wheel that no image can have.
    """
    if facts.name not in PACKAGES:
        raise NotTensorFlowWheel(
            f"{facts.file.name} is the package {facts.name!r}, and images are validated with {', '.join(PACKAGES)}.",
            next_step="Build it under one of these names.",
        )
    platform = _find_platform(facts, given)
    python = _find_python(facts, given)
    _check_glibc(matrix, facts, python)
    device = _find_device(facts, given)
    if device == "gpu" and platform != PLATFORMS[0]:
        raise UnavailablePlatform(
            f"{facts.file.name} is for CUDA on {platform}, and images for GPUs are for {PLATFORMS[0]}.",
            next_step=f"Name a wheel for CPUs, or one for {PLATFORMS[0]}.",
        )
    row = matrix.rows[find_row(matrix, str(facts.version))]
    required = facts.requirements(python, platform)
    and_cuda = {
        name: specifier
        for name, specifier in facts.requirements(python, platform, extra="and-cuda").items()
        if name.startswith("nvidia-")
    }
    try:
        gpu = _make_gpu(matrix, facts, given, row, and_cuda) if device == "gpu" else None
        image = validate(
            ImageFacts,
            {
                "tensorflow": str(facts.version),
                "package": facts.name,
                "python": python,
                "platform": platform,
                "as_of": as_of,
                "numpy": str(required.get("numpy", "")) or row.numpy,
                "keras": str(required.get("keras", "")) or row.keras,
                "gpu": gpu,
                "libraries": _list_libraries(matrix, gpu, and_cuda) if gpu else {},
            },
        )
    except InvalidDocument as error:
        raise InvalidWheel(
            f"{facts.file.name} states what no image can have: {escape_unprintable(str(error))}.",
            next_step="Correct its METADATA or build_info.py where TensorFlow is built.",
        ) from None
    return make_spec(matrix, image, SuppliedWheel(file=facts.file, sha256=facts.sha256))


def _find_platform(facts: WheelFacts, given: GivenFacts) -> Platform:
    platform = _choose("platform", given.platform, facts.platforms, facts)
    known = next((name for name in PLATFORMS if name == platform), None)
    if known is None:
        raise UnavailablePlatform(
            f"{facts.file.name} is for {platform}, and images are for {' and '.join(PLATFORMS)}.",
            next_step="Name a wheel for one of these.",
        )
    return known


def _find_python(facts: WheelFacts, given: GivenFacts) -> str:
    """Return the Python of the tags. Raises `InvalidWheel` if the modules are compiled for another."""
    compiled = (facts.compiled_for,) if facts.compiled_for else ()
    python = _choose("python", given.python, facts.pythons or compiled, facts)
    if compiled and python not in compiled and not any(tag.abi == "abi3" for tag in facts.tags):
        raise InvalidWheel(
            f"{facts.file.name} is for Python {python} by its tags, and its modules were compiled for Python "
            f"{facts.compiled_for}: they do not import in another one.",
            next_step=f"Build the wheel with Python {python}; a renamed one stays what it was built for.",
        )
    return python


GLIBC_MINORS = {"bullseye": 31, "bookworm": 36, "trixie": 41}
"""Debian release → the minor of its glibc 2."""


def _check_glibc(matrix: Matrix, facts: WheelFacts, python: str) -> None:
    """Raise `UnavailablePlatform` for a wheel whose tags need a newer glibc than images have."""
    base = matrix.bases.get(python)
    minor = GLIBC_MINORS.get(base.codename or "") if base else None
    if base and minor and facts.glibc and facts.glibc > minor:
        raise UnavailablePlatform(
            f"{facts.file.name} needs glibc 2.{facts.glibc} by its tags, and images with Python {python} have glibc "
            f"2.{minor} of Debian {base.codename}: its libraries do not load there.",
            next_step="Build it where glibc is as old, for example in a manylinux container.",
        )


def _find_device(facts: WheelFacts, given: GivenFacts) -> Device:
    other = next((name for key, name in OTHER_BUILDS.items() if facts.build.get(key) is True), None)
    if other or given.device == "tpu":
        raise UnavailableDevice(
            f"{facts.file.name} is for {other or 'TPUs'}; images of supplied wheels are for CPUs or NVIDIA's GPUs.",
            next_step="Name a wheel for one of these.",
        )
    has_cuda = facts.build.get("is_cuda_build")
    if facts.name.startswith("tensorflow-cpu") or has_cuda is False:
        stated: tuple[str, ...] = ("cpu",)
    else:
        stated = ("gpu",) if has_cuda is True or facts.cuda else ()
    return "gpu" if _choose("device", given.device, stated, facts) == "gpu" else "cpu"


OTHER_BUILDS = {"is_rocm_build": "ROCm"}
"""Keys of build_info.py that state a build for what no image has."""


Required = Mapping[str, SpecifierSet]
"""What the extra and-cuda requires of NVIDIA's packages; nothing of wheels without the extra."""


def _make_gpu(matrix: Matrix, facts: WheelFacts, given: GivenFacts, row: Row, and_cuda: Required) -> Gpu:
    """Return what the wheel states of CUDA, and the toolkit that fits."""
    cuda = _choose("cuda", given.cuda, (facts.cuda,) if facts.cuda else (), facts)
    if not re.fullmatch(r"\d{1,2}\.\d{1,2}", cuda):
        raise UsageError(
            f"CUDA {cuda} does not name a minor version.", next_step="Name it with --cuda, for example --cuda 12.5."
        )
    cudnn = _choose("cudnn", given.cudnn, (facts.cudnn,) if facts.cudnn else (), facts)
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,4}){0,3}", cudnn):
        raise UsageError(
            f"cuDNN {cudnn!r} is not a version.", next_step="Name it with --cudnn, for example --cudnn 9.3."
        )
    major = cuda.partition(".")[0]
    known = sorted((name for name in matrix.toolkits if name.partition(".")[0] == major), key=Version)
    if not known:
        raise UnavailableCuda(
            f"{facts.file.name} is for CUDA {cuda}, and the matrix has toolkits of CUDA {', '.join(matrix.toolkits)}.",
            next_step="Add the toolkit to a matrix of your own.",
        )
    toolkit = next((name for name in known if Version(name) >= Version(cuda)), known[-1])
    chosen = {candidate.libraries.cudnn for candidate in _gpus(matrix) if candidate.libraries.toolkit == toolkit}
    library = _pin(and_cuda.get(f"nvidia-cudnn-cu{major}"), chosen, cudnn)
    if library is None:
        raise UnavailableCudnn(
            f"{facts.file.name} is for cuDNN {cudnn}, and neither its extra and-cuda nor the matrix has it for CUDA "
            f"{major}.",
            next_step="Name the version in the wheel's requirements, or add it to a matrix of your own.",
        )
    collectives = _pin(and_cuda.get(f"nvidia-nccl-cu{major}"), set(), "0")
    similar = [candidate for candidate in _gpus(matrix) if candidate.cuda == cuda] or [*_gpus(matrix)][-1:]
    return validate(
        Gpu,
        {
            "cuda": cuda,
            "cudnn": f">={cudnn},<{int(cudnn.partition('.')[0]) + 1}",
            "architectures": _list_architectures(facts) or similar[-1].architectures,
            "ptx_driver": similar[-1].ptx_driver,
            "libraries": {
                "toolkit": toolkit,
                "cudnn": library,
                "nccl": collectives or (row.gpu.libraries.nccl if row.gpu else None),
            },
        },
    )


def _list_libraries(matrix: Matrix, gpu: Gpu, and_cuda: Required) -> dict[str, str]:
    """Return NVIDIA's wheels: those of the toolkit, where the wheel's own requirements allow them."""
    wheels: dict[str, str] = dict(matrix.toolkits[gpu.libraries.toolkit].wheels)
    major = gpu.libraries.toolkit.partition(".")[0]
    wheels[f"nvidia-cudnn-cu{major}"] = gpu.libraries.cudnn
    if gpu.libraries.nccl:
        wheels[f"nvidia-nccl-cu{major}"] = gpu.libraries.nccl
    for name, specifier in and_cuda.items():
        known = wheels.get(name)
        if pinned := _pin(specifier, {known} if known else set(), "0"):
            wheels[name] = pinned
    return wheels


def _pin(required: SpecifierSet | None, known: Collection[str], floor: str) -> str | None:
    """Return a version: a known one that meets requirement and floor, else that which the requirement names."""
    major = floor.partition(".")[0]
    fits = [
        version
        for version in known
        if (required is None or required.contains(version))
        and (floor == "0" or (version.partition(".")[0] == major and Version(version) >= Version(floor)))
    ]
    if fits:
        return min(fits, key=Version)
    named = [part.version for part in required or () if part.operator in ("==", ">=") and "*" not in part.version]
    return max(named, key=Version, default=None)


def _list_architectures(facts: WheelFacts) -> tuple[str, ...]:
    """Return the architectures that build_info.py states."""
    listed = facts.build.get("cuda_compute_capabilities")
    names = listed if isinstance(listed, list) else []
    return tuple(name.removesuffix("a") for name in names if re.fullmatch(r"(sm|compute)_\d{2,3}a?", name))


def _gpus(matrix: Matrix) -> list[Gpu]:
    return [row.gpu for row in matrix.rows if row.gpu]


OPTIONS: Mapping[str, str] = {
    "python": "Python",
    "platform": "platform",
    "device": "device",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
}
"""Option that states a fact → the fact in words."""


def _choose(option: str, given: str | None, stated: tuple[str, ...], facts: WheelFacts) -> str:
    """Return the value of a fact: the one that the wheel states, or of several the given one."""
    what, file = OPTIONS[option], facts.file.name
    if given is None and len(stated) == 1:
        return stated[0]
    if given is None:
        several = f"is for {what} {' and '.join(stated)}" if stated else f"does not state its {what}"
        raise UsageError(f"{file} {several}.", next_step=f"Name it with --{option}.")
    fits = [value for value in stated if has_version_prefix(given, value) or has_version_prefix(value, given)]
    if stated and not fits:
        raise UsageError(
            f"--{option} {given} contradicts {file}, which states {what} {' and '.join(stated)}.",
            next_step=f"Leave --{option} out: the wheel decides.",
        )
    return max([given, *fits], key=len)
