"""Plan the `docker run` or `podman run` of an image for its device."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfimg.core.errors import EngineUnavailable, NoContainerToolkit, TfimgError, UsageError, WrongDevice
from tfimg.engine.interface import DeviceAccess
from tfimg.host.survey import ALL_GPUS, TargetHost, check_gpu, check_tpu, choose_gpu_access, find_sibling, gpu_options
from tfimg.matrix.devices import CPU, DEVICES, GPU, Device
from tfimg.matrix.spec import ImageSpec

GPU_LIMITS = ("--ulimit", "memlock=-1")
NO_SELINUX = ("--security-opt", "label=disable")
"""SELinux denies containers of Podman a GPU's device nodes (NVIDIA Container Toolkit, Support for CDI)."""

GPU_SHM = "1g"
"""Limits for NCCL, which uses shared and pinned memory; a container has 64 MB of the first by default (NCCL user guide,
Troubleshooting, Shared memory)."""

NO_GPU = ("--env", "NVIDIA_VISIBLE_DEVICES=void")
"""Disables NVIDIA's runtime, which gives GPUs to every container if it is the engine's default (NVIDIA Container
Toolkit, Specialized configurations)."""

TPU_ACCESS, TPU_NETWORK = ("--privileged",), ("--network", "host")
"""As Google runs containers on TPU VMs (docs.cloud.google.com/tpu/docs/run-in-container)."""

TPU_SHM = "16g"  # upper bound, from PyTorch/XLA's README for TPU VMs; Google's page has no figure
PACKAGES = {"docker": "docker-cli or docker.io", "podman": "podman"}  # packages of the commands that start containers


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """Options of a run. `options` are passed on to `docker run` or `podman run`."""

    gpus: str | None = None
    no_gpu: bool = False
    shm_size: str | None = None
    options: tuple[str, ...] = ()
    interactive: bool = True
    terminal: bool = False
    program: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Return whether an option is among those that are passed on."""
        return any(word == name or word.startswith(f"{name}=") for word in self.options)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """A `docker run` or `podman run`; `missing` are the errors that prevent it on this host, most important first."""

    argv: tuple[str, ...]
    device: Device
    notes: tuple[str, ...] = ()
    missing: tuple[TfimgError, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _DeviceOptions:
    flags: tuple[str, ...] = ()
    shm: str | None = None
    notes: tuple[str, ...] = ()
    missing: tuple[TfimgError, ...] = ()


def plan_run(image: str, spec: ImageSpec, options: RunOptions, target_host: TargetHost) -> RunPlan:
    """Return the `docker run`, or `podman run`, of an image.

    Raises `WrongDevice` if GPUs are requested for an image without GPU code.
    """
    _parse_gpus(options.gpus)
    if options.gpus is not None and spec.device != GPU:
        sibling = find_sibling(target_host.specs, spec, GPU)
        raise WrongDevice(
            f"{spec.identifier} is for a {DEVICES[spec.device].title} and has no GPU code, but --gpus requests GPUs.",
            next_step=f"Use {sibling}, the same release for GPUs; or omit --gpus."
            if sibling
            else f"This release has no image for GPUs (`tfimg list '{spec.minor}*'`); omit --gpus.",
        )
    device = CPU if options.no_gpu and spec.device == GPU else spec.device
    settings = SETTINGS[device](spec, options, target_host)
    # Podman refuses a size for shared memory that the container does not own.
    shm, toolkit = options.shm_size or (None if options.has("--ipc") else settings.shm), target_host.toolkit
    argv = [
        # The `docker` command cannot request a GPU of older Podman services, and is often not installed beside Podman.
        *(["podman", "--url", toolkit.host] if toolkit.engine == "Podman" else ["docker"]),
        *("run", "--rm"),
        *(["--interactive"] if options.interactive else []),
        *(["--tty"] if options.terminal else []),
        *settings.flags,
        *(["--shm-size", shm] if shm else []),
        *options.options,
        image,
        *options.program,
    ]
    platform = target_host.host.platform
    emulated = toolkit.local and platform != spec.platform
    note = f"{image} is for {spec.platform} and this machine is {platform}: it needs an emulator, and is slow."
    notes = (*([note] if emulated else []), *settings.notes)
    return RunPlan(argv=tuple(argv), device=device, notes=notes, missing=settings.missing)


def missing_client(argv: Sequence[str]) -> EngineUnavailable:
    """Return the error for a command of an engine that is not installed."""
    return EngineUnavailable(
        f"An engine responds, but the `{argv[0]}` command is not installed.",
        next_step=f"Install your distribution's {PACKAGES[argv[0]]} package.",
    )


def _parse_gpus(gpus: str | None) -> tuple[str, ...]:
    if gpus is None or gpus == "all":
        return ALL_GPUS
    selection = tuple(gpus.split(","))
    if not all(re.fullmatch(r"[0-9]+(:[0-9]+)?|(GPU|MIG)-[\w/-]+", word) for word in selection):
        raise UsageError(
            f"--gpus {gpus!r} does not name GPUs.",
            next_step="Use all, or numbers or identities as `nvidia-smi -L` lists them (0,1), or GPU:DEVICE for a MIG "
            "device (0:0).",
        )
    return selection


def _cpu_settings(spec: ImageSpec, options: RunOptions, target_host: TargetHost) -> _DeviceOptions:
    if not options.no_gpu:
        return _DeviceOptions()
    if spec.device != GPU:
        return _DeviceOptions(notes=(f"--no-gpu changes nothing: {spec.identifier} uses no GPU.",))
    sibling = find_sibling(target_host.specs, spec, CPU)
    smaller = f"; {sibling} is a smaller image for that" if sibling else ""
    return _DeviceOptions(flags=NO_GPU, notes=(f"--no-gpu: everything runs on the processor{smaller}.",))


def _gpu_settings(spec: ImageSpec, options: RunOptions, target_host: TargetHost) -> _DeviceOptions:
    gpus = _parse_gpus(options.gpus)
    missing: list[TfimgError] = []
    notes: tuple[str, ...] = ()
    access: DeviceAccess = "nvidia"
    try:
        notes = check_gpu(spec, gpus, target_host)
    except TfimgError as error:
        missing.append(error)
    try:
        access = choose_gpu_access(target_host.toolkit, target_host.host)
    except NoContainerToolkit as error:
        missing.append(error)
    flags = (
        *gpu_options(access, gpus),
        *(NO_SELINUX if target_host.toolkit.engine == "Podman" else ()),
        # An ordinary user may not raise the limit.
        *(() if target_host.toolkit.rootless else GPU_LIMITS),
    )
    return _DeviceOptions(flags=flags, shm=GPU_SHM, notes=notes, missing=tuple(missing))


def _tpu_settings(spec: ImageSpec, options: RunOptions, target_host: TargetHost) -> _DeviceOptions:
    network = () if options.has("--network") or options.has("--net") else TPU_NETWORK
    publish = "--publish has no effect: a TPU's container uses the machine's own network."
    notes: tuple[str, ...] = (publish,) if network and options.has("--publish") else ()
    missing: tuple[TfimgError, ...] = ()
    try:
        notes += check_tpu(spec, target_host)
    except TfimgError as error:
        missing = (error,)
    return _DeviceOptions(flags=(*TPU_ACCESS, *network), shm=TPU_SHM, notes=notes, missing=missing)


SETTINGS: Mapping[Device, Callable[[ImageSpec, RunOptions, TargetHost], _DeviceOptions]] = {
    "cpu": _cpu_settings,
    "gpu": _gpu_settings,
    "tpu": _tpu_settings,
}
"""How a container gets the device."""
