"""What each row of the matrix supports, and how much of it is proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from itertools import product

from packaging.version import Version
from pydantic import BaseModel

from tfimg.core.levels import LEVELS, Level
from tfimg.matrix.gpus import ExecutionMode, find_execution_mode, parse_capability
from tfimg.matrix.schema import DEVICES, PLATFORMS, Constraint, Device, Gpu, Matrix, Platform, Row
from tfimg.matrix.spec import ImageSpec, list_libraries
from tfimg.recipe.describe import DECLARED, Status
from tfimg.recipe.labels import BASE_KINDS, BaseKind


class PlatformSupport(BaseModel, frozen=True):
    """A platform of a row; `missing` are the releases without it, and why."""

    pythons: tuple[str, ...] = ()
    packages: dict[Device, str] = {}
    missing: dict[str, str]


class GpuSupport(BaseModel, frozen=True):
    """What a row's GPU images are built against, carry and run on.

    `cudnn` is the range that the wheel accepts; `toolkit`, `cudnn_wheel` and `nccl_wheel` are the versions in the
    images. `code` and `ptx` are compute capabilities (`sm_80`, `compute_80`); `driver_floor` is the lowest Linux
    driver, `ptx_driver` the lowest that compiles the PTX; `gpus` says how the wheel runs on each compute capability of
    the matrix, None for not at all.
    """

    cuda: str
    cudnn: str
    toolkit: str
    cudnn_wheel: str
    nccl_wheel: str | None
    libraries: dict[str, str]
    code: tuple[str, ...]
    ptx: tuple[str, ...]
    driver_floor: str
    ptx_driver: str
    gpus: dict[str, ExecutionMode | None]


class TpuSupport(BaseModel, frozen=True):
    """The libtpu of a release; `unavailable` is why the package index lacks the pair."""

    tensorflow: str
    libtpu: str
    unavailable: str | None


class ProvenLevels(BaseModel, frozen=True):
    """Number of a row's images for a device and platform by level, highest first.

    `date`, `gpu` and `driver` are those of the newest proof above `declared`. Of those `linked`, `emulated` ran on an
    emulator. The wheels of `bare` images were proven on a bare machine. `bases` are the Pythons that are proven on each
    kind of base.
    """

    device: Device
    platform: Platform
    images: int
    levels: dict[Level, int]
    date: str | None
    gpu: str | None
    driver: str | None
    emulated: int
    bare: int
    bases: dict[BaseKind, tuple[str, ...]] = {}


class Support(BaseModel, frozen=True):
    """What a row supports; `row` is its position, `first` and `last` release days."""

    row: int
    releases: tuple[str, ...]
    first: date
    last: date
    default_python: str
    platforms: dict[Platform, PlatformSupport]
    blocked: dict[str, str]
    numpy: str
    keras: str
    gpu: GpuSupport | None
    tpu: tuple[TpuSupport, ...]
    constraints: tuple[Constraint, ...]
    newer: dict[str, str]
    proven: tuple[ProvenLevels, ...]


def summarize_support(
    matrix: Matrix, specs: Sequence[ImageSpec], statuses: Mapping[str, Status]
) -> tuple[Support, ...]:
    """Return what each row supports; `statuses` are by identifier."""
    return tuple(
        Support(
            row=number,
            releases=tuple(release.version for release in row.tensorflow),
            first=min(release.released for release in row.tensorflow),
            last=max(release.released for release in row.tensorflow),
            default_python=row.default_python,
            platforms={platform: _platform_support(row, platform) for platform in PLATFORMS},
            blocked=row.blocked,
            numpy=row.numpy,
            keras=row.keras,
            gpu=_gpu_support(matrix, row.gpu) if row.gpu else None,
            tpu=tuple(
                TpuSupport(tensorflow=release.version, **release.tpu.model_dump())
                for release in row.tensorflow
                if release.tpu
            ),
            constraints=tuple(matrix.constraints[name] for name in row.constraints),
            newer=row.newer,
            proven=tuple(_count_levels([spec for spec in specs if spec.row == number], statuses)),
        )
        for number, row in enumerate(matrix.rows)
    )


def format_capability(architecture: str) -> str:
    """Return a compute capability as NVIDIA writes it: `sm_75` → 7.5."""
    return "{}.{}".format(*parse_capability(architecture))


def _platform_support(row: Row, platform: Platform) -> PlatformSupport:
    missing = {release.version: release.missing[platform] for release in row.tensorflow if platform in release.missing}
    wheels = row.wheels.get(platform)
    if wheels is None:
        return PlatformSupport(missing=missing)
    pythons = tuple(python for python in wheels.pythons if python not in row.blocked)
    return PlatformSupport(pythons=pythons, packages=wheels.packages, missing=missing)


def _gpu_support(matrix: Matrix, gpu: Gpu) -> GpuSupport:
    return GpuSupport(
        cuda=gpu.cuda,
        cudnn=gpu.cudnn,
        toolkit=gpu.libraries.toolkit,
        cudnn_wheel=gpu.libraries.cudnn,
        nccl_wheel=gpu.libraries.nccl,
        libraries=dict(list_libraries(matrix, gpu)),
        code=tuple(name.replace("compute_", "sm_") for name in gpu.architectures),
        ptx=tuple(name for name in gpu.architectures if name.startswith("compute_")),
        driver_floor=matrix.toolkits[gpu.libraries.toolkit].driver,
        ptx_driver=gpu.ptx_driver,
        gpus={sm: find_execution_mode(matrix, gpu, sm) for sm in matrix.gpus},
    )


def _count_levels(specs: Sequence[ImageSpec], statuses: Mapping[str, Status]) -> Iterator[ProvenLevels]:
    for platform, device in product(PLATFORMS, DEVICES):
        of_platform = [spec for spec in specs if (spec.platform, spec.device) == (platform, device)]
        found = [statuses.get(spec.identifier, DECLARED) for spec in of_platform]
        if not found:
            continue
        counts = Counter(status.level for status in found)
        proven = [status for status in found if status.level != "declared"]
        newest = max(proven, key=lambda status: status.date or "", default=DECLARED)
        yield ProvenLevels(
            device=device,
            platform=platform,
            images=len(found),
            levels={level: counts[level] for level in reversed(LEVELS) if counts[level]},
            date=newest.date,
            gpu=newest.gpu,
            driver=newest.driver,
            emulated=sum(status.emulated and status.level == "linked" for status in proven),
            bare=sum(bool(status.bare_machines) for status in found),
            bases=_list_bases(of_platform, statuses),
        )


def _list_bases(specs: Sequence[ImageSpec], statuses: Mapping[str, Status]) -> dict[BaseKind, tuple[str, ...]]:
    """Return the Pythons of images that are proven on each kind of base, oldest first."""
    found: dict[BaseKind, set[str]] = {kind: set() for kind in BASE_KINDS}
    for spec in specs:
        status = statuses.get(spec.identifier, DECLARED)
        if status.base_kind and status.level != "declared":
            found[status.base_kind].add(spec.python)
    return {kind: tuple(sorted(pythons, key=Version)) for kind, pythons in found.items() if pythons}
