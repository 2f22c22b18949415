"""ImageSpec: one image that the matrix offers, and its identifier."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Literal

from packaging.version import Version

from tfimg.matrix.schema import Base, Constraint, Gpu, Matrix, Release, Row

Device = Literal["cpu", "gpu", "tpu"]
DEVICES: tuple[Device, ...] = ("cpu", "gpu", "tpu")

PACKAGES: dict[Device, str] = {"cpu": "tensorflow-cpu", "gpu": "tensorflow", "tpu": "tensorflow-tpu"}
"""The distribution that carries TensorFlow for each device."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageSpec:
    """One image: everything that is decided before anything is downloaded.

    `identifier` is its one name everywhere: key, glob target, folder, log line, canonical tag, CI job.
    """

    identifier: str
    tensorflow: str
    python: str
    device: Device
    default_python: bool
    released: date
    cutoff: date
    base: Base
    gpu: Gpu | None
    libtpu: str | None
    constraints: tuple[Constraint, ...]

    @property
    def package(self) -> str:
        """Distribution that carries TensorFlow, e.g. `tensorflow-cpu`."""
        return PACKAGES[self.device]

    @property
    def minor(self) -> str:
        """TensorFlow minor, e.g. `2.15`."""
        return ".".join(map(str, Version(self.tensorflow).release[:2]))


def expand(matrix: Matrix) -> tuple[ImageSpec, ...]:
    """Every image of the matrix: oldest release first, then CPU, GPU, TPU, then by Python."""
    specs = (
        _spec(matrix, row, release, device, python)
        for row in matrix.rows
        for release in row.tensorflow
        for device in DEVICES
        if _has(row, release, device)
        for python in row.pythons
    )
    return tuple(sorted(specs, key=_order))


def _has(row: Row, release: Release, device: Device) -> bool:
    return {"cpu": True, "gpu": row.gpu is not None, "tpu": release.libtpu is not None}[device]


def _order(spec: ImageSpec) -> tuple[Version, int, Version]:
    return Version(spec.tensorflow), DEVICES.index(spec.device), Version(spec.python)


def _spec(matrix: Matrix, row: Row, release: Release, device: Device, python: str) -> ImageSpec:
    gpu = row.gpu if device == "gpu" else None
    variant = f"cuda{gpu.cuda}" if gpu else device
    return ImageSpec(
        identifier=f"{release.version}-{variant}-py{python}",
        tensorflow=release.version,
        python=python,
        device=device,
        default_python=python == row.default_python,
        released=release.released,
        cutoff=release.cutoff,
        base=matrix.bases[python],
        gpu=gpu,
        libtpu=release.libtpu if device == "tpu" else None,
        constraints=row.constraints,
    )
