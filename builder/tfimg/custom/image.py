"""The image of a supplied wheel: facts from the wheel, missing ones from options, the rest from the nearest row."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
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
from tfimg.custom.cuda_checks import and_cuda
from tfimg.custom.facts import PLATFORM_OF, WheelFacts
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
    device = _find_device(facts, given)
    if device == "gpu" and platform != PLATFORMS[0]:
        raise UnavailablePlatform(
            f"{facts.file.name} is for CUDA on {platform}, and images for GPUs are for {PLATFORMS[0]}.",
            next_step=f"Name a wheel for CPUs, or one for {PLATFORMS[0]}.",
        )
    row = matrix.rows[find_row(matrix, str(facts.version))]
    try:
        gpu = _make_gpu(matrix, facts, given, row) if device == "gpu" else None
        image = validate(
            ImageFacts,
            {
                "tensorflow": str(facts.version),
                "package": facts.name,
                "python": python,
                "platform": platform,
                "as_of": as_of,
                "numpy": _requirement(facts, python, platform, "numpy") or row.numpy,
                "keras": _requirement(facts, python, platform, "keras") or row.keras,
                "gpu": gpu,
                "libraries": _list_libraries(matrix, facts, gpu) if gpu else {},
            },
        )
    except InvalidDocument as error:
        raise InvalidWheel(
            f"{facts.file.name} states what no image can have: {escape_unprintable(str(error))}.",
            next_step="Correct its METADATA or build_info.py where TensorFlow is built.",
        ) from None
    return make_spec(matrix, image, SuppliedWheel(file=facts.file, sha256=facts.sha256))


def _find_platform(facts: WheelFacts, given: GivenFacts) -> Platform:
    stated = facts.platforms or tuple(sorted({PLATFORM_OF.get(name, name) for name in facts.processors.values()}))
    platform = _choose("platform", given.platform, stated, facts)
    known = next((name for name in PLATFORMS if name == platform), None)
    if known is None:
        raise UnavailablePlatform(
            f"{facts.file.name} is for {platform}, and images are for {' and '.join(PLATFORMS)}.",
            next_step="Name a wheel for one of these.",
        )
    return known


def _find_python(facts: WheelFacts, given: GivenFacts) -> str:
    compiled = {python for library in facts.libraries for python in library.pythons}
    return _choose("python", given.python, facts.pythons or tuple(sorted(compiled, key=Version)), facts)


def _find_device(facts: WheelFacts, given: GivenFacts) -> Device:
    other = next((name for key, name in OTHER_BUILDS.items() if (facts.build or {}).get(key) is True), None)
    if other or given.device == "tpu":
        raise UnavailableDevice(
            f"{facts.file.name} is for {other or 'TPUs'}; images of supplied wheels are for CPUs or NVIDIA's GPUs.",
            next_step="Name a wheel for one of these.",
        )
    has_cuda = facts.claims_cuda if facts.claims_cuda is not None else facts.has_cuda_code
    return "gpu" if _choose("device", given.device, ("gpu" if has_cuda else "cpu",), facts) == "gpu" else "cpu"


OTHER_BUILDS = {"is_rocm_build": "ROCm"}
"""Keys of build_info.py that state a build for what no image has."""


def _make_gpu(matrix: Matrix, facts: WheelFacts, given: GivenFacts, row: Row) -> Gpu:
    """Return what the wheel states of CUDA, and the toolkit that fits."""
    cuda = _choose("cuda", given.cuda, _most_exact(facts, "cuda"), facts)
    if not re.fullmatch(r"\d{1,2}\.\d{1,2}", cuda):
        raise UsageError(
            f"CUDA {cuda} does not name a minor version.", next_step="Name it with --cuda, for example --cuda 12.5."
        )
    cudnn = _choose("cudnn", given.cudnn, _most_exact(facts, "cudnn"), facts)
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
    required = and_cuda(facts)
    library = _pin(required.get(f"nvidia-cudnn-cu{major}"), chosen, cudnn)
    if library is None:
        raise UnavailableCudnn(
            f"{facts.file.name} is for cuDNN {cudnn}, and neither its extra and-cuda nor the matrix has it for CUDA "
            f"{major}.",
            next_step="Name the version in the wheel's requirements, or add it to a matrix of your own.",
        )
    collectives = _pin(required.get(f"nvidia-nccl-cu{major}"), set(), "0")
    similar = [candidate for candidate in _gpus(matrix) if candidate.cuda == cuda] or [*_gpus(matrix)][-1:]
    return validate(
        Gpu,
        {
            "cuda": cuda,
            "cudnn": f">={cudnn},<{int(cudnn.partition('.')[0]) + 1}",
            "architectures": _list_architectures(facts),
            "ptx_driver": similar[-1].ptx_driver,
            "libraries": {
                "toolkit": toolkit,
                "cudnn": library,
                "nccl": collectives or (row.gpu.libraries.nccl if row.gpu else None),
            },
        },
    )


def _list_libraries(matrix: Matrix, facts: WheelFacts, gpu: Gpu) -> dict[str, str]:
    """Return NVIDIA's wheels: those of the toolkit, where the wheel's own requirements allow them."""
    required = and_cuda(facts)
    wheels: dict[str, str] = dict(matrix.toolkits[gpu.libraries.toolkit].wheels)
    major = gpu.libraries.toolkit.partition(".")[0]
    wheels[f"nvidia-cudnn-cu{major}"] = gpu.libraries.cudnn
    if gpu.libraries.nccl:
        wheels[f"nvidia-nccl-cu{major}"] = gpu.libraries.nccl
    for name, specifier in required.items():
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
    """Return the architectures that build_info.py states, else those of the code."""
    listed = (facts.build or {}).get("cuda_compute_capabilities")
    if isinstance(listed, list) and listed:
        return tuple(name.removesuffix("a") for name in listed if re.fullmatch(r"(sm|compute)_\d{2,3}a?", name))
    codes = [library.elf.code for library in facts.libraries]
    ptx = {number for code in codes for number in code.ptx}
    every = sorted(ptx | {number for code in codes for number in code.machine_code})
    return tuple(f"{'compute' if number in ptx else 'sm'}_{number}" for number in every)


def _gpus(matrix: Matrix) -> list[Gpu]:
    return [row.gpu for row in matrix.rows if row.gpu]


def _most_exact(facts: WheelFacts, fact: str) -> tuple[str, ...]:
    """Return the value with the most numbers; the others do not contradict it."""
    return tuple(sorted(facts.statements.get(fact, {}).values(), key=lambda value: -value.count("."))[:1])


def _requirement(facts: WheelFacts, python: str, platform: Platform, name: str) -> str:
    """Return the range of a package that the wheel requires; empty if it requires none."""
    found = SpecifierSet()
    for requirement in facts.requirements(python, platform):
        if canonicalize_name(requirement.name) == name:
            found &= requirement.specifier
    return str(found)


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
