"""Diagnose a host: findings, each with the reason why it matters and one next step."""

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
from tfimg.host.run import GPU_SHM
from tfimg.host.survey import Host, TargetHost
from tfimg.index.network import HostNetwork
from tfimg.matrix.schema import PROCESSORS, Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import DEVICE_NAMES

State = Literal["ok", "warning", "problem", "absent"]

MIN_MEMORY_GIB = 4
"""Ours: importing TensorFlow takes most of 1 GB, and a GPU's container may fill 1 GB of shared memory beside it."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check; `next_step` is None if there is nothing to do."""

    state: State
    found: str
    next_step: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFinding:
    """A check's result, and why it matters."""

    name: str
    state: State
    found: str
    why: str
    next_step: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorRequest:
    """A host, and the image to build and run on it, if any.

    `toolkit` and `builder` are what the engine supports for running and building, or why it did not answer. `present`:
    the engine has the image already; `private`: tfimg started the engine. `remedy` returns the remedy of a failure that
    it recognises.
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
        """The newest GPU image for this platform, which a GPU is checked against if no image is named."""
        found = [spec for spec in self.specs if spec.device == "gpu" and spec.is_default_python]
        return next((spec for spec in reversed(found) if spec.platform == self.host.platform), None)

    @property
    def target_host(self) -> TargetHost:
        """Where an image would run; without an engine, a local engine without devices is assumed."""
        none = DeviceSupport(host="unix://", runtimes=(), cdi_folders=(), cdi_devices=())
        toolkit = none if isinstance(self.toolkit, TfimgError) else self.toolkit
        return TargetHost(matrix=self.matrix, specs=self.specs, host=self.host, toolkit=toolkit)

    @property
    def build_failure_state(self) -> State:
        """The state of a host that cannot build."""
        return "warning" if self.present else "problem"

    @property
    def needs_gpu(self) -> bool:
        """Whether the named image is for GPUs."""
        return self.spec is not None and self.spec.device == "gpu"


def diagnose(request: DoctorRequest) -> tuple[HostFinding, ...]:
    """Return every finding, those that others depend on first."""
    findings = []
    for name, why, check in CHECKS:
        result = check(request)
        known = request.remedy(result.found) if result.state in ("warning", "problem") else None
        next_step = known or result.next_step
        findings.append(HostFinding(name=name, why=why, state=result.state, found=result.found, next_step=next_step))
    return tuple(findings)


def _from_error(state: State, error: TfimgError) -> CheckResult:
    return CheckResult(state, error.what.strip(), error.next_step)


def _check_processor(request: DoctorRequest) -> CheckResult:
    platform, avx = request.host.platform, request.host.avx
    if platform not in PROCESSORS:
        step = "Use a machine with an x86-64 or 64-bit Arm processor."
        return CheckResult("problem", f"{platform}, for which TensorFlow has no wheels", step)
    if avx is False:
        step = "Use a processor of 2011 or later; give a virtual machine its host's (QEMU: -cpu host)."
        return CheckResult("problem", f"{platform} without AVX", step)
    return CheckResult("ok", f"{platform}{' with AVX' if avx else ''}")


def _check_memory(request: DoctorRequest) -> CheckResult:
    size = request.host.memory_bytes
    if size is None:
        return CheckResult("absent", "the kernel does not report it")
    found = f"{size / 1024**3:.1f} GiB"
    if size < MIN_MEMORY_GIB * 1024**3:
        step = f"Give the machine {MIN_MEMORY_GIB} GiB, or expect the kernel to end programs."
        return CheckResult("warning", found, step)
    return CheckResult("ok", found)


def _check_engine(request: DoctorRequest) -> CheckResult:
    if isinstance(request.toolkit, TfimgError):
        return _from_error("problem", request.toolkit)
    if not request.toolkit.local:
        step = "The findings on processor, memory and devices are those of this machine; run tfimg on the engine's."
        return CheckResult("warning", f"one on another machine answers at {request.toolkit.host}", step)
    return CheckResult("ok", f"one answers at {request.toolkit.host}")


def _check_socket(request: DoctorRequest) -> CheckResult:
    if request.host.socket == "closed":
        step = "As root: `usermod -aG docker USER`, then log in again; or run tfimg as root."
        return CheckResult("problem", "it exists, and this user may not use it", step)
    if request.host.socket == "absent":
        return CheckResult("absent", "no socket on this machine")
    return CheckResult("ok", "this user may use it")


def _check_bridge(request: DoctorRequest) -> CheckResult:
    if isinstance(request.builder, TfimgError):
        return CheckResult("absent", "not checked: no engine that builds answers")
    if bridge := request.builder.missing_bridge:
        step = suggest_bridge_repair(bridge, private=request.private)
        return CheckResult("problem", f"the engine's bridge {bridge} is gone", step)
    return CheckResult("ok", "nothing is missing")


def _check_buildx(request: DoctorRequest) -> CheckResult:
    if isinstance(request.toolkit, TfimgError):
        return NOT_CHECKED
    builder = request.builder
    if isinstance(builder, TfimgError):
        return _from_error(request.build_failure_state, builder)
    return CheckResult("ok", f"{builder.buildx}, with Docker {builder.engine} and its {builder.store} store")


def _check_disk(request: DoctorRequest) -> CheckResult:
    builder = request.builder
    if isinstance(builder, TfimgError) or builder.free_bytes is None:
        return CheckResult("absent", "the engine's disk cannot be seen")
    device = request.spec.device if request.spec else "cpu"
    found = f"{builder.free_bytes / 1e9:.1f} GB free below {builder.data_root}"
    required = required_disk_bytes(device, packed=builder.accepts_layers)
    if builder.free_bytes < required:
        step = "`docker builder prune` removes build cache, `docker image prune` unnamed images."
        needs = f"a build for a {DEVICE_NAMES[device]} needs {required / 1e9:.0f} GB"
        return CheckResult(request.build_failure_state, f"{found}; {needs}", step)
    return CheckResult("ok", found)


def _check_network(request: DoctorRequest) -> CheckResult:
    network = request.network
    proxy, index = network.variables.get("HTTPS_PROXY"), network.variables.get("UV_DEFAULT_INDEX")
    found = ", ".join(
        [
            f"proxy {_without_credentials(proxy)}" if proxy else "no proxy",
            f"index {_without_credentials(index)}" if index else "the public package index",
            f"authorities of {network.ca}" if network.ca else "no certificate authorities",
        ]
    )
    if network.ca is None:
        step = "Install ca-certificates, or set SSL_CERT_FILE to a file that exists."
        return CheckResult("warning", found, step)
    if network.left_out:
        step = "Builds do not see this machine's disk: serve it over HTTP if builds need it."
        return CheckResult("warning", f"{found}; not used: {_without_credentials('; '.join(network.left_out))}", step)
    return CheckResult("ok", found)


def _without_credentials(url: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", url)


def _check_gpus(request: DoctorRequest) -> CheckResult:
    """Check driver and architecture for the image, or for the newest one if none is named."""
    has_gpu = _has_gpu(request.host)
    spec = request.spec if request.needs_gpu else request.newest
    if spec is None or not (request.needs_gpu or has_gpu):
        return CheckResult("absent", "an NVIDIA GPU" if has_gpu else "no NVIDIA GPU in this machine")
    try:
        notes = check_gpu(spec, ALL_GPUS, request.target_host)
    except TfimgError as error:
        return _from_error("problem" if request.needs_gpu else "warning", error)
    found, smi = "none visible from here", request.host.smi
    if not isinstance(smi, NoAccelerator):
        names = ", ".join(dict.fromkeys(gpu.name for gpu in smi.gpus))
        found = f"{len(smi.gpus)} ({names}) with driver {smi.driver}"
    if notes:
        step = f"Nothing, if that is acceptable for {spec.identifier}; `tfimg which` recommends other images."
        return CheckResult("warning", "; ".join([found, *notes]), step)
    return CheckResult("ok", f"{found}, which {spec.identifier} runs on")


def _has_gpu(host: Host) -> bool:
    # Under WSL, only nvidia-smi sees it.
    return bool(host.cards or host.module or not isinstance(host.smi, NoAccelerator))


def _check_toolkit(request: DoctorRequest) -> CheckResult:
    if isinstance(request.toolkit, TfimgError):
        return NOT_CHECKED
    try:
        options = gpu_options(choose_gpu_access(request.toolkit, request.host), ALL_GPUS)
    except NoContainerToolkit as error:
        if request.needs_gpu or _has_gpu(request.host):
            return _from_error("problem" if request.needs_gpu else "warning", error)
        return CheckResult("absent", "no NVIDIA toolkit, and no GPU for it")
    return CheckResult("ok", f"containers get GPUs by {' '.join(options)}")


def _check_tpus(request: DoctorRequest) -> CheckResult:
    tpus = request.host.tpus
    found = f"TPU at {', '.join(tpus)}" if tpus else "no Google TPU in this machine"
    if request.spec is None or request.spec.device != "tpu":
        return CheckResult("ok" if tpus else "absent", found)
    try:
        notes = check_tpu(request.spec, request.target_host)
    except TfimgError as error:
        return _from_error("problem", error)
    return CheckResult("warning", found, " ".join(notes)) if notes else CheckResult("ok", found)


NOT_CHECKED = CheckResult("absent", "not checked: no engine answers")

CHECKS: tuple[tuple[str, str, Callable[[DoctorRequest], CheckResult]], ...] = (
    ("processor", "TensorFlow's wheels need AVX: without it they fail with an illegal instruction.", _check_processor),
    (
        "memory",
        f"A container's shared memory, {GPU_SHM} with a GPU, is taken from it; `tfimg run --shm-size` changes that.",
        _check_memory,
    ),
    ("engine", "It builds and runs images.", _check_engine),
    ("socket", "A user who may write to the engine's socket may use it, and is as powerful as root.", _check_socket),
    (
        "bridge",
        "Builds and containers are attached to it. Another daemon on the machine may remove it when it ends.",
        _check_bridge,
    ),
    ("buildx", "Builds need it; images run without it.", _check_buildx),
    ("disk", "A build without enough disk space is not started.", _check_disk),
    (
        "network",
        "Builds reach package indexes as this machine does; credentials reach them as secrets and are not shown.",
        _check_network,
    ),
    ("gpu", "A GPU image needs a driver that supports its CUDA, and code for the GPU.", _check_gpus),
    ("toolkit", "A container sees only the GPUs that the engine gives to it.", _check_toolkit),
    ("tpu", "TPU images need a TPU.", _check_tpus),
)
"""Name, reason and function of each check."""
