"""What a machine has → findings, each with why it matters and one next step."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tfimg.engine.build import NEEDED_BYTES
from tfimg.engine.network import HostNetwork
from tfimg.engine.protocol import Capabilities, Toolkit
from tfimg.errors import NoAccelerator, TfimgError
from tfimg.host.accelerators import ALL, Surroundings, gpu_access, gpu_flags
from tfimg.host.nvidia_smi import NvidiaSmi
from tfimg.host.run import GPU_SHM, check_gpu, check_tpu
from tfimg.host.survey import Host
from tfimg.matrix.schema import PROCESSORS, Device, Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DEVICE_NAMES

State = Literal["ok", "warning", "problem", "absent"]

LEAST_MEMORY = 4 * 1024**3
"""Ours: importing TensorFlow takes most of 1 GB, and a GPU's container may fill 1 GB of shared memory beside it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing of the machine. `next_step` is None where nothing is to be done."""

    name: str
    state: State
    found: str
    why: str
    next_step: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A machine, and what it is to do.

    `spec` is the image that was named, if one was; `newest` the newest for GPUs, for when none was. `toolkit` and
    `builder` are what the engine said to those who run and to those who build, or why it did not. `present` says
    that the image is in the engine already, so that nothing has to be built.
    """

    matrix: Matrix
    specs: tuple[ImageSpec, ...]
    host: Host
    toolkit: Toolkit | TfimgError
    builder: Capabilities | TfimgError
    network: HostNetwork
    spec: ImageSpec | None = None
    present: bool = False

    @property
    def newest(self) -> ImageSpec | None:
        """The newest GPU image for this platform, if there is one: what a GPU is measured by when none is named."""
        of_gpus = [spec for spec in self.specs if spec.device == "gpu" and spec.default_python]
        here = [spec for spec in of_gpus if spec.platform == self.host.platform]
        return here[-1] if here else None

    @property
    def surroundings(self) -> Surroundings:
        """Where an image would run. Without an engine, one on this machine that can do nothing is supposed."""
        silent = Toolkit(host="unix://", runtimes=(), cdi_folders=(), cdi_devices=())
        toolkit = silent if isinstance(self.toolkit, TfimgError) else self.toolkit
        return Surroundings(matrix=self.matrix, specs=self.specs, host=self.host, toolkit=toolkit)

    def needs(self, device: Device) -> bool:
        """Was an image named that is for this device?"""
        return self.spec is not None and self.spec.device == device


def examine(case: Case) -> tuple[Finding, ...]:
    """Every finding, those that others depend on first."""
    return tuple(check(case) for check in CHECKS)


def _refusal(name: str, state: State, error: TfimgError, why: str) -> Finding:
    return Finding(name=name, state=state, found=error.what, why=why, next_step=error.next_step)


def processor(case: Case) -> Finding:
    """AVX, and a platform that wheels are for."""
    host, why = (
        case.host,
        "TensorFlow's wheels are compiled for it: without, they die of an illegal instruction.",
    )
    if host.platform not in PROCESSORS:
        return Finding(
            name="processor", state="problem", found=f"{host.platform}, for which TensorFlow has no wheels", why=why,
            next_step="Use a machine with an x86-64 or 64-bit Arm processor.",
        )  # fmt: skip
    if host.avx is False:
        return Finding(
            name="processor", state="problem", found=f"{host.platform} without AVX", why=why,
            next_step="Use a processor of 2011 or later; give a virtual machine its host's (QEMU: -cpu host).",
        )  # fmt: skip
    return Finding(
        name="processor", state="ok", found=f"{host.platform}{' with AVX' if host.avx else ''}", why=why
    )


def memory(case: Case) -> Finding:
    """Memory of the machine, which shared memory is a part of."""
    why = f"A container's shared memory, {GPU_SHM} with a GPU, is taken from it; `tfimg run --shm-size` changes that."
    size = case.host.memory_bytes
    if size is None:
        return Finding(name="memory", state="absent", found="the kernel does not tell", why=why)
    found = f"{size / 1024**3:.1f} GiB"
    if size < LEAST_MEMORY:
        step = f"Give the machine {LEAST_MEMORY // 1024**3} GiB, or expect the kernel to end programs."
        return Finding(name="memory", state="warning", found=found, why=why, next_step=step)
    return Finding(name="memory", state="ok", found=found, why=why)


def engine(case: Case) -> Finding:
    """Does a container engine answer?"""
    why = "Images are built and run by it."
    if isinstance(case.toolkit, TfimgError):
        return _refusal("engine", "problem", case.toolkit, why)
    if not case.toolkit.local:
        return Finding(
            name="engine", state="warning", found=f"one on another machine answers at {case.toolkit.host}", why=why,
            next_step="What is said here of processor, memory and devices is true of this machine; run tfimg there.",
        )  # fmt: skip
    return Finding(name="engine", state="ok", found=f"one answers at {case.toolkit.host}", why=why)


def socket(case: Case) -> Finding:
    """May this user talk to the engine?"""
    why = "Who may write to the engine's socket may use it, and is as powerful as root."
    if case.host.socket == "closed":
        return Finding(
            name="socket", state="problem", found="it is there, and this user may not use it", why=why,
            next_step="As root: `usermod -aG docker USER`, then log in anew; or run tfimg as root.",
        )  # fmt: skip
    if case.host.socket == "absent":
        return Finding(name="socket", state="absent", found="no socket on this machine", why=why)
    return Finding(name="socket", state="ok", found="this user may use it", why=why)


def buildx(case: Case) -> Finding:
    """Can it build?"""
    why = "Builds go through it; images run without it."
    if isinstance(case.toolkit, TfimgError):
        return Finding(name="buildx", state="absent", found="not looked for: no engine answers", why=why)
    if isinstance(case.builder, TfimgError):
        return _refusal("buildx", "warning" if case.present else "problem", case.builder, why)
    found = f"{case.builder.buildx}, with Docker {case.builder.engine} and its {case.builder.store} store"
    return Finding(name="buildx", state="ok", found=found, why=why)


def disk(case: Case) -> Finding:
    """Is there room for a build?"""
    device = case.spec.device if case.spec else "cpu"
    needed = NEEDED_BYTES[device]
    why = f"A build for a {DEVICE_NAMES[device]} is not started with less than {needed / 1e9:.0f} GB."
    if isinstance(case.builder, TfimgError) or case.builder.free_bytes is None:
        return Finding(name="disk", state="absent", found="the engine's disk cannot be seen", why=why)
    found = f"{case.builder.free_bytes / 1e9:.1f} GB free below {case.builder.data_root}"
    if case.builder.free_bytes < needed:
        return Finding(
            name="disk", state="warning" if case.present else "problem", found=found, why=why,
            next_step="`docker builder prune` removes build cache, `docker image prune` unnamed images.",
        )  # fmt: skip
    return Finding(name="disk", state="ok", found=found, why=why)


def network(case: Case) -> Finding:
    """Proxy, index and certificate authorities of builds."""
    why = "Builds reach package indexes as this machine does; credentials reach them as secrets and are not shown."
    variables = case.network.variables
    proxy, index = variables.get("HTTPS_PROXY"), variables.get("UV_DEFAULT_INDEX")
    found = ", ".join(
        [
            f"proxy {_public(proxy)}" if proxy else "no proxy",
            f"index {_public(index)}" if index else "the public package index",
            f"authorities of {case.network.ca}" if case.network.ca else "no certificate authorities",
        ]
    )
    if case.network.ca is None:
        step = "Install ca-certificates, or name your bundle in SSL_CERT_FILE: a file that exists."
        return Finding(name="network", state="warning", found=found, why=why, next_step=step)
    if case.network.left_out:
        left = _public("; ".join(case.network.left_out))
        step = "Nothing, if builds need none of it; else serve it over HTTP: they do not see this machine's disk."
        return Finding(
            name="network", state="warning", found=f"{found}; not used: {left}", why=why, next_step=step
        )
    return Finding(name="network", state="ok", found=found, why=why)


def _public(url: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", url)


def gpu(case: Case) -> Finding:
    """A GPU whose driver and architecture suit the image, or the newest one if none is named."""
    needed = case.needs("gpu")
    spec = case.spec if needed else case.newest
    if spec is None or not (needed or _has_gpu(case.host)):
        found = "an NVIDIA GPU" if _has_gpu(case.host) else "no NVIDIA GPU in this machine"
        return Finding(name="gpu", state="absent", found=found, why="Images for CPUs need none.")
    why = f"{spec.identifier} needs driver {spec.driver} or newer, and code for the GPU."
    try:
        notes = check_gpu(spec, ALL, case.surroundings)
    except TfimgError as error:
        return _refusal("gpu", "problem" if needed else "warning", error, why)
    found = _gpus(case.host.smi)
    if notes:
        step = (
            f"Nothing, if that will do for {spec.identifier}; `tfimg resolve --gpu NAME` names other images."
        )
        return Finding(name="gpu", state="warning", found="; ".join([found, *notes]), why=why, next_step=step)
    return Finding(name="gpu", state="ok", found=found, why=why)


def _has_gpu(host: Host) -> bool:
    # Under WSL, only nvidia-smi knows.
    return bool(host.cards or host.module or not isinstance(host.smi, NoAccelerator))


def _gpus(smi: NvidiaSmi | NoAccelerator) -> str:
    if isinstance(smi, NoAccelerator):
        return "none seen from here"
    names = ", ".join(dict.fromkeys(one.name for one in smi.gpus))
    return f"{len(smi.gpus)} ({names}) with driver {smi.driver}"


def toolkit(case: Case) -> Finding:
    """Can the engine hand a GPU to a container?"""
    why = "A container sees no GPU that the engine does not hand to it."
    if isinstance(case.toolkit, TfimgError):
        return Finding(name="toolkit", state="absent", found="not looked for: no engine answers", why=why)
    try:
        flags = gpu_flags(gpu_access(case.toolkit, case.host), ALL)
    except TfimgError as error:
        if case.needs("gpu"):
            return _refusal("toolkit", "problem", error, why)
        if _has_gpu(case.host):
            return _refusal("toolkit", "warning", error, why)
        return Finding(name="toolkit", state="absent", found="no NVIDIA toolkit, and no GPU for it", why=why)
    return Finding(name="toolkit", state="ok", found=f"containers get GPUs by {' '.join(flags)}", why=why)


def tpu(case: Case) -> Finding:
    """A TPU, where there is one."""
    why = "Images for TPUs compute on nothing else."
    if not case.needs("tpu"):
        found = f"TPU at {', '.join(case.host.tpus)}" if case.host.tpus else "no Google TPU in this machine"
        return Finding(name="tpu", state="ok" if case.host.tpus else "absent", found=found, why=why)
    spec = case.spec
    assert spec is not None  # noqa: S101  (it needs a TPU)
    try:
        notes = check_tpu(spec, case.surroundings)
    except TfimgError as error:
        return _refusal("tpu", "problem", error, why)
    found = f"TPU at {', '.join(case.host.tpus)}" if case.host.tpus else "none seen"
    if notes:
        return Finding(name="tpu", state="warning", found=found, why=why, next_step=" ".join(notes))
    return Finding(name="tpu", state="ok", found=found, why=why)


CHECKS: tuple[Callable[[Case], Finding], ...] = (
    processor, memory, engine, socket, buildx, disk, network, gpu, toolkit, tpu,
)  # fmt: skip
