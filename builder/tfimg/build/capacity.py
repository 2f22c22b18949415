"""Predict the disk space and memory of a build, and decide whether it can start now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from tfimg.engine.disk_space import required_disk_bytes
from tfimg.engine.protocol import LocalImage, Resources
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import LABEL_PREFIX

Action = Literal["start", "wait", "prune", "refuse"]

GROWTH: dict[Device, float] = {"cpu": 3.5, "gpu": 2.4, "tpu": 3.5}
"""Bytes that a build without cache adds to the disk, per byte of the stored image: stages, their copies and caches
beside the image. 5.9 GB for 1.7 GB of 2.15.1 on CPU, 16 GB for 6.9 GB with CUDA 12.2."""

PACKED_GROWTH: dict[Device, float] = {"cpu": 2.1, "gpu": 1.6, "tpu": 2.1}
"""The same for a build that is given its layers: 3.6 GB for 1.7 GB of 2.15.1 on CPU, 10.3 GB for 6.5 GB with CUDA;
TPU as CPU, not measured."""

MEMORY_BYTES = 2_000_000_000
"""Memory that is reserved for the build of one image. The standard profile took 1.1 GB at most in 2.15.1 on CPU (its
cgroup's max_usage); later releases, GPUs and the full profile take more."""


def predict_disk_bytes(spec: ImageSpec, images: Iterable[LocalImage], *, packed: bool) -> int:
    """Return the disk space of a build, by the largest known image of its release and device, else by its device.

    `packed`: all engines are given their layers.
    """
    expected = {f"{LABEL_PREFIX}tensorflow": spec.tensorflow, f"{LABEL_PREFIX}device": spec.device}
    sizes = [
        image.unpacked_bytes + (image.compressed_bytes or 0)
        for image in images
        if expected.items() <= image.labels.items()
    ]
    growth = (PACKED_GROWTH if packed else GROWTH)[spec.device]
    # 0 where engines report no sizes
    return round(growth * max(sizes, default=0)) or required_disk_bytes(spec.device, packed=packed)


def choose_action(
    disk_bytes: int, free: Resources, running: Sequence[int], *, jobs: int | None, pruned: bool
) -> Action:
    """Decide whether a build starts, waits for another to end, needs disk space to be freed first, or must fail.

    Free disk space less the reservations of `running` builds must hold `disk_bytes`. `jobs` replaces the bounds by
    processors and memory. A build that runs alone is bound by the disk only: on a small machine it is merely slow.
    """
    fits = free.disk_bytes is None or sum(running) + disk_bytes <= free.disk_bytes
    if not running:
        return "start" if fits else "refuse" if pruned else "prune"
    slots = min(free.cpus, free.memory_bytes // MEMORY_BYTES) if jobs is None else jobs
    return "start" if fits and len(running) < slots else "wait"
