"""Matrix, images and their status → what each row of the matrix supports: as values, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from tfimg.core.errors import UnsupportedPlatform
from tfimg.core.levels import LEVELS, Level
from tfimg.matrix.gpus import Means, capability, runs
from tfimg.matrix.schema import DEVICES, PLATFORMS, Constraint, Device, Gpu, Matrix, Platform, Row
from tfimg.matrix.spec import ImageSpec, libraries
from tfimg.recipe.describe import DECLARED, Status, describe_image, require_buildable


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformSupport:
    """A platform of a row: Pythons that have an image, packages by device, releases that lack it and why."""

    platform: Platform
    pythons: tuple[str, ...]
    packages: tuple[tuple[Device, str], ...]
    missing: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuSupport:
    """What a row's GPU images are built against, carry and run on.

    `cudnn` is the range that the wheel accepts; `toolkit`, `cudnn_wheel` and `nccl_wheel` what the images carry, as
    `libraries` by wheel. `code` and `ptx` are compute capabilities (`sm_80`, `compute_80`); `driver_floor` is the
    lowest Linux driver, `ptx_driver` the lowest that compiles the PTX; `gpus` says for each compute capability that
    the matrix names how it runs, None for not at all.
    """

    cuda: str
    cudnn: str
    toolkit: str
    cudnn_wheel: str
    nccl_wheel: str | None
    libraries: tuple[tuple[str, str], ...]
    code: tuple[str, ...]
    ptx: tuple[str, ...]
    driver_floor: str
    ptx_driver: str
    gpus: tuple[tuple[str, Means | None], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TpuSupport:
    """The libtpu of a release, and why the pair cannot be had; None: it can."""

    tensorflow: str
    libtpu: str
    unavailable: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ProvenLevels:
    """How many of a row's images for a device and platform are at which level, highest first.

    `date` is the newest day that something above `declared` was proven; `gpu` and `driver` are of that day. The wheels
    of `bare` images were proven on a bare machine, whatever the images' level.
    """

    device: Device
    platform: Platform
    images: int
    levels: tuple[tuple[Level, int], ...]
    date: str | None
    gpu: str | None
    driver: str | None
    bare: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Support:
    """What a row of the matrix supports; `row` is its position, `first` and `last` are days of release."""

    row: int
    releases: tuple[str, ...]
    first: date
    last: date
    default_python: str
    platforms: tuple[PlatformSupport, ...]
    blocked: tuple[tuple[str, str], ...]
    numpy: str
    keras: str
    gpu: GpuSupport | None
    tpu: tuple[TpuSupport, ...]
    constraints: tuple[Constraint, ...]
    newer: tuple[tuple[str, str], ...]
    proven: tuple[ProvenLevels, ...]


def summarize_support(
    matrix: Matrix, specs: Iterable[ImageSpec], statuses: Mapping[str, Status]
) -> tuple[Support, ...]:
    """What each row supports, in the matrix's order; `statuses` are by identifier, and one without is declared."""
    of_row: dict[int, list[ImageSpec]] = {number: [] for number in range(len(matrix.rows))}
    for spec in specs:
        of_row[spec.row].append(spec)
    return tuple(_support(matrix, number, row, of_row[number], statuses) for number, row in enumerate(matrix.rows))


def _support(
    matrix: Matrix, number: int, row: Row, specs: Sequence[ImageSpec], statuses: Mapping[str, Status]
) -> Support:
    released = [release.released for release in row.tensorflow]
    return Support(
        row=number,
        releases=tuple(release.version for release in row.tensorflow),
        first=min(released),
        last=max(released),
        default_python=row.default_python,
        platforms=tuple(_platform(row, platform) for platform in PLATFORMS),
        blocked=tuple(row.blocked.items()),
        numpy=row.numpy,
        keras=row.keras,
        gpu=_gpu(matrix, row.gpu) if row.gpu else None,
        tpu=tuple(
            TpuSupport(tensorflow=release.version, libtpu=release.tpu.libtpu, unavailable=release.tpu.unavailable)
            for release in row.tensorflow
            if release.tpu
        ),
        constraints=tuple(matrix.constraints[name] for name in row.constraints),
        newer=tuple(row.newer.items()),
        proven=tuple(_proven(specs, statuses)),
    )


def _platform(row: Row, platform: Platform) -> PlatformSupport:
    wheels = row.wheels.get(platform)
    return PlatformSupport(
        platform=platform,
        pythons=tuple(python for python in wheels.pythons if python not in row.blocked) if wheels else (),
        packages=tuple(wheels.packages.items()) if wheels else (),
        missing=tuple(
            (release.version, release.missing[platform]) for release in row.tensorflow if platform in release.missing
        ),
    )


def _gpu(matrix: Matrix, gpu: Gpu) -> GpuSupport:
    toolkit = matrix.toolkits[gpu.libraries.toolkit]
    return GpuSupport(
        cuda=gpu.cuda,
        cudnn=gpu.cudnn,
        toolkit=gpu.libraries.toolkit,
        cudnn_wheel=gpu.libraries.cudnn,
        nccl_wheel=gpu.libraries.nccl,
        libraries=libraries(matrix, gpu),
        code=tuple(name.replace("compute_", "sm_") for name in gpu.architectures),
        ptx=tuple(name for name in gpu.architectures if name.startswith("compute_")),
        driver_floor=toolkit.driver,
        ptx_driver=gpu.ptx_driver,
        gpus=tuple((sm, runs(matrix, gpu, sm)) for sm in matrix.gpus),
    )


def format_capability(architecture: str) -> str:
    """A compute capability as NVIDIA writes it: 7.5 for `sm_75` or `compute_75`."""
    return "{}.{}".format(*capability(architecture))


def _proven(specs: Sequence[ImageSpec], statuses: Mapping[str, Status]) -> Iterator[ProvenLevels]:
    for platform in PLATFORMS:
        for device in DEVICES:
            found = [
                statuses.get(spec.identifier, DECLARED)
                for spec in specs
                if (spec.device, spec.platform) == (device, platform)
            ]
            if found:
                yield _summary(device, platform, found)


def _summary(device: Device, platform: Platform, found: Sequence[Status]) -> ProvenLevels:
    counts = ((level, sum(one.level == level for one in found)) for level in reversed(LEVELS))
    newest = max((one for one in found if one.level != "declared"), key=lambda one: one.date or "", default=DECLARED)
    return ProvenLevels(
        device=device,
        platform=platform,
        images=len(found),
        levels=tuple((level, count) for level, count in counts if count),
        date=newest.date,
        gpu=newest.gpu,
        driver=newest.driver,
        bare=sum(bool(one.bare_machines) for one in found),
    )


# As JSON


def describe_support(support: Support) -> dict[str, Any]:
    """A row as the JSON object that `tfimg matrix --json` prints."""
    return {
        **asdict(support),
        "first": support.first.isoformat(),
        "last": support.last.isoformat(),
        "platforms": {
            one.platform: {
                "pythons": list(one.pythons),
                "packages": dict(one.packages),
                "missing": dict(one.missing),
            }
            for one in support.platforms
        },
        "blocked": dict(support.blocked),
        "gpu": _gpu_document(support.gpu) if support.gpu else None,
        "constraints": [constraint.model_dump() for constraint in support.constraints],
        "newer": dict(support.newer),
        "proven": [{**asdict(one), "levels": dict(one.levels)} for one in support.proven],
    }


def describe_matrix_image(spec: ImageSpec, *, repository: str, status: Status) -> dict[str, Any]:
    """An image as `tfimg matrix --json` prints it: its row, what `resolve` prints, and the command that builds it.

    `build` is null for an image that this version cannot build.
    """
    described = describe_image(spec, repository=repository, status=status)
    return {"row": spec.row, **described, "build": _build_command(spec)}


def _build_command(spec: ImageSpec) -> str | None:
    try:
        require_buildable(spec)
    except UnsupportedPlatform:
        return None
    return f"tfimg build {format_request(spec)}"


def format_request(spec: ImageSpec) -> str:
    """The options that ask for an image and no other."""
    device = "" if spec.device == DEVICES[0] else f" --device {spec.device}"
    platform = "" if spec.platform == PLATFORMS[0] else f" --platform {spec.platform}"
    return f"--tf {spec.tensorflow} --python {spec.python}{device}{platform}"


def _gpu_document(gpu: GpuSupport) -> dict[str, Any]:
    return {**asdict(gpu), "libraries": dict(gpu.libraries), "gpus": dict(gpu.gpus)}
