"""Plan the `docker run` or `podman run` of an image for its device."""

from __future__ import annotations

import csv
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tfimg.core.errors import EngineUnavailable, NoContainerToolkit, TfimgError, UsageError, WrongDevice
from tfimg.core.text import quote_argument
from tfimg.engine.interface import DeviceAccess, DeviceSupport
from tfimg.host.survey import (
    ALL_GPUS,
    TargetHost,
    check_gpu,
    check_tpu,
    choose_gpu_access,
    compiles_ptx,
    find_sibling,
    gpu_options,
)
from tfimg.matrix.devices import CPU, DEVICES, GPU, Device
from tfimg.matrix.spec import ImageSpec

GPU_LIMITS = ("--ulimit", "memlock=-1")
NO_SELINUX = ("--security-opt", "label=disable")
"""SELinux denies containers of Podman a GPU's device nodes (NVIDIA Container Toolkit, Support for CDI)."""

GPU_SHM = "1g"
"""Limits for NCCL, which uses shared and pinned memory; a container has 64 MB of the first by default (NCCL user guide,
Troubleshooting, Shared memory)."""

CACHE_VOLUME, CACHE_FOLDER = "tfimg-cuda-cache", "/var/tmp"  # noqa: S108 - a new volume there is for every user
CUDA_CACHE_BYTES = 4 << 30
"""The largest cache of compiled PTX that CUDA takes; without the variable it has 1 GiB (CUDA programming guide, CUDA
environment variables)."""

CUDA_CACHE = (
    *("--volume", f"{CACHE_VOLUME}:{CACHE_FOLDER}"),
    *("--env", f"CUDA_CACHE_PATH={CACHE_FOLDER}/cuda"),
    *("--env", f"CUDA_CACHE_MAXSIZE={CUDA_CACHE_BYTES}"),
)
"""Keeps what the driver compiles at the first start. The engine gives a new volume the permissions of the image's
folder, where each user may write, so that it serves any user and a root that is read-only."""

NO_GPU = ("--env", "NVIDIA_VISIBLE_DEVICES=void")
"""Disables NVIDIA's runtime, which gives GPUs to every container if it is the engine's default (NVIDIA Container
Toolkit, Specialized configurations)."""

TPU_ACCESS, TPU_NETWORK = ("--privileged",), ("--network", "host")
"""As Google runs containers on TPU VMs (docs.cloud.google.com/tpu/docs/run-in-container)."""

TPU_SHM = "16g"  # upper bound, from PyTorch/XLA's README for TPU VMs; Google's page has no figure
IMAGE_USER = 1000  # user and group of the images
KEEP_ID = ("--userns", f"keep-id:uid={IMAGE_USER},gid={IMAGE_USER}")
"""Makes the user of a rootless Podman the image's user (podman-run(1), since 4.3)."""

CONTAINER_ROOT = ("--user", "0:0")
"""The user of a rootless Docker, as its containers see them (docs.docker.com/engine/security/rootless)."""

PACKAGES = {"docker": "docker-cli or docker.io", "podman": "podman"}  # packages of the commands that start containers


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """Options of a run. `options` are passed on to `docker run` or `podman run`.

    `as_owner`: if they name no user, the program runs as the owner of the folder that it works in.
    """

    gpus: str | None = None
    no_gpu: bool = False
    shm_size: str | None = None
    options: tuple[str, ...] = ()
    interactive: bool = True
    terminal: bool = False
    program: tuple[str, ...] = ()
    as_owner: bool = True

    def has(self, name: str) -> bool:
        """Return whether an option is among those that are passed on."""
        return any(word == name or word.startswith(f"{name}=") for word in self.options)

    def list_values(self, *names: str) -> Iterator[str]:
        """Yield the values of an option among those that are passed on, in each form that `docker run` reads."""
        for word, after in zip(self.options, (*self.options[1:], ""), strict=False):
            for name in names:
                joined = f"{name}=" if name.startswith("--") else name
                if word == name:
                    yield after
                elif word.startswith(joined):
                    yield word.removeprefix(joined)

    def check_volumes(self) -> None:
        """Raise `UsageError` for a volume without an absolute path in the container, which no engine mounts."""
        for value in self.list_values("--volume", "-v"):
            source, target, modes = [*value.split(":", 2), "", ""][:3]
            if target.startswith("/") or (target == modes == "" and source.startswith("/")):  # the last is anonymous
                continue
            better = ":".join(filter(None, (source, f"/{target or 'work'}", modes)))
            raise UsageError(
                f"-v {value} names no absolute path in the container.", next_step=f"Write -v {quote_argument(better)}."
            )

    def list_mounts(self) -> Iterator[Mount]:
        """Yield the folders and files of the machine that the container shows; named volumes are not among them."""
        for value in self.list_values("--volume", "-v"):
            source, target, modes = [*value.split(":", 2), "", ""][:3]
            if target and source.startswith(("/", ".")):  # as docker and podman tell a path from a name
                yield Mount(Path(source), target, read_only="ro" in modes.split(","), option=f"-v {value}")
        for value in self.list_values("--mount"):
            found = dict(field.partition("=")[::2] for field in next(csv.reader(value.splitlines()), []))
            shown = found.get("source") or found.get("src")
            place = found.get("target") or found.get("destination") or found.get("dst")
            if found.get("type") == "bind" and shown and place:
                yield Mount(Path(shown), place, read_only=bool({"readonly", "ro"} & found.keys()))


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the machine in a container. `option` is that of -v, whose missing folder Docker makes."""

    source: Path
    target: str
    read_only: bool = False
    option: str | None = None

    def find_problem(self) -> UsageError | None:
        """Return the error for a folder that does not exist and that Docker would make as one of root's."""
        try:
            self.source.stat()
        except (FileNotFoundError, NotADirectoryError):
            if self.option:
                return UsageError(
                    f"{self.option}: this machine has no {self.source}.",
                    next_step=f"Correct the path, or make the folder: `mkdir -p {quote_argument(self.source)}`.",
                )
        except OSError:  # the engine may see what this user may not
            pass
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """A `docker run` or `podman run`; `missing` are the errors that prevent it on this host, most important first."""

    argv: tuple[str, ...]
    device: Device
    notes: tuple[str, ...] = ()
    missing: tuple[TfimgError, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Settings:
    """What a device, or the folders of the machine, add to a run."""

    flags: tuple[str, ...] = ()
    shm: str | None = None
    notes: tuple[str, ...] = ()
    missing: tuple[TfimgError, ...] = ()


def plan_run(image: str, spec: ImageSpec, options: RunOptions, target_host: TargetHost) -> RunPlan:
    """Return the `docker run`, or `podman run`, of an image.

    Raises `WrongDevice` if GPUs are requested for an image without GPU code, `UsageError` for a volume or GPUs that are
    not named as they have to be.
    """
    parse_gpus(options.gpus)
    options.check_volumes()
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
    folders = _folder_settings(options, toolkit) if options.as_owner and toolkit.shares_files else _Settings()
    argv = [
        *client_command(toolkit),
        *("run", "--rm"),
        *(["--interactive"] if options.interactive else []),
        *(["--tty"] if options.terminal else []),
        *settings.flags,
        *(["--shm-size", shm] if shm else []),
        *options.options,
        *folders.flags,
        image,
        *options.program,
    ]
    platform = target_host.host.platform
    emulated = toolkit.local and platform != spec.platform
    note = f"{image} is for {spec.platform} and this machine is {platform}: it needs an emulator, and is slow."
    notes = (*([note] if emulated else []), *settings.notes, *folders.notes)
    return RunPlan(argv=tuple(argv), device=device, notes=notes, missing=(*settings.missing, *folders.missing))


def _folder_settings(options: RunOptions, toolkit: DeviceSupport) -> _Settings:
    """Return the user who owns the working folder, so that what the program writes belongs to that user.

    It is the mount of the working directory, else the first that is not read-only; those of root decide nothing. A user
    who is named stays.
    """
    mounts = [*options.list_mounts()]
    missing = tuple(problem for mount in mounts if (problem := mount.find_problem()))
    if any(options.list_values("--user", "-u", "--userns")):
        return _Settings(missing=missing)
    folders = [mount for mount in mounts if os.access(mount.source, os.F_OK) and mount.source.is_dir()]
    *_, workdir = ("", *options.list_values("--workdir", "-w"))
    around = [mount for mount in folders if PurePosixPath(workdir).is_relative_to(mount.target)]
    around.sort(key=lambda mount: len(PurePosixPath(mount.target).parts), reverse=True)
    candidates = [*around, *(mount for mount in folders if not mount.read_only)]
    owned = [status for mount in candidates if (status := mount.source.stat()).st_uid]
    if owned:
        return _Settings(flags=choose_owner(owned[0], toolkit) or (), missing=missing)
    notes = tuple(
        f"{mount.source} belongs to root, and the program runs as user {IMAGE_USER}, who may not write to it. `chown "
        f"{IMAGE_USER} {quote_argument(mount.source)}` gives the folder away; `-u 0` runs the program as root."
        for mount in candidates[:1]
        if not (mount.read_only or toolkit.rootless) and choose_owner(mount.source.stat(), toolkit) is None
    )
    return _Settings(notes=notes, missing=missing)


def choose_owner(folder: os.stat_result, toolkit: DeviceSupport) -> tuple[str, ...] | None:
    """Return the options of `docker run` or `podman run` with which a program writes to a folder as its owner.

    None if no user of a container may write to it, but for the machine's root.
    """
    is_open = bool(folder.st_mode & stat.S_IWOTH)
    if toolkit.rootless:  # its containers' users are others on the machine, but for the engine's own
        if folder.st_uid == os.geteuid() != 0:
            return KEEP_ID if toolkit.engine == "Podman" else CONTAINER_ROOT
        return () if is_open else None
    if folder.st_uid == 0:
        is_member = folder.st_gid == IMAGE_USER and folder.st_mode & stat.S_IWGRP
        return () if is_open or is_member else None
    if (folder.st_uid, folder.st_gid) == (IMAGE_USER, IMAGE_USER):
        return ()
    # The image's HOME is writable for group 0.
    return ("--user", f"{folder.st_uid}:{folder.st_gid}", "--group-add", "0")


CONFINED = (
    *("--read-only", "--tmpfs", "/tmp:rw,mode=1777"),  # noqa: S108 - of the container
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pids-limit", "4096"),
)
"""Options of a container that reads a model of the user and writes to /tmp; 4096 processes are a few for each core."""


def client_command(toolkit: DeviceSupport) -> tuple[str, ...]:
    """Return the start of an engine's command; `docker` is often not installed beside Podman, and asks for no GPU."""
    return ("podman", "--url", toolkit.host) if toolkit.engine == "Podman" else ("docker",)


def missing_client(argv: Sequence[str]) -> EngineUnavailable:
    """Return the error for a command of an engine that is not installed."""
    return EngineUnavailable(
        f"An engine responds, but the `{argv[0]}` command is not installed.",
        next_step=f"Install your distribution's {PACKAGES[argv[0]]} package.",
    )


def parse_gpus(gpus: str | None) -> tuple[str, ...]:
    """Return the GPUs that --gpus names. Raises `UsageError`."""
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


def _cpu_settings(spec: ImageSpec, options: RunOptions, target_host: TargetHost) -> _Settings:
    if not options.no_gpu:
        return _Settings()
    if spec.device != GPU:
        return _Settings(notes=(f"--no-gpu changes nothing: {spec.identifier} uses no GPU.",))
    sibling = find_sibling(target_host.specs, spec, CPU)
    smaller = f"; {sibling} is a smaller image for that" if sibling else ""
    return _Settings(flags=NO_GPU, notes=(f"--no-gpu: everything runs on the processor{smaller}.",))


def _gpu_settings(spec: ImageSpec, options: RunOptions, target_host: TargetHost) -> _Settings:
    gpus = parse_gpus(options.gpus)
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
        *(CUDA_CACHE if not missing and _needs_cache(spec, options, gpus, target_host) else ()),
    )
    return _Settings(flags=flags, shm=GPU_SHM, notes=notes, missing=tuple(missing))


def _needs_cache(spec: ImageSpec, options: RunOptions, gpus: Sequence[str], target_host: TargetHost) -> bool:
    variables = {value.partition("=")[0] for value in options.list_values("--env", "-e")}
    is_taken = any(mount.target == CACHE_FOLDER for mount in options.list_mounts())
    return "CUDA_CACHE_PATH" not in variables and not is_taken and compiles_ptx(spec, gpus, target_host)


def _tpu_settings(spec: ImageSpec, options: RunOptions, target_host: TargetHost) -> _Settings:
    network = () if options.has("--network") or options.has("--net") else TPU_NETWORK
    publish = "--publish has no effect: a TPU's container uses the machine's own network."
    notes: tuple[str, ...] = (publish,) if network and options.has("--publish") else ()
    missing: tuple[TfimgError, ...] = ()
    try:
        notes += check_tpu(spec, target_host)
    except TfimgError as error:
        missing = (error,)
    return _Settings(flags=(*TPU_ACCESS, *network), shm=TPU_SHM, notes=notes, missing=missing)


SETTINGS: Mapping[Device, Callable[[ImageSpec, RunOptions, TargetHost], _Settings]] = {
    "cpu": _cpu_settings,
    "gpu": _gpu_settings,
    "tpu": _tpu_settings,
}
"""How a container gets the device."""
