"""What this machine has: GPUs, drivers, TPUs, and which level can be proven on it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.version import Version

from tfimg.core.errors import (
    NoAccelerator,
    NoContainerToolkit,
    NoEmulation,
    UnavailableDriver,
    UnavailableGpu,
)
from tfimg.core.levels import Level
from tfimg.core.text import quote_argument
from tfimg.engine.interface import DEFAULT_CDI_FOLDERS, DeviceAccess, DeviceSupport
from tfimg.engine.machine import EMULATE
from tfimg.host.nvidia_smi import HostGpu, NvidiaSmi, find_capability
from tfimg.matrix.devices import CPU, Device
from tfimg.matrix.gpus import (
    describe_forward_compatibility,
    describe_ptx,
    explain_no_support,
    find_driver_floor,
    find_execution_mode,
)
from tfimg.matrix.schema import PROCESSORS, Matrix
from tfimg.matrix.spec import ImageSpec

NVIDIA = "0x10de"  # NVIDIA's vendor number on the PCI bus
DISPLAY = "0x03"  # first byte of the class of display controllers; GPUs without a screen are among them

HOOK = "usr/bin/nvidia-container-runtime-hook"
"""The program that an engine needs for `--gpus` (moby, daemon/nvidia_linux.go)."""

AVX = re.compile(r"^flags\s*:.*\bavx\b", re.MULTILINE)
MEMORY = re.compile(r"^MemTotal:\s*(\d+) kB", re.MULTILINE)
CDI_KIND = re.compile(r"""["']?kind["']?\s*:\s*["']?nvidia\.com/gpu["']?\s*[,\n}]""")

Socket = Literal["open", "closed", "absent"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """What this machine has.

    `platform` is the matrix's name, or else the kernel's; `avx` is None on Arm. `cards` counts NVIDIA's GPUs on the
    bus; `module`: their kernel module is loaded. `tpus` are device nodes, `closed_tpus` those that only some users may
    open. `hook`: the hook of NVIDIA's toolkit is installed; `cdi` are folders with NVIDIA's specification.
    """

    platform: str
    avx: bool | None
    memory_bytes: int | None
    cards: int
    module: bool
    smi: NvidiaSmi | NoAccelerator
    tpus: tuple[str, ...]
    closed_tpus: tuple[str, ...]
    hook: bool
    cdi: tuple[str, ...]
    socket: Socket


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetHost:
    """Where an image is to run: the matrix with its images, this machine, and the engine."""

    matrix: Matrix
    specs: Sequence[ImageSpec]
    host: Host
    toolkit: DeviceSupport


def survey_host(
    *, root: Path, machine: str, query_smi: Callable[[], NvidiaSmi], may_use: Callable[[Path], bool], docker_host: str
) -> Host:
    """Survey the machine below `root`.

    `machine` is the kernel's name of the processor; `may_use` returns whether this user may read and write a path.
    """
    smi: NvidiaSmi | NoAccelerator
    try:
        smi = query_smi()
    except NoAccelerator as error:
        smi = error
    memory = MEMORY.search(_read(root / "proc/meminfo"))
    tpus = [*sorted(root.glob("dev/accel[0-9]*")), *sorted(root.glob("dev/vfio/[0-9]*"))]
    socket = root / docker_host.removeprefix("unix://").lstrip("/")
    has_socket = docker_host.startswith("unix://") and os.access(socket, os.F_OK)
    return Host(
        platform=next((name for name, known in PROCESSORS.items() if known == machine), machine),
        avx=bool(AVX.search(_read(root / "proc/cpuinfo"))) if machine == "x86_64" else None,
        memory_bytes=int(memory[1]) * 1024 if memory else None,
        cards=sum(
            _read(device / "vendor").strip() == NVIDIA and _read(device / "class").startswith(DISPLAY)
            for device in root.glob("sys/bus/pci/devices/*")
        ),
        module=(root / "proc/driver/nvidia/version").exists(),
        smi=smi,
        tpus=tuple(f"/{node.relative_to(root)}" for node in tpus),
        closed_tpus=tuple(f"/{node.relative_to(root)}" for node in tpus if node.stat().st_mode & 0o006 != 0o006),
        hook=(root / HOOK).exists(),
        cdi=tuple(folder for folder in DEFAULT_CDI_FOLDERS if _has_nvidia_cdi(root / folder.lstrip("/"))),
        socket=("open" if may_use(socket) else "closed") if has_socket else "absent",
    )


def _read(path: Path) -> str:
    # Files below /proc and /sys come and go, and some are for root alone.
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _has_nvidia_cdi(folder: Path) -> bool:
    files = (file for suffix in ("json", "yaml", "yml") for file in folder.glob(f"*.{suffix}"))
    return any(CDI_KIND.search(f"{_read(file)}\n") for file in files)


ALL_GPUS = ("all",)

CDI_NAME = "nvidia.com/gpu"

INSTALL_DRIVER_HELP = (
    "Install NVIDIA's driver from your distribution's packages (Ubuntu: `ubuntu-drivers install`; Debian: "
    "nvidia-driver and the kernel's headers) and reboot. If it is installed, `modprobe nvidia` and `dmesg` say why it "
    "is not loaded; Secure Boot refuses unsigned modules."
)
TOOLKIT_HELP = (
    "Install NVIDIA's nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker` as root and "
    "restart the engine (tfimg's own engine: `tfimg engine down`, then `tfimg engine up`)."
)
PODMAN_HELP = (
    "Install NVIDIA's nvidia-container-toolkit, and as root run "
    "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`."
)
CDI_HELP = (
    'Write "features": {"cdi": true} into /etc/docker/daemon.json and restart the engine (tfimg\'s own engine: '
    "`tfimg engine down`, then `tfimg engine up`)."
)


def find_sibling(specs: Sequence[ImageSpec], spec: ImageSpec, device: Device) -> str | None:
    """Return the image of the same release for another device, preferably with the same Python."""
    same = [
        one for one in specs if (one.tensorflow, one.platform, one.device) == (spec.tensorflow, spec.platform, device)
    ]
    same.sort(key=lambda other: (other.python != spec.python, not other.is_default_python))
    return same[0].identifier if same else None


def check_gpu(spec: ImageSpec, gpus: tuple[str, ...], target_host: TargetHost) -> tuple[str, ...]:
    """Return notes on a GPU image on this host.

    Raises `NoAccelerator`, `UnavailableGpu` or `UnavailableDriver` if no selected GPU runs it.
    """
    if not target_host.toolkit.local:
        return (f"GPU and driver were not checked: the engine at {target_host.toolkit.host} is on another machine.",)
    host, smi = target_host.host, target_host.host.smi
    # First, because some GPUs are not on the PCI bus: under WSL.
    if isinstance(smi, NoAccelerator):
        sibling = find_sibling(target_host.specs, spec, CPU)
        smaller = f"; {sibling} is the same release without GPU libraries" if sibling else ""
        if host.module:
            problem, step = f"this machine's driver is loaded but does not respond: {smi.what}", smi.next_step
        elif host.cards:
            problem = f"this machine has {host.cards}, but no driver: /proc/driver/nvidia/version is missing."
            step = INSTALL_DRIVER_HELP
        else:
            problem = "this machine has none: no display device on its PCI bus is NVIDIA's."
            step = "Use a machine with one."
        raise NoAccelerator(
            f"{spec.identifier} needs an NVIDIA GPU, and {problem}",
            next_step=f"{step} `tfimg run --no-gpu` runs the image on the processor{smaller}.",
        )
    models = dict.fromkeys(_select_gpus(smi, gpus))
    errors: list[UnavailableGpu | UnavailableDriver] = []
    notes: list[str] = []
    for gpu in models:
        try:
            notes += _check_one_gpu(target_host.matrix, spec, smi.driver, gpu)
        except (UnavailableGpu, UnavailableDriver) as error:
            errors.append(error)
    if errors and len(errors) == len(models):
        raise errors[0]
    return (*notes, *(f"One GPU cannot run it: {error}" for error in errors), *smi.problems)


def compiles_ptx(spec: ImageSpec, gpus: Sequence[str], target_host: TargetHost) -> bool:
    """Return whether the driver of this machine compiles an image's PTX for one of the selected GPUs.

    Raises `NoAccelerator` for a number that does not exist.
    """
    smi = target_host.host.smi
    if isinstance(smi, NoAccelerator) or not target_host.toolkit.local or spec.gpu is None:
        return False
    found = (find_capability(target_host.matrix, gpu) for gpu in _select_gpus(smi, gpus))
    return any(find_execution_mode(target_host.matrix, spec.gpu, sm) in ("ptx", "unproven") for sm in found if sm)


def _select_gpus(smi: NvidiaSmi, selection: Sequence[str]) -> tuple[HostGpu, ...]:
    """Return the selected GPUs. Raises `NoAccelerator` for a number that does not exist."""
    # A MIG device has its GPU's number before the colon.
    numbers = [int(word.partition(":")[0]) for word in selection if re.fullmatch(r"[0-9]+(:[0-9]+)?", word)]
    if smi.problems:  # the numbers of the other GPUs are unknown
        return smi.gpus
    if absent := [number for number in numbers if number >= len(smi.gpus)]:
        raise NoAccelerator(
            f"--gpus {','.join(selection)}: this machine has no GPU {absent[0]}, its last is {len(smi.gpus) - 1}.",
            next_step="`nvidia-smi -L` lists them; --gpus all selects all of them.",
        )
    # An identity (GPU-…, MIG-…) may be that of any GPU.
    return tuple(smi.gpus[number] for number in numbers) if len(numbers) == len(selection) else smi.gpus


def _check_one_gpu(matrix: Matrix, spec: ImageSpec, driver: str, gpu: HostGpu) -> Iterator[str]:
    sm = find_capability(matrix, gpu)
    mode = find_execution_mode(matrix, spec.gpu, sm) if spec.gpu and sm else None
    if spec.gpu and sm and mode is None:
        reason = explain_no_support(matrix, spec.gpu, sm)
        raise UnavailableGpu(
            f"{spec.identifier} has no code for this machine's {gpu.name} ({sm}){f': {reason}' if reason else ''}",
            next_step=f"`tfimg resolve --gpu {sm}` finds an image with code for it, or says why there is none.",
        )
    floor = find_driver_floor(matrix, spec, sm)
    if floor and Version(driver) < Version(floor):
        request = f"`tfimg resolve --driver {quote_argument(driver)}{f' --gpu {sm}' if sm else ''}`"
        raise UnavailableDriver(
            f"{spec.identifier} needs NVIDIA driver {floor} or newer on {gpu.name}, and this machine's is {driver}.",
            next_step=f"Install a newer driver and reboot, or use an image for this driver: {request}."
            + (f" Or: {other}." if (other := describe_forward_compatibility(matrix, gpu.name)) else ""),
        )
    if sm is None:
        yield f"{gpu.name} is not in the matrix, and its driver does not report its compute capability: it may not run."
    elif spec.gpu and mode != "code":
        yield (
            f"TensorFlow {spec.tensorflow} has no code for {gpu.name} ({sm}), only PTX for the driver: "
            f"{describe_ptx(matrix, spec.gpu, sm)}."
        )


def gpu_options(access: DeviceAccess, gpus: Sequence[str]) -> list[str]:
    if access == "cdi":
        return [word for gpu in gpus for word in ("--device", f"{CDI_NAME}={gpu}")]
    # Docker parses the value as CSV: without the quotes, a second GPU would be another option.
    return ["--gpus", "all" if gpus == ALL_GPUS else f'"device={",".join(gpus)}"']


def choose_gpu_access(toolkit: DeviceSupport, host: Host) -> DeviceAccess:
    """Return how the engine gives GPUs to containers. Raises `NoContainerToolkit` if it cannot.

    `--gpus` needs NVIDIA's hook on the engine's host, which comes with the runtime `nvidia`; CDI needs a specification
    of NVIDIA's in a folder that the engine reads. Podman has CDI alone.
    """
    if toolkit.engine == "Podman":
        if toolkit.local and not set(toolkit.cdi_folders) & set(host.cdi):
            folders = " and ".join(toolkit.cdi_folders)
            raise NoContainerToolkit(
                f"Podman at {toolkit.host} cannot give a GPU to a container: there is no NVIDIA CDI specification in "
                f"{folders}.",
                next_step=PODMAN_HELP,
            )
        return "cdi"
    if "nvidia" in toolkit.runtimes or (toolkit.local and host.hook):
        return "nvidia"
    listed = any(device.startswith(f"{CDI_NAME}=") for device in toolkit.cdi_devices)
    if listed or (toolkit.local and set(toolkit.cdi_folders) & set(host.cdi)):
        return "cdi"
    is_off = host.cdi and toolkit.local and not toolkit.cdi_folders
    problem = "CDI is off, although NVIDIA's CDI specification exists." if is_off else "it knows no NVIDIA CDI device."
    raise NoContainerToolkit(
        f"The engine at {toolkit.host} cannot give a GPU to a container: NVIDIA's runtime is missing, and {problem}",
        next_step=CDI_HELP if is_off else TOOLKIT_HELP,
    )


def check_tpu(spec: ImageSpec, target_host: TargetHost) -> tuple[str, ...]:
    """Return notes on a TPU image on this host. Raises `NoAccelerator` without a TPU."""
    if not target_host.toolkit.local:
        return (f"The TPU was not checked: the engine at {target_host.toolkit.host} is on another machine.",)
    if not target_host.host.tpus:
        raise NoAccelerator(
            f"{spec.identifier} needs a Google TPU, and this machine has neither /dev/accel0 nor /dev/vfio/0.",
            next_step="Use a Cloud TPU VM, created with `--version tpu-ubuntu2204-base`.",
        )
    if target_host.host.closed_tpus:
        devices = ", ".join(target_host.host.closed_tpus)
        return (f"Only some users may open {devices}: use --user 0 if access is denied.",)
    return ()


Execution = Literal["native", "emulated", "none"]  # how an engine runs the programs of an image


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetLevel:
    """A level to prove and the container's access to the device; `reason` says why the level is not higher.

    `accelerator` is what the level is proven on, with its driver; `none` if it needs none.

    `built`: no program of the image can run. `emulated`: its programs run on another processor than theirs.
    """

    level: Level
    access: DeviceAccess = "none"
    accelerator: str = "none"
    reason: str | None = None
    emulated: bool = False


def _use_gpu(spec: ImageSpec, target_host: TargetHost) -> tuple[DeviceAccess, str]:
    check_gpu(spec, ALL_GPUS, target_host)
    smi, name = target_host.host.smi, "not known"  # of an engine on another machine
    if isinstance(smi, NvidiaSmi):
        name = f"{', '.join(gpu.name for gpu in smi.gpus)}; driver {smi.driver}"
    return choose_gpu_access(target_host.toolkit, target_host.host), name


def _use_tpu(spec: ImageSpec, target_host: TargetHost) -> tuple[DeviceAccess, str]:
    check_tpu(spec, target_host)
    return "privileged", " ".join(target_host.host.tpus)


USES: Mapping[Device, Callable[[ImageSpec, TargetHost], tuple[DeviceAccess, str]]] = {
    "cpu": lambda *_: ("none", "none"),
    "gpu": _use_gpu,
    "tpu": _use_tpu,
}
"""How a container of the suite gets the device, and its name; raises what the machine lacks for it."""


def choose_target_level(
    spec: ImageSpec, target_host: TargetHost, requested: Level | None, execution: Execution = "native"
) -> TargetLevel:
    """Return the requested level, or the highest level that the host can prove.

    Raises the host's deficiency if a level was requested that the host cannot prove.
    """
    if execution != "native":
        what = f"{spec.identifier} is for {spec.platform}, and the engine runs on {target_host.toolkit.platform}"
        if execution == "none":
            what = f"{what}, where programs of {spec.platform} do not run."
            if requested:
                raise NoEmulation(what, next_step=f"{EMULATE}; or validate it on a machine of {spec.platform}.")
            return TargetLevel(level=Level.BUILT, reason=f"{what} No check was run. {EMULATE}.")
        # An emulator proves nothing about a processor.
        what = f"{what}, which emulates {spec.platform}."
        if requested == Level.VALIDATED:
            raise NoEmulation(
                what, next_step=f"Validate it on a machine of {spec.platform}, or omit --level to prove level linked."
            )
        return TargetLevel(level=Level.LINKED, reason=what, emulated=True)
    if requested == Level.LINKED:
        return TargetLevel(level=Level.LINKED)
    try:
        access, accelerator = USES[spec.device](spec, target_host)
        return TargetLevel(level=Level.VALIDATED, access=access, accelerator=accelerator)
    except (NoAccelerator, NoContainerToolkit, UnavailableDriver, UnavailableGpu) as error:
        if requested == Level.VALIDATED:
            raise type(error)(
                error.what,
                next_step="Omit --level to prove everything that works without the device (level linked). "
                f"`tfimg doctor {spec.identifier}` shows the next step for this machine.",
            ) from None
        return TargetLevel(level=Level.LINKED, reason=error.what)
