"""Diagnose a host: findings, each with the reason why it matters and one next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tfimg.core.errors import DiskSpaceError, NoAccelerator, NoContainerToolkit, TfimgError
from tfimg.core.failures import disk_error
from tfimg.core.text import remove_credentials
from tfimg.engine.interface import Capabilities, DeviceSupport
from tfimg.engine.machine import INSTALL_ENGINE, NamespaceProblem, check_disk_space
from tfimg.host.run import GPU_SHM
from tfimg.host.survey import ALL_GPUS, Host, TargetHost, check_gpu, check_tpu, choose_gpu_access, gpu_options
from tfimg.matrix.devices import CPU, GPU
from tfimg.matrix.schema import PROCESSORS, Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.validation.run import find_cause

if TYPE_CHECKING:
    from tfimg.index.network import HostNetwork

State = Literal["ok", "warning", "problem", "absent", "not checked"]
"""`ok` is said of what was tried alone."""

MIN_MEMORY_GIB = 4
"""Ours: importing TensorFlow takes most of 1 GB, and a GPU's container may fill 1 GB of shared memory beside it."""


STATE_BYTES: Mapping[bool, int] = {True: 4_000_000_000, False: 1_500_000_000}
"""Ours: bytes in the state folder for wheels and layers of an image with a GPU, and without one. Two images without
took 1.1 GB; those with one are larger by what `packed_bytes` of the devices says."""

Result = tuple[State, str, str | None]  # state, what a check found, and the next step; None if there is nothing to do


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
    the engine has the image already. `indexes` and `registry` have the addresses of servers, each with the seconds of
    its answer, or why there was none; `state` is the state folder with its free bytes. `bootstrap` is what keeps this
    user from bases of Debian packages, None if nothing is known to. `has_base`: the engine has the base of `spec`, or
    that of any image without one. `suite` is the folder of the validation suite,
    whose table of known failures has fixes.
    """

    matrix: Matrix
    specs: tuple[ImageSpec, ...]
    host: Host
    toolkit: DeviceSupport | TfimgError
    builder: Capabilities | TfimgError
    network: HostNetwork
    indexes: Mapping[str, float | TfimgError]
    registry: Mapping[str, float | TfimgError]
    state: tuple[Path, int]
    bootstrap: NamespaceProblem | None = None
    has_mmdebstrap: bool = True
    has_base: bool = False
    suite: Path | None = None
    spec: ImageSpec | None = None
    present: bool = False

    @property
    def target_host(self) -> TargetHost:
        """Where an image would run; without an engine, a local engine without devices is assumed."""
        none = DeviceSupport(host="unix://", runtimes=(), cdi_folders=(), cdi_devices=())
        toolkit = none if isinstance(self.toolkit, TfimgError) else self.toolkit
        return TargetHost(matrix=self.matrix, specs=self.specs, host=self.host, toolkit=toolkit)

    @property
    def build_failure_state(self) -> State:
        return "warning" if self.present else "problem"

    @property
    def needs_gpu(self) -> bool:
        return self.spec is not None and self.spec.device == GPU


def diagnose(request: DoctorRequest) -> tuple[HostFinding, ...]:
    """Return every finding, those that others depend on first."""
    findings = []
    for name, why, check in CHECKS:
        state, found, next_step = check(request)
        if request.suite and state in ("warning", "problem") and (cause := find_cause(found, suite=request.suite)):
            next_step = cause.fix
        findings.append(HostFinding(name=name, why=why, state=state, found=found, next_step=next_step))
    return tuple(findings)


def _from_error(state: State, error: TfimgError) -> Result:
    return state, error.what.strip(), error.next_step


def _check_processor(request: DoctorRequest) -> Result:
    platform, avx = request.host.platform, request.host.avx
    if platform not in PROCESSORS:
        step = "Use a machine with an x86-64 or 64-bit Arm processor."
        return "problem", f"{platform}, for which TensorFlow has no wheels", step
    if avx is False:
        step = "Use a processor of 2011 or later; give a virtual machine its host's (QEMU: -cpu host)."
        return "problem", f"{platform} without AVX", step
    return "ok", f"{platform}{' with AVX' if avx else ''}", None


def _check_memory(request: DoctorRequest) -> Result:
    size = request.host.memory_bytes
    if size is None:
        return "not checked", "the kernel does not report it", None
    found = f"{size / 1024**3:.1f} GiB"
    if size < MIN_MEMORY_GIB * 1024**3:
        step = f"Give the machine {MIN_MEMORY_GIB} GiB, or expect the kernel to end programs."
        return "warning", found, step
    return "ok", found, None


def _check_engine(request: DoctorRequest) -> Result:
    if isinstance(request.toolkit, TfimgError):
        return _from_error("problem", request.toolkit)
    if not request.toolkit.local:
        step = "The findings on processor, memory and devices are those of this machine; run tfimg on the engine's."
        return "warning", f"responds at {request.toolkit.host}, on another machine", step
    name = "Podman, which runs images and does not build them, " if request.toolkit.engine == "Podman" else ""
    return "ok", f"{name}responds at {request.toolkit.host}", None


def _check_socket(request: DoctorRequest) -> Result:
    if request.host.socket == "closed":
        step = "As root: `usermod -aG docker USER`, then log in again; or run tfimg as root."
        return "problem", "it exists, and this user may not use it", step
    if request.host.socket == "absent":
        return "absent", "no socket on this machine", None
    return "ok", "this user may use it", None


def _check_buildx(request: DoctorRequest) -> Result:
    if isinstance(request.toolkit, TfimgError):
        return NOT_CHECKED
    builder = request.builder
    if isinstance(builder, TfimgError):
        return _from_error(request.build_failure_state, builder)
    return "ok", f"{builder.buildx}, with Docker {builder.engine} and its {builder.store} store", None


def _check_disk(request: DoctorRequest) -> Result:
    builder = request.builder
    if isinstance(builder, TfimgError) or builder.free_bytes is None:
        return "not checked", "the free space of the engine's disk is unknown", None
    try:
        check_disk_space(builder, request.spec.device if request.spec else CPU)
    except DiskSpaceError as error:
        return _from_error(request.build_failure_state, error)
    return "ok", f"{builder.free_bytes / 1e9:.1f} GB free below {builder.data_root}", None


def _check_state(request: DoctorRequest) -> Result:
    folder, free = request.state
    needed = STATE_BYTES[request.needs_gpu]
    if free < needed:
        step = "Free some space there, or name a folder on another disk with TFIMG_STATE."
        error = disk_error("A build", folder, needed=needed, free=free, next_step=step)
        return _from_error(request.build_failure_state, error)
    return "ok", f"{free / 1e9:.1f} GB free at {folder}", None


def _check_index(request: DoctorRequest) -> Result:
    network = request.network
    failures = [answer for answer in request.indexes.values() if isinstance(answer, TfimgError)]
    if failures:
        return _from_error(request.build_failure_state, failures[0])
    found = _describe_answers(request.indexes, network)
    if network.ca is None:
        step = "Install ca-certificates, or set SSL_CERT_FILE to a file that exists."
        return "warning", f"{found}; no file of certificate authorities for builds", step
    if network.left_out:
        step = "Builds do not see this machine's disk: serve it over HTTP if builds need it."
        return "warning", f"{found}; not used: {remove_credentials('; '.join(network.left_out))}", step
    return "ok", f"{found}, with the authorities of {network.ca}", None


def _check_registry(request: DoctorRequest) -> Result:
    for answer in request.registry.values():
        if isinstance(answer, TfimgError):
            return "warning", answer.what, f"{answer.next_step} Or name a mirror of the registry with --mirror."
    return "ok", _describe_answers(request.registry, request.network), None


def _describe_answers(servers: Mapping[str, float | TfimgError], network: HostNetwork) -> str:
    proxy = network.variables.get("HTTPS_PROXY")
    through = f" (HTTPS_PROXY is {remove_credentials(proxy)})" if proxy else ""
    answers = (f"{remove_credentials(name)} answered in {seconds:.1f} s" for name, seconds in servers.items())
    return f"{', '.join(answers)}{through}"


def _check_bootstrap(request: DoctorRequest) -> Result:
    if request.bootstrap:
        found = f"this user cannot make a base of Debian packages: {request.bootstrap.what}"
        step = request.bootstrap.next_step
    elif not request.has_mmdebstrap:
        found, step = "mmdebstrap is not installed", f"{INSTALL_ENGINE} installs it."
    else:
        return "not checked", "mmdebstrap is installed, and nothing is known to prevent it", None
    if not any(isinstance(answer, TfimgError) for answer in request.registry.values()):
        return "absent", found, None
    if request.has_base:
        return "warning", found, step
    found += ", and no registry answers: without a base in the engine, builds fail"
    return request.build_failure_state, found, step


def _check_gpus(request: DoctorRequest) -> Result:
    """Check driver and architecture for the image, or for the newest one if none is named."""
    has_gpu = _has_gpu(request.host)
    spec = request.spec
    if not request.needs_gpu:
        images = [one for one in request.specs if one.device == GPU and one.is_default_python and one.is_usual_toolkit]
        spec = next((one for one in reversed(images) if one.platform == request.host.platform), None)
    if spec is None or not (request.needs_gpu or has_gpu):
        return "absent", "an NVIDIA GPU" if has_gpu else "no NVIDIA GPU in this machine", None
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
        return "warning", "; ".join([found, *notes]), step
    return "ok", f"{found}, which {spec.identifier} runs on", None


def _has_gpu(host: Host) -> bool:
    # Under WSL, only nvidia-smi sees it.
    return bool(host.cards or host.module or not isinstance(host.smi, NoAccelerator))


def _check_toolkit(request: DoctorRequest) -> Result:
    if isinstance(request.toolkit, TfimgError):
        return NOT_CHECKED
    try:
        options = gpu_options(choose_gpu_access(request.toolkit, request.host), ALL_GPUS)
    except NoContainerToolkit as error:
        if request.needs_gpu or _has_gpu(request.host):
            return _from_error("problem" if request.needs_gpu else "warning", error)
        return "absent", "no NVIDIA toolkit, and no GPU for it", None
    return "ok", f"containers get GPUs by {' '.join(options)}", None


def _check_tpus(request: DoctorRequest) -> Result:
    tpus = request.host.tpus
    found = f"TPU at {', '.join(tpus)}" if tpus else "no Google TPU in this machine"
    if request.spec is None or not request.spec.libtpu:
        return "ok" if tpus else "absent", found, None
    try:
        notes = check_tpu(request.spec, request.target_host)
    except TfimgError as error:
        return _from_error("problem", error)
    return ("warning", found, " ".join(notes)) if notes else ("ok", found, None)


NOT_CHECKED: Result = ("not checked", "no engine answers", None)

CHECKS: tuple[tuple[str, str, Callable[[DoctorRequest], Result]], ...] = (
    ("processor", "TensorFlow's wheels need AVX: without it they fail with an illegal instruction.", _check_processor),
    ("memory", f"A container's shared memory, {GPU_SHM} with a GPU, is taken from it.", _check_memory),
    ("engine", "It builds and runs images.", _check_engine),
    ("socket", "Write access to the engine's socket allows its use, and equals root access.", _check_socket),
    ("buildx", "Builds need it; images run without it.", _check_buildx),
    ("disk", "A build without enough disk space is not started.", _check_disk),
    ("state", "tfimg keeps the wheels and layers of images in its state folder.", _check_state),
    ("index", "Builds reach package indexes as this machine does, with its proxy and credentials.", _check_index),
    ("registry", "It has the official base images; without it, bases are made of Debian packages.", _check_registry),
    ("bootstrap", "mmdebstrap makes a base where the registry does not answer.", _check_bootstrap),
    ("gpu", "A GPU image needs a driver that supports its CUDA, and code for the GPU.", _check_gpus),
    ("toolkit", "A container sees only the GPUs that the engine gives to it.", _check_toolkit),
    ("tpu", "TPU images need a TPU.", _check_tpus),
)
"""Name, reason and function of each check."""
