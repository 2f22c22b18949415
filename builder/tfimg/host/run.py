"""Host + ImageSpec + what was asked → the `docker run` that is right for the image's device, and what it lacks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tfimg.core.errors import NoContainerToolkit, TfimgError, UsageError, WrongDevice
from tfimg.engine.protocol import DeviceAccess
from tfimg.host.accelerators import (
    ALL_GPUS,
    check_gpu,
    check_tpu,
    choose_gpu_access,
    find_sibling,
    gpu_options,
)
from tfimg.host.survey import TargetHost
from tfimg.matrix.schema import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DEVICE_NAMES

GPU_LIMITS = ("--ulimit", "memlock=-1")
GPU_SHM = "1g"
"""NCCL moves data between processes and GPUs through shared and pinned memory, of which a container has little (64 MB
of the first). These are the figures of its guide (NCCL user guide, Troubleshooting, Shared memory)."""

NO_GPU = ("--env", "NVIDIA_VISIBLE_DEVICES=void")
"""The images ask for every GPU, and get them unasked where NVIDIA's runtime is the engine's default; `void` makes it
do as if it were not there (NVIDIA Container Toolkit, Specialized configurations)."""

TPU_ACCESS = ("--privileged", "--network", "host")
"""As Google runs containers on TPU VMs (docs.cloud.google.com/tpu/docs/run-in-container)."""

TPU_SHM = "16g"
"""What PyTorch/XLA's README asks for on TPU VMs; Google's page names no figure. Like the one above, a bound: it
reserves nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """What was asked of a run. `options` are further ones of `docker run`, passed on as they are."""

    gpus: str | None = None
    no_gpu: bool = False
    shm_size: str | None = None
    options: tuple[str, ...] = ()
    interactive: bool = True
    terminal: bool = False
    program: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """A `docker run`; `missing` is why it would fail on this machine, first things first."""

    argv: tuple[str, ...]
    device: Device
    notes: tuple[str, ...] = ()
    missing: tuple[TfimgError, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Access:
    """How a container gets at its device, and what was found out on the way."""

    flags: tuple[str, ...] = ()
    shm: str | None = None
    notes: tuple[str, ...] = ()
    missing: tuple[TfimgError, ...] = ()


def plan_run(image: str, spec: ImageSpec, wishes: RunOptions, target_host: TargetHost) -> RunPlan:
    """The run of an image. Raises `WrongDevice` when GPUs are asked of an image that has no use for them."""
    asked = _asked(wishes.gpus)
    if wishes.gpus is not None and spec.device != "gpu":
        raise _wrong(spec, target_host.specs)
    device: Device = "cpu" if wishes.no_gpu and spec.device == "gpu" else spec.device
    if device == "gpu":
        access = _gpu(spec, asked, target_host)
    elif device == "tpu":
        access = _tpu(spec, wishes, target_host)
    else:
        access = _without_gpu(spec, target_host.specs) if wishes.no_gpu else _Access()
    return RunPlan(
        argv=_argv(image, access, wishes),
        device=device,
        notes=(*_emulation(image, spec, target_host), *access.notes),
        missing=access.missing,
    )


def _asked(gpus: str | None) -> tuple[str, ...]:
    if gpus is None or gpus == "all":
        return ALL_GPUS
    asked = tuple(gpus.split(","))
    if not all(re.fullmatch(r"[0-9]+(:[0-9]+)?|(GPU|MIG)-[\w/-]+", one) for one in asked):
        raise UsageError(
            f"--gpus {gpus!r} does not name GPUs.",
            next_step="Write all, or their numbers or identities as `nvidia-smi -L` lists them (0,1), or "
            "GPU:DEVICE for a MIG device (0:0).",
        )
    return asked


def _wrong(spec: ImageSpec, specs: Sequence[ImageSpec]) -> WrongDevice:
    other = find_sibling(specs, spec, "gpu")
    return WrongDevice(
        f"{spec.identifier} is for a {DEVICE_NAMES[spec.device]} and holds nothing that uses an NVIDIA GPU, which "
        "--gpus asks for.",
        next_step=(
            f"Take {other}, the same release for GPUs; or leave --gpus out."
            if other
            else f"This release has no image for GPUs (`tfimg list '{spec.minor}*'`); leave --gpus out."
        ),
    )


def _emulation(image: str, spec: ImageSpec, target_host: TargetHost) -> tuple[str, ...]:
    if not target_host.toolkit.local or target_host.host.platform == spec.platform:
        return ()
    machine = target_host.host.platform
    return (f"{image} is for {spec.platform} and this machine is {machine}: it needs an emulator, and is slow.",)


def _without_gpu(spec: ImageSpec, specs: Sequence[ImageSpec]) -> _Access:
    if spec.device != "gpu":
        return _Access(notes=(f"--no-gpu changes nothing: {spec.identifier} uses no GPU.",))
    other = find_sibling(specs, spec, "cpu")
    smaller = f", as {other} does in less space" if other else ""
    note = f"No GPU is used, as asked: everything is computed on the processor{smaller}."
    return _Access(flags=NO_GPU, notes=(note,))


def _gpu(spec: ImageSpec, asked: tuple[str, ...], target_host: TargetHost) -> _Access:
    missing: list[TfimgError] = []
    notes: tuple[str, ...] = ()
    access: DeviceAccess
    try:
        notes = check_gpu(spec, asked, target_host)
    except TfimgError as lack:
        missing.append(lack)
    try:
        access = choose_gpu_access(target_host.toolkit, target_host.host)
    except NoContainerToolkit as lack:
        missing.append(lack)
        access = "nvidia"
    return _Access(flags=(*gpu_options(access, asked), *GPU_LIMITS), shm=GPU_SHM, notes=notes, missing=tuple(missing))


def _tpu(spec: ImageSpec, wishes: RunOptions, target_host: TargetHost) -> _Access:
    notes: list[str] = []
    missing: list[TfimgError] = []
    if "--publish" in wishes.options:
        notes.append("--publish does nothing here: a TPU's container is on the machine's own network.")
    try:
        notes.extend(check_tpu(spec, target_host))
    except TfimgError as lack:
        missing.append(lack)
    return _Access(flags=TPU_ACCESS, shm=TPU_SHM, notes=tuple(notes), missing=tuple(missing))


def _argv(image: str, access: _Access, wishes: RunOptions) -> tuple[str, ...]:
    shm = wishes.shm_size or access.shm
    return (
        "docker",
        "run",
        "--rm",
        *(["--interactive"] if wishes.interactive else []),
        *(["--tty"] if wishes.terminal else []),
        *access.flags,
        *(["--shm-size", shm] if shm else []),
        *wishes.options,
        image,
        *wishes.program,
    )
