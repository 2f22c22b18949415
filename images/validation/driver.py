"""Query NVIDIA's driver through libcuda.so.1 (CUDA driver API): its GPUs and their free memory.

`gpus` asks in a process of its own, so that a driver that crashes or hangs harms nothing, and so that this process has
not initialised CUDA when it forks. The environment is this process's: CUDA_VISIBLE_DEVICES, MIG and what a container
was handed count as they do for TensorFlow.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import native_client
from contract import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Tuple

LIBRARY = "libcuda.so.1"
MIB = 2**20
# CUdevice_attribute of the CUDA driver API: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
CAPABILITY = (75, 76)
NAME_BYTES = 256
# CUresult of the CUDA driver API: what a driver answers that does not let a program use its GPUs.
ERRORS = {
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    34: "CUDA_ERROR_STUB_LIBRARY",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    304: "CUDA_ERROR_OPERATING_SYSTEM",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    999: "CUDA_ERROR_UNKNOWN",
}
# Without persistence mode the driver starts each GPU when a process opens it, one after the other: 1 to 3 s for ECC
# scrubbing alone (NVIDIA, Driver Persistence), and a minute or more for eight. Not measured here: there is no GPU.
START_SECONDS = 20.0


@dataclass(frozen=True)
class Gpu:
    """A GPU as the driver describes it; `capability` is the compute capability, "9.0"."""

    name: str
    capability: str
    memory_mib: int


@dataclass(frozen=True)
class Driver:
    """What the driver told. `cuda` is the newest CUDA version that it knows, "12.4"; None where it does not load.

    `problem` says why it told no more than this; None when it answered every question.
    """

    cuda: str | None
    gpus: Sequence[Gpu]
    problem: str | None

    @property
    def capabilities(self) -> Sequence[str]:
        """The compute capability of each GPU."""
        return [gpu.capability for gpu in self.gpus]


def ask_driver() -> Driver:
    """Ask the driver for its GPUs, in a process of its own. A driver that cannot be asked is a `problem`."""
    try:
        answer = native_client.ask("gpus", seconds=native_client.SECONDS + START_SECONDS * len(device_nodes()))
    except CheckFailed as failed:
        return Driver(cuda=None, gpus=(), problem=failed.reason)
    return Driver(answer["cuda"], [Gpu(**gpu) for gpu in answer["gpus"]], answer["problem"])


def capability() -> Tuple[int, int] | None:
    """The compute capability of the first GPU, (9, 0); None where the driver cannot be asked or has no GPU."""
    gpus = ask_driver().gpus
    return parse_capability(gpus[0].capability) if gpus else None


def parse_capability(text: str) -> Tuple[int, int]:
    """Read a compute capability: 9.0, sm_90, compute_90, and 9.0a or sm_120f with the suffix left out.

    A suffix names code for one GPU or one family (PTX ISA, targets); GPUs themselves have none.
    """
    found = re.match(r"(?:(?:sm|compute)_(\d+)(\d)|(\d+)\.(\d+))[af]?$", text)
    if not found:
        raise ValueError(f"{text!r} is not a compute capability")
    major, minor = found.group(1) or found.group(3), found.group(2) or found.group(4)
    return int(major), int(minor)


def has_code(architectures: Sequence[str], gpu: str) -> bool:
    """Whether a wheel has code for a GPU, so that nothing of TensorFlow's is compiled from PTX when it starts.

    Code for X.Y runs on X.Z with Z >= Y and on no other major (CUDA programming guide, binary compatibility).
    """
    major, minor = parse_capability(gpu)
    present = [parse_capability(name) for name in architectures]
    return any(one == major and other <= minor for one, other in present)


def device_nodes() -> Sequence[str]:
    """The device nodes of NVIDIA's GPUs: how long the driver may take to start, not what a process may use."""
    return [str(node) for node in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", node.name)]


def describe() -> dict[str, Any]:
    """Initialise CUDA in this process and describe each GPU, as far as the driver answers."""
    found: dict[str, Any] = {"cuda": None, "gpus": [], "problem": None}
    try:
        cuda = ctypes.CDLL(LIBRARY)
        version, count = ctypes.c_int(), ctypes.c_int()
        # It answers before cuInit, and without a GPU.
        call(cuda, "cuDriverGetVersion", ctypes.byref(version))
        found["cuda"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
        call(cuda, "cuInit", 0)
        call(cuda, "cuDeviceGetCount", ctypes.byref(count))
        found["gpus"] = [_describe_gpu(cuda, number) for number in range(count.value)]
    # An AttributeError names a function that the library lacks.
    except (OSError, AttributeError) as error:
        found["problem"] = str(error)
    return found


def free_bytes() -> int:
    """The free memory of the first GPU, from the driver. It starts CUDA in this process. Raises OSError."""
    cuda, device, context = ctypes.CDLL(LIBRARY), ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call(cuda, "cuInit", 0)
    call(cuda, "cuDeviceGet", ctypes.byref(device), 0)
    call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        call(cuda, "cuCtxPushCurrent_v2", context)
        call(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        call(cuda, "cuCtxPopCurrent_v2", ctypes.byref(context))
    finally:
        # Not kept: TensorFlow wants to set the flags of the context itself.
        cuda.cuDevicePrimaryCtxRelease_v2(device)
    return free.value


def call(cuda: ctypes.CDLL, function: str, *arguments: Any) -> None:
    """Call a function of the driver. Raises OSError, with the name of the error, where it does not answer 0."""
    code = getattr(cuda, function)(*arguments)
    if code:
        raise OSError(f"{function} returned {code} ({ERRORS.get(code, 'an error of the CUDA driver API')})")


def _describe_gpu(cuda: ctypes.CDLL, number: int) -> dict[str, Any]:
    device, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(NAME_BYTES)
    call(cuda, "cuDeviceGet", ctypes.byref(device), number)
    call(cuda, "cuDeviceGetName", name, NAME_BYTES, device)
    call(cuda, "cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    numbers = [ctypes.c_int(), ctypes.c_int()]
    for value, attribute in zip(numbers, CAPABILITY):
        call(cuda, "cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
    return {
        "name": name.value.decode(errors="replace"),
        "capability": ".".join(str(value.value) for value in numbers),
        "memory_mib": memory.value // MIB,
    }
