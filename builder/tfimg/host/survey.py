"""What this machine has: GPUs, drivers, TPUs, and which level can be proven on it."""

from __future__ import annotations

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
    TfimgError,
    UnavailableDriver,
    UnavailableGpu,
    UsageError,
)
from tfimg.core.levels import Level
from tfimg.core.process import CommandFailed
from tfimg.engine.interface import DEFAULT_CDI_FOLDERS, DeviceAccess, DeviceSupport
from tfimg.engine.machine import EMULATE
from tfimg.matrix.devices import CPU, Device
from tfimg.matrix.gpus import (
    describe_ptx,
    explain_no_support,
    find_driver_floor,
    find_execution_mode,
    find_gpu,
    find_gpu_name,
)
from tfimg.matrix.schema import PROCESSORS, Matrix
from tfimg.matrix.spec import ImageSpec

UNKNOWN_FIELD = 'Field "compute_cap" is not a valid field to query'
"""Output of drivers up to 470, which do not support this field (huggingface/candle#733)."""

QUERY = "nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv"
INPUT_HELP = f"Write what `nvidia-smi` prints to a file, or `{QUERY}`."
DRIVER_HELP = "Install NVIDIA's driver, or repair it: `nvidia-smi` by itself must list the GPUs."
HANGING_HELP = "Check `dmesg` for errors of the driver (NVRM, Xid), and reboot: a GPU that fell off the bus hangs it."

MAX_LINE = 300  # characters of a line that are read; the longest lines of nvidia-smi have half of that

VERSION = r"[0-9]{1,5}(?:\.[0-9]{1,5}){1,3}"
BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
HEADER = re.compile(
    # Drivers from 610 on no longer print `Driver` and `CUDA Version` (sgl-project/sglang#27487).
    rf"NVIDIA-SMI +\S+ +(?:Driver|KMD) Version: +({VERSION})(?: +CUDA (?:UMD )?Version: +({VERSION}))?"
)
GPU_LINE = re.compile(rf"\| +[0-9]+ +(\S.*?) +(?:On|Off|N/A|WDDM|TCC|MCDM) +\| *{BUS} ")

LOST = re.compile(r"Unable to determine the device handle for GPU.*")
"""A line before a table or in a CSV for a GPU that fell off the bus."""

UNREADABLE_NAME = re.compile(r"\[.*\]|ERR!|Unknown Error|GPU is lost")  # what nvidia-smi prints in place of a name
ELLIPSIS = "..."  # the end of a truncated name in a table of nvidia-smi

FAILURES = (
    (
        r"(?:Failed to initialize NVML: )?Driver/library version mismatch",
        "Reboot: the driver was updated, and the module that is loaded is still the old one.",
    ),
    (r"Failed to initialize NVML: .*", DRIVER_HELP),
    (r"NVIDIA-SMI has failed .*", DRIVER_HELP),
    (r"NVIDIA-SMI couldn't find .*", DRIVER_HELP),
    (LOST.pattern, HANGING_HELP),
    (r"No devices were found", "Check whether the GPU is on the bus (`lspci -d 10de:`), and `dmesg` for its errors."),
    (r".*\bnvidia-smi\b.*(?:not found|No such file).*", DRIVER_HELP),
)
"""Error messages of nvidia-smi, or of the shell in its place, with the next step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostGpu:
    """One GPU. Tables of old drivers truncate names (`Tesla V100-SXM2...`) and lack the capability (`sm_75`)."""

    name: str
    capability: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaSmi:
    """The driver, the newest CUDA that it supports, if known, and every GPU.

    `problems` are sentences about GPUs that could not be read, and are not among `gpus`.
    """

    driver: str
    cuda: str | None
    gpus: tuple[HostGpu, ...]
    problems: tuple[str, ...] = ()


_Output = tuple[str, str | None, list[HostGpu | None]]
"""Driver, empty if there is no valid one; CUDA; GPUs, None for one whose name is unreadable."""


def parse_nvidia_smi(text: str) -> NvidiaSmi:
    """Parse the output of nvidia-smi: its table, or the CSV of a query.

    Raises `NoAccelerator` if it reports no GPU or a failure, `UsageError` for any other text.
    """
    lines = [line.strip() for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
    output = _parse_table(lines) or _parse_csv(lines)
    if output is None:
        raise _failure(lines)
    driver, cuda, found = output
    lost = [line[:MAX_LINE] for line in lines if LOST.match(line)]
    gpus = tuple(gpu for gpu in found if gpu)
    if not gpus and lost:
        raise _failure(lost)
    if not driver:
        raise UsageError("nvidia-smi's output does not contain the version of the driver.", next_step=INPUT_HELP)
    if not found:
        raise NoAccelerator(f"nvidia-smi lists no GPU; the driver is {driver}.", next_step=DRIVER_HELP)
    if not gpus:
        raise UsageError("nvidia-smi's output has a GPU without a readable name.", next_step=INPUT_HELP)
    problems = [f"nvidia-smi says: {line.rstrip('.')}. {HANGING_HELP}" for line in lost if line.isprintable()]
    if len(gpus) < len(found) and not lost:
        unreadable = len(found) - len(gpus)
        problems.append(f"nvidia-smi lists {unreadable} more without a readable name. {HANGING_HELP}")
    return NvidiaSmi(driver=driver, cuda=cuda, gpus=gpus, problems=tuple(problems))


def _parse_table(lines: Sequence[str]) -> _Output | None:
    header = next(filter(None, map(HEADER.search, lines)), None)
    if header is None:
        return None
    # MIG instances and processes have lines without a bus.
    names = [gpu[1] for line in lines if (gpu := GPU_LINE.match(line[:MAX_LINE]))]
    return header[1], header[2], [_parse_gpu(name) for name in names]


def _parse_csv(lines: Sequence[str]) -> _Output | None:
    required = {"name", "driver_version"}
    start = next((number for number, line in enumerate(lines) if required <= set(_column_names(line))), None)
    if start is None:
        return None
    columns = _column_names(lines[start])
    # Values are not quoted, and names have no commas.
    cells = [[cell.strip() for cell in line.split(",")] for line in lines[start + 1 :]]
    rows = [dict(zip(columns, row, strict=True)) for row in cells if len(row) == len(columns)]
    if not rows:
        return None
    # The row of a lost GPU has no driver either.
    driver = next((row["driver_version"] for row in rows if re.fullmatch(VERSION, row["driver_version"])), "")
    return driver, None, [_parse_gpu(row["name"], row.get("compute_cap", "")) for row in rows]


def _column_names(line: str) -> Sequence[str]:
    names = [cell.strip() for cell in line.split(",")]
    return ["name" if name == "gpu_name" else name for name in names]


def _parse_gpu(name: str, capability: str = "") -> HostGpu | None:
    name = name.strip()
    if not 0 < len(name) <= 100 or not name.isprintable() or UNREADABLE_NAME.fullmatch(name):
        return None
    number = re.fullmatch(r"([0-9]{1,2})\.([0-9])", capability)
    return HostGpu(name=name, capability=f"sm_{number[1]}{number[2]}" if number else None)


def _failure(lines: Sequence[str]) -> TfimgError:
    for pattern, step in FAILURES:
        for line in (line[:MAX_LINE] for line in lines):
            if re.fullmatch(rf"{pattern}\.?", line) and line.isprintable():
                return NoAccelerator(f"nvidia-smi says: {line}", next_step=step)
    if not lines:
        return UsageError("nvidia-smi's output is empty.", next_step=INPUT_HELP)
    if any(line.startswith("<nvidia_smi_log") for line in lines):
        return UsageError("This is nvidia-smi's XML, which tfimg does not read.", next_step=INPUT_HELP)
    return UsageError(f"This is not output of nvidia-smi: it begins with {lines[0][:60]!r}.", next_step=INPUT_HELP)


def query_nvidia_smi(run: Callable[[Sequence[str]], str]) -> NvidiaSmi:
    """Query this host's nvidia-smi.

    `run` runs a program and returns its output; it raises `CommandFailed`, `TimeoutError` with a message, or another
    `OSError`. Raises `NoAccelerator` if nvidia-smi is missing, fails, hangs or prints unknown output.
    """
    try:
        return parse_nvidia_smi(_query(run))
    except UsageError as error:
        raise NoAccelerator(error.what, next_step=DRIVER_HELP) from None
    except TimeoutError as error:
        raise NoAccelerator(str(error), next_step=HANGING_HELP) from None
    except FileNotFoundError:
        reason = "is not installed"
    except OSError as error:
        reason = f"cannot be started: {error.strerror}"
    raise NoAccelerator(f"`nvidia-smi`, which comes with NVIDIA's driver, {reason}.", next_step=DRIVER_HELP)


def _query(run: Callable[[Sequence[str]], str]) -> str:
    """Return the output, also of a failure."""
    output = ""
    for query in (QUERY, QUERY.replace(",compute_cap", "")):
        try:
            return run(query.split())
        except CommandFailed as error:
            # Its errors are on standard output.
            output = f"{error.stdout}\n{error.stderr}"
            if UNKNOWN_FIELD not in output:
                break
    return output


def find_capability(matrix: Matrix, gpu: HostGpu) -> str | None:
    """Return the capability (`sm_75`) from the driver, else from the matrix by name; None if unknown."""
    if gpu.capability:
        return gpu.capability
    try:
        return find_gpu(matrix, gpu.name)
    except UsageError:
        if not gpu.name.endswith(ELLIPSIS):
            return None
        # The capability that all names with this beginning have: `GeForce RTX 208...` is `sm_75`.
        beginning = gpu.name.removesuffix(ELLIPSIS).strip()
        # Not Quadro: a Quadro RTX 6000 differs from the RTX 6000s.
        for maker in ("NVIDIA", "GeForce", "Tesla"):
            beginning = beginning.removeprefix(maker).strip()
        if not any(letter.isdecimal() for letter in beginning):
            return None
        found = {sm for sm, names in matrix.gpus.items() if any(known.startswith(beginning) for known in names)}
        return found.pop() if len(found) == 1 else None


def find_matrix_name(matrix: Matrix, gpu: HostGpu) -> str | None:
    """Return the matrix's name of a GPU if it has the same capability, else the capability."""
    sm, name = find_capability(matrix, gpu), find_gpu_name(matrix, gpu.name)
    return name if sm and name in matrix.gpus.get(sm, ()) else sm


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
    has_socket = docker_host.startswith("unix://") and socket.exists()
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
        request = f"`tfimg resolve --driver {driver}{f' --gpu {sm}' if sm else ''}`"
        raise UnavailableDriver(
            f"{spec.identifier} needs NVIDIA driver {floor} or newer on {gpu.name}, and this machine's is {driver}.",
            next_step=f"Install a newer driver and reboot, or use an image for this driver: {request}.",
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
