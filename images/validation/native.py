"""`python native.py QUESTION [ARGUMENT ...]`: call functions of shared libraries and print the answer as a JSON line.

`native_client.py` runs it as a process, because an incompatible library may crash. It does not import TensorFlow: it
opens its libraries and calls the functions that TensorFlow calls when it starts. These are C++ functions that wheels of
2.10 to 2.21 export (read from their symbol tables), called by their mangled names; the answer says which are missing.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from abi import called, find, status_is_ok, string, strings, view
from driver import START_SECONDS, describe, device_nodes
from forks import FORK_SECONDS, call_in_fork
from stream import claim_stdout

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Where the loader of CUDA libraries lived: from TensorFlow 2.11 on, and before.
NAMESPACES = ("3tsl", "15stream_executor")
GETTERS = (
    "CudaRuntime", "Cublas", "CublasLt", "Cufft", "Curand", "Cusolver", "Cusparse", "Cudnn", "Nccl", "Cupti",
)  # fmt: skip
# What CUDA's toolkit and the libraries around it bring, also under the names that wheels give to copies of their own
# (libcudart-d0da41ae.so.11.0). The driver's are not among them: NVIDIA's container toolkit puts those into containers.
NVIDIA = re.compile(
    r"lib(cudart|cublas|cublasLt|nvblas|cufft|cufftw|curand|cusolver|cusolverMg|cusparse|cusparseLt|cudnn\w*|nccl|cupti"
    r"|nvrtc|nvrtc-builtins|nvJitLink|nvfatbin|nvvm|nvshmem\w*|nvperf_\w+|cufile\w*|cutensor\w*|cudss\w*|nvinfer\w*"
    r"|nvjpeg|npp\w+|nvToolsExt)(\.alt)?(-[0-9a-f]{8})?\.so[.\d]*$"
)
HOST = {"libcuda.so.1"}  # the driver's; it comes with the machine
NOT_CHECKED = "not checked"
# cudaError of the CUDA runtime API; up to CUDA 11 even the question for its own version needs a driver.
INSUFFICIENT_DRIVER = 35


def framework() -> ctypes.CDLL:
    """The library that opens CUDA's; global, because its companions look for its symbols."""
    return ctypes.CDLL(str(package() / "libtensorflow_framework.so.2"), ctypes.RTLD_GLOBAL)


def package() -> Path:
    """Where TensorFlow is installed."""
    spec = importlib.util.find_spec("tensorflow")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        sys.exit("TensorFlow is not installed")
    return Path(places[0])


def everything() -> list[ctypes.CDLL]:
    """The framework and, from 2.12 on, the library that holds XLA; loading both takes seconds."""
    rest = package() / "libtensorflow_cc.so.2"
    return [framework(), *([ctypes.CDLL(str(rest), ctypes.RTLD_GLOBAL)] if rest.exists() else [])]


def gate() -> dict[str, Any]:
    """What TensorFlow's own gate says, and each of its getters: True, False, or None where it is not exported."""
    library = framework()

    def ask(name: str) -> bool | None:
        mangled = [f"_ZN{space}8internal9DsoLoader{len(name)}{name}Ev" for space in NAMESPACES]
        function = find([library], *mangled)
        return None if function is None else status_is_ok(function)

    answers = {getter: ask(f"Get{getter}DsoHandle") for getter in GETTERS}
    whole = [ask(name) for name in ("MaybeTryDlopenGPULibraries", "TryDlopenCUDALibraries")]
    return {
        "gate": whole[0] if whole[0] is not None else whole[1],
        "getters": answers,
        "opened": opened(),
        "named": load(*named()) if whole == [None, None] else {},
    }


def named() -> list[str]:
    """The SONAMEs of NVIDIA's libraries that the framework has among its strings, and so may open by name."""
    content = (package() / "libtensorflow_framework.so.2").read_bytes()
    return sorted({name.decode() for name in re.findall(rb"lib(?:cu|nccl)\w+\.so\.\d[.\d]*", content)} - HOST)


def opened() -> dict[str, str]:
    """NVIDIA's libraries in this process → the files that the loader took, without links."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    # The sixth field is the path, which may have spaces.
    paths = {line.split(maxsplit=5)[5] for line in maps if "/" in line}
    return {Path(path).name: path for path in sorted(paths) if NVIDIA.match(Path(path).name)}


def load(*paths: str) -> dict[str, str | None]:
    """Library → the loader's complaint, or None. Each in a process of its own, so that none lends another a library."""
    return {path: call_in_fork(partial(opens, path)) for path in paths}


def opens(path: str) -> None:
    """Raises OSError when the loader refuses a library."""
    ctypes.CDLL(path)


PROPERTIES = {
    "nvidia-cublas": ("libcublas.so", "cublasGetProperty"),
    "nvidia-cublas (Lt)": ("libcublasLt.so", "cublasLtGetProperty"),
    "nvidia-cufft": ("libcufft.so", "cufftGetProperty"),
    "nvidia-curand": ("libcurand.so", "curandGetProperty"),
    "nvidia-cusolver": ("libcusolver.so", "cusolverGetProperty"),
    "nvidia-cusparse": ("libcusparse.so", "cusparseGetProperty"),
    "nvidia-cudnn": ("libcudnn.so", "cudnnGetProperty"),
}
"""Wheel → its library and the function that tells major, minor and patch (libraryPropertyType 0, 1, 2)."""


def versions(*sonames: str) -> dict[str, Any]:
    """Wheel → the version that its library, by its SONAME or path, tells of itself; or the loader's complaint."""
    by_stem = {Path(name).name.partition(".so")[0] + ".so": name for name in sonames}
    answers = {
        wheel: call_in_fork(partial(properties, by_stem[stem], function))
        for wheel, (stem, function) in PROPERTIES.items()
        if stem in by_stem
    }
    for wheel, (stem, function, decode) in NUMBERS.items():
        if stem in by_stem:
            answers[wheel] = call_in_fork(partial(number, by_stem[stem], function, decode))
    return answers


def properties(soname: str, function: str) -> str:
    """Major, minor and patch of a library."""
    library, parts = ctypes.CDLL(soname), []
    for kind in range(3):
        value = ctypes.c_int()
        if getattr(library, function)(kind, ctypes.byref(value)):
            raise OSError(f"{function} failed")
        parts.append(str(value.value))
    return ".".join(parts)


def number(soname: str, function: str, decode: Callable[[int], str]) -> str:
    """A version that a library tells as one number."""
    value = ctypes.c_int()
    failure = getattr(ctypes.CDLL(soname), function)(ctypes.byref(value))
    if failure == INSUFFICIENT_DRIVER:
        return f"{NOT_CHECKED}: {function} needs the driver"
    if failure:
        raise OSError(f"{function} answered {failure}")
    return decode(value.value)


# cudaRuntimeGetVersion: 1000 x major + 10 x minor; ncclGetVersion: 10000 x major + 100 x minor + patch.
NUMBERS: dict[str, Any] = {
    "nvidia-cuda-runtime": (
        "libcudart.so",
        "cudaRuntimeGetVersion",
        lambda n: f"{n // 1000}.{n % 1000 // 10}",
    ),
    "nvidia-nccl": ("libnccl.so", "ncclGetVersion", lambda n: f"{n // 10000}.{n // 100 % 100}.{n % 100}"),
}


def cudnn(soname: str, *calls: str) -> dict[str, Any]:
    """Each of cuDNN's own version checks → 0, or what it said: a sub-library that is missing crashes the call."""
    answers = {call: call_in_fork(partial(asked, soname, call)) for call in calls}
    # Parts of cuDNN up to 8.7 want the driver as soon as they are loaded.
    return {
        call: f"{NOT_CHECKED}: it needs the driver" if "libcuda.so" in str(answer) else answer
        for call, answer in answers.items()
    }


def asked(library: str, function: str, *arguments: int) -> int:
    """What a function of a library returns."""
    return int(getattr(ctypes.CDLL(library), function)(*arguments))


def driver(*paths: str) -> dict[str, Any]:
    """What `cuInit` of each file says: 34 is the code of a stub (CUDA driver API, CUDA_ERROR_STUB_LIBRARY)."""
    seconds = FORK_SECONDS + START_SECONDS * len(device_nodes())
    return {path: call_in_fork(partial(asked, path, "cuInit", 0), seconds=seconds) for path in paths}


def search() -> dict[str, Any]:
    """Where XLA looks for CUDA, and the ptxas and libdevice that its own functions find (None: none exported).

    XLA hands these functions the folder of its option xla_gpu_cuda_data_dir, which they take first.
    """
    libraries, chosen = everything(), data_folder(os.environ.get("XLA_FLAGS", ""))
    first = chosen.encode()
    roots = find(libraries, "_ZN3tsl18CandidateCudaRootsB5cxx11Ev", "_ZN10tensorflow18CandidateCudaRootsB5cxx11Ev")
    by_string = find(libraries, FIND_BY_STRING)
    by_view = find(libraries, FIND_BY_VIEW)
    ptxas: str | None = None
    if by_string:
        ptxas = called(by_string, string(b"ptxas"), string(first))
    elif by_view:
        ptxas = called(by_view, *view(b"ptxas"), *view(first))
    device = find(libraries, LIBDEVICE)
    return {
        "roots": None if roots is None else [*filter(None, [chosen]), *strings(roots)],
        "ptxas": ptxas,
        "libdevice": None if device is None else called(device, *view(first)),
    }


def data_folder(flags: str) -> str:
    """The folder that XLA_FLAGS names for CUDA; the last one counts, and without any it is empty."""
    found = re.findall(r"(?:^|\s)--xla_gpu_cuda_data_dir=(\S+)", flags)
    return found[-1] if found else ""


STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
FIND_BY_STRING = f"_ZN15stream_executor18FindCudaExecutableERK{STRING}S7_"
FIND_BY_VIEW = "_ZN15stream_executor18FindCudaExecutableB5cxx11ESt17basic_string_viewIcSt11char_traitsIcEES3_"
LIBDEVICE = "_ZN3xla3gpu5nvptx13LibDevicePathB5cxx11ESt17basic_string_viewIcSt11char_traitsIcEE"
QUESTIONS: dict[str, Callable[..., Any]] = {
    "gate": gate, "load": load, "versions": versions, "cudnn": cudnn, "driver": driver, "gpus": describe,
    "search": search,
}  # fmt: skip

if __name__ == "__main__":
    # A library that prints must not get into the answer.
    emit = claim_stdout()
    emit(QUESTIONS[sys.argv[1]](*sys.argv[2:]))
