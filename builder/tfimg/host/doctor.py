"""What a machine has → findings, each with why it matters and one next step."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tfimg.core.errors import NoAccelerator, NoContainerToolkit, TfimgError
from tfimg.engine.disk_space import required_disk_bytes
from tfimg.engine.docker.bridge import suggest_bridge_repair
from tfimg.engine.protocol import Capabilities, DeviceSupport
from tfimg.host.accelerators import ALL_GPUS, check_gpu, check_tpu, choose_gpu_access, gpu_options
from tfimg.host.nvidia_smi import NvidiaSmi
from tfimg.host.run import GPU_SHM
from tfimg.host.survey import Host, TargetHost
from tfimg.index.network import HostNetwork
from tfimg.matrix.schema import PROCESSORS, Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DEVICE_NAMES

State = Literal["ok", "warning", "problem", "absent"]

MIN_MEMORY_BYTES = 4 * 1024**3
"""Ours: importing TensorFlow takes most of 1 GB, and a GPU's container may fill 1 GB of shared memory beside it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFinding:
    """One thing of the machine. `next_step` is None where nothing is to be done."""

    name: str
    state: State
    found: str
    why: str
    next_step: str | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found, and what to do about it."""

    state: State
    found: str
    next_step: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorRequest:
    """A machine, and what it is to do.

    `spec` is the image that was named, if one was; `newest` the newest for GPUs, for when none was. `toolkit` and
    `builder` are what the engine said to those who run and to those who build, or why it did not. `present` says
    that the image is in the engine already, so that nothing has to be built, `private` that tfimg started the engine.
    `remedy` knows what helps against a failure that it recognises by its words.
    """

    matrix: Matrix
    specs: tuple[ImageSpec, ...]
    host: Host
    toolkit: DeviceSupport | TfimgError
    builder: Capabilities | TfimgError
    network: HostNetwork
    remedy: Callable[[str], str | None] = lambda _: None
    spec: ImageSpec | None = None
    present: bool = False
    private: bool = False

    @property
    def newest(self) -> ImageSpec | None:
        """The newest GPU image for this platform, if there is one: what a GPU is measured by when none is named."""
        of_gpus = [spec for spec in self.specs if spec.device == "gpu" and spec.is_default_python]
        here = [spec for spec in of_gpus if spec.platform == self.host.platform]
        return here[-1] if here else None

    @property
    def target_host(self) -> TargetHost:
        """Where an image would run. Without an engine, one on this machine that can do nothing is supposed."""
        silent = DeviceSupport(host="unix://", runtimes=(), cdi_folders=(), cdi_devices=())
        toolkit = silent if isinstance(self.toolkit, TfimgError) else self.toolkit
        return TargetHost(matrix=self.matrix, specs=self.specs, host=self.host, toolkit=toolkit)

    @property
    def unless_present(self) -> State:
        """How bad it is that nothing can be built."""
        return "warning" if self.present else "problem"

    @property
    def needs_gpu(self) -> bool:
        """Was an image named that is for GPUs?"""
        return self.spec is not None and self.spec.device == "gpu"


def diagnose(case: DoctorRequest) -> tuple[HostFinding, ...]:
    """Every finding, those that others depend on first."""
    looked = ((name, why, check(case)) for name, why, check in CHECKS)
    return tuple(
        HostFinding(name=name, why=why, state=one.state, found=one.found, next_step=_step(case, one))
        for name, why, one in looked
    )


def _refused(state: State, error: TfimgError) -> CheckResult:
    return CheckResult(state, error.what.strip(), error.next_step)


def _step(case: DoctorRequest, one: CheckResult) -> str | None:
    """What to do about it: what is known of these very words, else what the check says."""
    known = case.remedy(one.found) if one.state in ("warning", "problem") else None
    return known or one.next_step


def processor(case: DoctorRequest) -> CheckResult:
    """AVX, and a platform that wheels are for."""
    platform, avx = case.host.platform, case.host.avx
    if platform not in PROCESSORS:
        step = "Use a machine with an x86-64 or 64-bit Arm processor."
        return CheckResult("problem", f"{platform}, for which TensorFlow has no wheels", step)
    if avx is False:
        step = "Use a processor of 2011 or later; give a virtual machine its host's (QEMU: -cpu host)."
        return CheckResult("problem", f"{platform} without AVX", step)
    return CheckResult("ok", f"{platform}{' with AVX' if avx else ''}")


def memory(case: DoctorRequest) -> CheckResult:
    """Memory of the machine, which shared memory is a part of."""
    size = case.host.memory_bytes
    if size is None:
        return CheckResult("absent", "the kernel does not tell")
    found = f"{size / 1024**3:.1f} GiB"
    if size < MIN_MEMORY_BYTES:
        step = f"Give the machine {MIN_MEMORY_BYTES // 1024**3} GiB, or expect the kernel to end programs."
        return CheckResult("warning", found, step)
    return CheckResult("ok", found)


def engine(case: DoctorRequest) -> CheckResult:
    """Does a container engine answer?"""
    if isinstance(case.toolkit, TfimgError):
        return _refused("problem", case.toolkit)
    if not case.toolkit.local:
        step = "What is said here of processor, memory and devices is true of this machine; run tfimg there."
        return CheckResult("warning", f"one on another machine answers at {case.toolkit.host}", step)
    return CheckResult("ok", f"one answers at {case.toolkit.host}")


def socket(case: DoctorRequest) -> CheckResult:
    """May this user talk to the engine?"""
    if case.host.socket == "closed":
        step = "As root: `usermod -aG docker USER`, then log in anew; or run tfimg as root."
        return CheckResult("problem", "it is there, and this user may not use it", step)
    if case.host.socket == "absent":
        return CheckResult("absent", "no socket on this machine")
    return CheckResult("ok", "this user may use it")


def bridge(case: DoctorRequest) -> CheckResult:
    """Does the engine have the bridge that builds and containers are attached to?"""
    if isinstance(case.builder, TfimgError):
        return CheckResult("absent", "not looked for: no engine that builds answers")
    if lost := case.builder.missing_bridge:
        repair = suggest_bridge_repair(lost, private=case.private)
        return CheckResult("problem", f"the engine's bridge {lost} is gone", repair)
    return CheckResult("ok", "nothing is missing")


def buildx(case: DoctorRequest) -> CheckResult:
    """Can it build?"""
    if isinstance(case.toolkit, TfimgError):
        return NOT_LOOKED_FOR
    if isinstance(case.builder, TfimgError):
        return _refused(case.unless_present, case.builder)
    return CheckResult(
        "ok", f"{case.builder.buildx}, with Docker {case.builder.engine} and its {case.builder.store} store"
    )


def disk(case: DoctorRequest) -> CheckResult:
    """Is there room for a build?"""
    if isinstance(case.builder, TfimgError) or case.builder.free_bytes is None:
        return CheckResult("absent", "the engine's disk cannot be seen")
    device = case.spec.device if case.spec else "cpu"
    found = f"{case.builder.free_bytes / 1e9:.1f} GB free below {case.builder.data_root}"
    least = required_disk_bytes(device, packed=case.builder.accepts_layers)
    if case.builder.free_bytes < least:
        needed = f"a build for a {DEVICE_NAMES[device]} needs {least / 1e9:.0f} GB"
        step = "`docker builder prune` removes build cache, `docker image prune` unnamed images."
        return CheckResult(case.unless_present, f"{found}; {needed}", step)
    return CheckResult("ok", found)


def network(case: DoctorRequest) -> CheckResult:
    """Proxy, index and certificate authorities of builds."""
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
        return CheckResult("warning", found, step)
    if case.network.left_out:
        step = "Nothing, if builds need none of it; else serve it over HTTP: they do not see this machine's disk."
        return CheckResult("warning", f"{found}; not used: {_public('; '.join(case.network.left_out))}", step)
    return CheckResult("ok", found)


def _public(url: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", url)


def gpu(case: DoctorRequest) -> CheckResult:
    """A GPU whose driver and architecture suit the image, or the newest one if none is named."""
    needed = case.needs_gpu
    spec = case.spec if needed else case.newest
    if spec is None or not (needed or _has_gpu(case.host)):
        return CheckResult("absent", "an NVIDIA GPU" if _has_gpu(case.host) else "no NVIDIA GPU in this machine")
    try:
        notes = check_gpu(spec, ALL_GPUS, case.target_host)
    except TfimgError as error:
        return _refused("problem" if needed else "warning", error)
    found = _gpus(case.host.smi)
    if notes:
        step = f"Nothing, if that will do for {spec.identifier}; `tfimg which` names other images."
        return CheckResult("warning", "; ".join([found, *notes]), step)
    return CheckResult("ok", f"{found}, which {spec.identifier} runs on")


def _has_gpu(host: Host) -> bool:
    # Under WSL, only nvidia-smi knows.
    return bool(host.cards or host.module or not isinstance(host.smi, NoAccelerator))


def _gpus(smi: NvidiaSmi | NoAccelerator) -> str:
    if isinstance(smi, NoAccelerator):
        return "none seen from here"
    names = ", ".join(dict.fromkeys(one.name for one in smi.gpus))
    return f"{len(smi.gpus)} ({names}) with driver {smi.driver}"


def toolkit(case: DoctorRequest) -> CheckResult:
    """Can the engine hand a GPU to a container?"""
    if isinstance(case.toolkit, TfimgError):
        return NOT_LOOKED_FOR
    try:
        flags = gpu_options(choose_gpu_access(case.toolkit, case.host), ALL_GPUS)
    except NoContainerToolkit as error:
        if case.needs_gpu:
            return _refused("problem", error)
        if _has_gpu(case.host):
            return _refused("warning", error)
        return CheckResult("absent", "no NVIDIA toolkit, and no GPU for it")
    return CheckResult("ok", f"containers get GPUs by {' '.join(flags)}")


def tpu(case: DoctorRequest) -> CheckResult:
    """A TPU, where there is one."""
    found = f"TPU at {', '.join(case.host.tpus)}" if case.host.tpus else "no Google TPU in this machine"
    if case.spec is None or case.spec.device != "tpu":
        return CheckResult("ok" if case.host.tpus else "absent", found)
    try:
        notes = check_tpu(case.spec, case.target_host)
    except TfimgError as error:
        return _refused("problem", error)
    return CheckResult("warning", found, " ".join(notes)) if notes else CheckResult("ok", found)


NOT_LOOKED_FOR = CheckResult("absent", "not looked for: no engine answers")

CHECKS: tuple[tuple[str, str, Callable[[DoctorRequest], CheckResult]], ...] = (
    ("processor", "TensorFlow's wheels are compiled for AVX: without, they die of an illegal instruction.", processor),
    (
        "memory",
        f"A container's shared memory, {GPU_SHM} with a GPU, is taken from it; `tfimg run --shm-size` changes that.",
        memory,
    ),
    ("engine", "Images are built and run by it.", engine),
    ("socket", "Who may write to the engine's socket may use it, and is as powerful as root.", socket),
    (
        "bridge",
        "Builds and containers are attached to it. Another daemon on the machine may remove it when it ends.",
        bridge,
    ),
    ("buildx", "Builds go through it; images run without it.", buildx),
    ("disk", "A build that cannot end is not started.", disk),
    (
        "network",
        "Builds reach package indexes as this machine does; credentials reach them as secrets and are not shown.",
        network,
    ),
    ("gpu", "An image for GPUs needs a driver that knows its CUDA, and code for the GPU; others need none.", gpu),
    ("toolkit", "A container sees no GPU that the engine does not hand to it.", toolkit),
    ("tpu", "Images for TPUs compute on nothing else.", tpu),
)
"""What is looked at: its name, why it matters, and how."""
