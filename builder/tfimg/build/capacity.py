"""What an image will need of an engine's machine, and whether there is room for it now: values in, decision out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tfimg.engine.disk_space import required_disk_bytes
from tfimg.engine.protocol import LocalImage, Resources
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import LABEL_PREFIX

Decision = Literal["start", "wait", "prune", "refuse"]

GROWTH: dict[Device, float] = {"cpu": 3.5, "gpu": 2.4, "tpu": 3.5}
"""Bytes that a cold build adds to the disk, per byte of the image as it is stored in the end: stages, their copies and
caches besides the image itself. 5.9 GB for 1.7 GB of 2.15.1 on CPU, 16 GB for 6.9 GB with CUDA 12.2."""

PACKED_GROWTH: dict[Device, float] = {"cpu": 2.1, "gpu": 1.6, "tpu": 2.1}
"""The same of a build that is handed its layers: 3.6 GB for 1.7 GB of 2.15.1 on CPU, 10.3 GB for 6.5 GB with CUDA;
TPU as CPU, not measured."""

MEMORY_BYTES = 2_000_000_000
"""Memory that one image is given while it is made. The standard profile took 1.1 GB at most in 2.15.1 on CPU (its
cgroup's max_usage); later releases, GPUs and the full profile take more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What making an image is expected to take at most."""

    disk_bytes: int
    memory_bytes: int = MEMORY_BYTES


def predict(spec: ImageSpec, images: Iterable[LocalImage], *, packed: bool) -> Need:
    """What an image will need: by the largest image of its release and device that an engine has, else by device.

    `packed`: whichever engine makes it is handed its layers.
    """
    own = {f"{LABEL_PREFIX}tensorflow": spec.tensorflow, f"{LABEL_PREFIX}device": spec.device}
    sizes = [
        image.unpacked_bytes + (image.compressed_bytes or 0)
        for image in images
        if own.items() <= dict(image.labels).items()
    ]
    # An engine that tells nothing of a size must not make a build look small.
    growth = (PACKED_GROWTH if packed else GROWTH)[spec.device]
    known = round(growth * max(sizes, default=0))
    return Need(disk_bytes=known or required_disk_bytes(spec.device, packed=packed))


def decide(need: Need, at: Resources, running: Sequence[Need], *, jobs: int | None, pruned: bool) -> Decision:
    """Whether a job starts, waits until another ends, or has to be refused; `prune` asks for room to be made first.

    What is free, less what running jobs have reserved, must hold what the job needs. `jobs` takes the place of the
    bounds by processors and memory; what is on the disk binds always. A job that runs alone is bound by the disk only:
    a machine that is small for it is slow, and one that is full fails it.
    """
    reserved = sum(one.disk_bytes for one in running)
    fits = at.disk_bytes is None or reserved + need.disk_bytes <= at.disk_bytes
    if not running:
        return "start" if fits else "refuse" if pruned else "prune"
    if jobs is not None:
        free = len(running) < jobs
    else:
        memory = sum(one.memory_bytes for one in running)
        free = len(running) < at.cpus and memory + need.memory_bytes <= at.memory_bytes
    return "start" if free and fits else "wait"
