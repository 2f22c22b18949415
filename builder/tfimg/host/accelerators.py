"""Host + ImageSpec → what its device needs of the machine and of the engine, or what is missing of that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from packaging.version import Version

from tfimg.core.errors import NoAccelerator, NoContainerToolkit, UnavailableDriver, UnavailableGpu
from tfimg.engine.protocol import DeviceAccess, DeviceSupport
from tfimg.host.gpu_names import find_capability
from tfimg.host.nvidia_smi import Gpu, NvidiaSmi
from tfimg.host.survey import Host, TargetHost
from tfimg.matrix.gpus import describe_ptx, explain_no_support, find_driver_floor, find_execution_mode
from tfimg.matrix.schema import Device, Matrix
from tfimg.matrix.spec import ImageSpec

ALL_GPUS = ("all",)
"""The choice of every GPU of the machine."""

CDI_NAME = "nvidia.com/gpu"

DRIVER_HELP = (
    "Install NVIDIA's driver from your distribution's packages (Ubuntu: `ubuntu-drivers install`; Debian: "
    "nvidia-driver and the kernel's headers) and reboot. Where it is installed, `modprobe nvidia` and `dmesg` say "
    "why it is not loaded; Secure Boot refuses a module that is not signed."
)
TOOLKIT_HELP = (
    "Install NVIDIA's nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker` as root and "
    "restart the engine (one of tfimg's own: `tfimg engine down`, then `tfimg engine up`)."
)
CDI_HELP = (
    'Write "features": {"cdi": true} into /etc/docker/daemon.json and restart the engine (one of tfimg\'s own: '
    "`tfimg engine down`, then `tfimg engine up`)."
)


def find_sibling(specs: Sequence[ImageSpec], spec: ImageSpec, device: Device) -> str | None:
    """The identifier of the same release's image for another device, on the same Python if there is one."""
    same = [
        one for one in specs if (one.tensorflow, one.platform, one.device) == (spec.tensorflow, spec.platform, device)
    ]
    same.sort(key=lambda one: (one.python != spec.python, not one.is_default_python))
    return same[0].identifier if same else None


def check_gpu(spec: ImageSpec, asked: tuple[str, ...], target_host: TargetHost) -> tuple[str, ...]:
    """What to know of a GPU image on this machine. Raises what it lacks: a GPU, its driver, a newer one."""
    if not target_host.toolkit.local:
        return (f"GPU and driver were not checked: the engine at {target_host.toolkit.host} is on another machine.",)
    smi = _find_driver(spec, target_host.host, instead=_instead(spec, target_host.specs))
    return (*_judge(target_host.matrix, spec, smi.driver, _choose(smi, asked)), *smi.problems)


def _instead(spec: ImageSpec, specs: Sequence[ImageSpec]) -> str:
    """What can be done with a GPU image's release where there is no GPU."""
    other = find_sibling(specs, spec, "cpu")
    smaller = f"; {other} is the same release without what GPUs need" if other else ""
    return f"`tfimg run --no-gpu` runs the image on the processor{smaller}."


def _find_driver(spec: ImageSpec, host: Host, *, instead: str) -> NvidiaSmi:
    """What nvidia-smi said. Raises `NoAccelerator`: no GPU, no driver, or a driver that does not answer.

    `instead` is what can be done without a GPU.
    """
    # First, because there are GPUs that are not on the PCI bus: under WSL.
    if not isinstance(host.smi, NoAccelerator):
        return host.smi
    whose = f"{spec.identifier} computes on NVIDIA GPUs"
    if not host.cards and not host.module:
        raise NoAccelerator(
            f"{whose}, and this machine has none: no display device on its PCI bus is NVIDIA's.",
            next_step=f"Use a machine with one. {instead}",
        )
    if not host.module:
        raise NoAccelerator(
            f"{whose}, and this machine has {host.cards}, but no driver: /proc/driver/nvidia/version is missing.",
            next_step=f"{DRIVER_HELP} {instead}",
        )
    raise NoAccelerator(
        f"{whose}, and this machine's driver is loaded and does not answer: {host.smi.what}",
        next_step=f"{host.smi.next_step} {instead}",
    )


def _choose(smi: NvidiaSmi, asked: Sequence[str]) -> tuple[Gpu, ...]:
    """The GPUs of the machine that were asked for. Raises `NoAccelerator` for a number that none has.

    Where one cannot be read, it is not known which numbers the others have.
    """
    # The part of a GPU (MIG) has the GPU's number before the colon.
    numbers = [int(one.partition(":")[0]) for one in asked if re.fullmatch(r"[0-9]+(:[0-9]+)?", one)]
    if smi.problems:
        return smi.gpus
    if absent := [number for number in numbers if number >= len(smi.gpus)]:
        raise NoAccelerator(
            f"--gpus {','.join(asked)}: this machine has no GPU {absent[0]}, its last is {len(smi.gpus) - 1}.",
            next_step="`nvidia-smi -L` lists them; --gpus all takes every one.",
        )
    # An identity (GPU-…, MIG-…) may be any of them.
    return tuple(smi.gpus[number] for number in numbers) if len(numbers) == len(asked) else smi.gpus


def _judge(matrix: Matrix, spec: ImageSpec, driver: str, gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """What to know of an image on these GPUs, when one of them runs it.

    Raises `UnavailableGpu` or `UnavailableDriver` when none does.
    """
    refusals: dict[Gpu, UnavailableGpu | UnavailableDriver] = {}
    notes: list[str] = []
    for gpu in dict.fromkeys(gpus):
        try:
            notes.extend(_judge_one(matrix, spec, driver, gpu))
        except (UnavailableGpu, UnavailableDriver) as refusal:
            refusals[gpu] = refusal
    if refusals and len(refusals) == len(set(gpus)):
        raise next(iter(refusals.values()))
    return (*notes, *(f"Not of use here: {refusal}" for refusal in refusals.values()))


def _judge_one(matrix: Matrix, spec: ImageSpec, driver: str, gpu: Gpu) -> Iterator[str]:
    sm = find_capability(matrix, gpu)
    means = find_execution_mode(matrix, spec.gpu, sm) if spec.gpu and sm else None
    if spec.gpu and sm and means is None:
        why = explain_no_support(matrix, spec.gpu, sm)
        raise UnavailableGpu(
            f"{spec.identifier} has no code for this machine's {gpu.name} ({sm}){f': {why}' if why else ''}",
            next_step=f"`tfimg resolve --gpu {sm}` names an image that has, or says why there is none.",
        )
    floor = find_driver_floor(matrix, spec, sm)
    if floor and Version(driver) < Version(floor):
        raise UnavailableDriver(
            f"{spec.identifier} needs NVIDIA driver {floor} or newer on {gpu.name}, and this machine's is {driver}.",
            next_step=f"Install a newer driver and reboot; or take an image for this one: `tfimg resolve --driver "
            f"{driver}{f' --gpu {sm}' if sm else ''}`.",
        )
    if sm is None:
        yield f"{gpu.name} is not in the matrix, and its driver does not tell its compute capability: it may not run."
    elif spec.gpu and means != "code":
        yield (
            f"TensorFlow {spec.tensorflow} has no code for {gpu.name} ({sm}), only PTX for the driver: "
            f"{describe_ptx(matrix, spec.gpu, sm)}."
        )


def gpu_options(access: DeviceAccess, asked: Sequence[str]) -> list[str]:
    """How `docker run` is asked for GPUs."""
    if access == "cdi":
        return [word for one in asked for word in ("--device", f"{CDI_NAME}={one}")]
    # Docker reads the value as CSV: without the quotes, a second GPU would be another option.
    return ["--gpus", "all" if asked == ALL_GPUS else f'"device={",".join(asked)}"']


def choose_gpu_access(toolkit: DeviceSupport, host: Host) -> DeviceAccess:
    """How the engine hands GPUs to containers. Raises `NoContainerToolkit` when it has no way.

    `--gpus` needs NVIDIA's hook where the engine runs, which comes with the runtime `nvidia`; CDI needs a
    specification of NVIDIA's in a folder that the engine reads.
    """
    if "nvidia" in toolkit.runtimes or (toolkit.local and host.hook):
        return "nvidia"
    listed = any(device.startswith(f"{CDI_NAME}=") for device in toolkit.cdi_devices)
    if listed or (toolkit.local and set(toolkit.cdi_folders) & set(host.cdi)):
        return "cdi"
    off = host.cdi and toolkit.local and not toolkit.cdi_folders
    raise NoContainerToolkit(
        f"The engine at {toolkit.host} cannot hand a GPU to a container: it does not have NVIDIA's runtime, and "
        + (
            "CDI, for which there is a specification of NVIDIA's, is off."
            if off
            else "knows no CDI device of NVIDIA's."
        ),
        next_step=CDI_HELP if off else TOOLKIT_HELP,
    )


def check_tpu(spec: ImageSpec, target_host: TargetHost) -> tuple[str, ...]:
    """What to know of a TPU image on this machine. Raises `NoAccelerator` where there is no TPU."""
    if not target_host.toolkit.local:
        return (f"The TPU was not checked: the engine at {target_host.toolkit.host} is on another machine.",)
    if not target_host.host.tpus:
        raise NoAccelerator(
            f"{spec.identifier} computes on a Google TPU, and this machine has none: there is neither /dev/accel0 nor "
            "/dev/vfio/0.",
            next_step="Use a Cloud TPU VM, made with `--version tpu-ubuntu2204-base`.",
        )
    if target_host.host.closed_tpus:
        return (
            f"Only some users may open {', '.join(target_host.host.closed_tpus)}: where it is refused, use --user 0.",
        )
    return ()
