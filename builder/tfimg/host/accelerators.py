"""Check what an image's device needs of the host and the engine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.version import Version

from tfimg.core.errors import NoAccelerator, NoContainerToolkit, UnavailableDriver, UnavailableGpu
from tfimg.engine.protocol import DeviceAccess, DeviceSupport
from tfimg.host.nvidia_smi import Gpu, NvidiaSmi, find_capability
from tfimg.host.survey import Host, TargetHost
from tfimg.matrix.gpus import describe_ptx, explain_no_support, find_driver_floor, find_execution_mode
from tfimg.matrix.schema import Device, Matrix
from tfimg.matrix.spec import ImageSpec

ALL_GPUS = ("all",)

CDI_NAME = "nvidia.com/gpu"

DRIVER_HELP = (
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
    smi = _require_driver(spec, target_host)
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


def _require_driver(spec: ImageSpec, target_host: TargetHost) -> NvidiaSmi:
    """Return nvidia-smi's answer. Raises `NoAccelerator` without a GPU, a driver or an answer."""
    host = target_host.host
    # First, because some GPUs are not on the PCI bus: under WSL.
    if not isinstance(host.smi, NoAccelerator):
        return host.smi
    sibling = find_sibling(target_host.specs, spec, "cpu")
    smaller = f"; {sibling} is the same release without GPU libraries" if sibling else ""
    if host.module:
        problem, step = f"this machine's driver is loaded but does not respond: {host.smi.what}", host.smi.next_step
    elif host.cards:
        problem = f"this machine has {host.cards}, but no driver: /proc/driver/nvidia/version is missing."
        step = DRIVER_HELP
    else:
        problem = "this machine has none: no display device on its PCI bus is NVIDIA's."
        step = "Use a machine with one."
    raise NoAccelerator(
        f"{spec.identifier} needs an NVIDIA GPU, and {problem}",
        next_step=f"{step} `tfimg run --no-gpu` runs the image on the processor{smaller}.",
    )


def _select_gpus(smi: NvidiaSmi, selection: Sequence[str]) -> tuple[Gpu, ...]:
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


def _check_one_gpu(matrix: Matrix, spec: ImageSpec, driver: str, gpu: Gpu) -> Iterator[str]:
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
    """Return the options of `docker run` for GPUs."""
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
