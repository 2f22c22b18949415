"""Checks of a wheel's statements about CUDA against its code, search paths and requirements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfimg.custom.differences import find_differences, list_some, shorten
from tfimg.custom.facts import PLATFORM_OF, Library, WheelFacts

CUDA_LIBRARIES = re.compile(
    r"lib(cuda|cudart|cublas|cublasLt|cufft|curand|cusolver|cusparse|cudnn\w*|nccl|cupti|nvrtc|nvJitLink|nvinfer\w*)"
    r"\.so\.(?P<major>\d{1,3})[.\d]*"
)
CUDA_MAJOR_LIBRARIES = ("libcudart", "libcublas", "libcublasLt")
"""Libraries whose SONAME has CUDA's own major (11.0 for CUDA 11)."""

PTX_TOOLKITS = {
    **{(6, minor): f"{9 + minor // 3}.{minor % 3}" for minor in range(3, 6)},
    **{(7, minor): f"11.{minor}" for minor in range(9)},
    **{(8, minor): f"12.{minor}" for minor in range(6)},
    (8, 6): "12.7", (8, 7): "12.8", (8, 8): "12.9", (9, 0): "13.0", (9, 1): "13.1",
}  # fmt: skip
"""Version of PTX → the first CUDA that knows it (PTX ISA, release notes)."""


def check_device(facts: WheelFacts) -> Iterator[str]:
    """A build for CUDA has CUDA code, and nothing else has or needs it."""
    with_code = [library.path for library in facts.libraries if library.elf.code.binaries]
    with_need = [library.path for library in facts.libraries if any(map(CUDA_LIBRARIES.fullmatch, library.elf.needed))]
    if facts.claims_cuda and not with_code:
        yield "build_info.py states a build for CUDA, and no library has CUDA code"
    if facts.claims_cuda is False and with_code:
        yield f"build_info.py states a build without CUDA, and {list_some(with_code)} has CUDA code"
    if not facts.claims_cuda and not with_code and with_need:
        yield f"nothing states a build for CUDA, and {list_some(with_need)} needs NVIDIA's libraries"
    if facts.name.startswith("tensorflow-cpu") and (facts.claims_cuda or with_code):
        where = list_some(with_code) if with_code else "build_info.py"
        yield f"METADATA names {facts.name}, and {where} is for CUDA"
    if not facts.claims_cuda and facts.claims_cuda is not None and (cuda := facts.statements.get("cuda")):
        yield f"build_info.py states a build without CUDA, and {list_some(cuda)} CUDA {list_some(cuda.values())}"


def check_cuda(facts: WheelFacts) -> Iterator[str]:
    """Build information, headers, code, search paths and requirements are of the same CUDA."""
    stated = facts.statements.get("cuda", {})
    yield from find_differences(stated)
    if not stated or facts.claims_cuda is False:
        return
    source, cuda = next(iter(stated.items()))
    for library in facts.libraries:
        for found in _cuda_of_library(library, cuda):
            yield f"{source} states CUDA {cuda}, and {found}"
    for name, specifier in and_cuda(facts).items():
        suffix = re.search(r"-cu(\d{2})$", name)
        if suffix and suffix[1] != _major(cuda):
            yield f"{source} states CUDA {cuda}, and the extra and-cuda requires {name}"
        elif name.startswith("nvidia-cuda-runtime-") and specifier.is_disjoint(_from(cuda)):
            yield f"{source} states CUDA {cuda}, and the extra and-cuda requires {name} {specifier}"


def _cuda_of_library(library: Library, cuda: str) -> Iterator[str]:
    """Yield what a library has of another CUDA than the stated one."""
    first = PTX_TOOLKITS.get(library.elf.code.ptx_version or (0, 0))
    if first and Version(first) > Version(cuda):
        version = ".".join(map(str, library.elf.code.ptx_version or ()))
        yield f"{library.path} has PTX {version}, which CUDA {first} introduced"
    for folder in library.elf.search_path:
        named = re.search(r"cuda-(\d{1,2}\.\d{1,2})", folder)
        if named and named[1] != cuda:
            yield f"the search path of {library.path} has {shorten(folder)}"
    for name in library.elf.needed:
        match = CUDA_LIBRARIES.fullmatch(name)
        if match and name.partition(".so")[0] in CUDA_MAJOR_LIBRARIES and match["major"] != _major(cuda):
            yield f"{library.path} needs {shorten(name)}"


def check_cudnn(facts: WheelFacts) -> Iterator[str]:
    """Build information, header and requirements are of the same cuDNN."""
    stated = facts.statements.get("cudnn", {})
    yield from find_differences({source: _major(version) for source, version in stated.items()})
    if stated and facts.claims_cuda is not False:
        source, version = max(stated.items(), key=lambda item: item[1].count("."))
        for name, specifier in and_cuda(facts).items():
            if name.startswith("nvidia-cudnn-") and specifier.is_disjoint(_from(version)):
                yield f"{source} states cuDNN {version}, and the extra and-cuda requires {name} {specifier}"


def check_architectures(facts: WheelFacts) -> Iterator[str]:
    """There is CUDA code for each stated architecture, and for no other in most of it."""
    yield from find_differences(facts.statements.get("architectures", {}))
    listed = (facts.build or {}).get("cuda_compute_capabilities")
    codes = [library.elf.code for library in facts.libraries if library.elf.code.binaries]
    if not isinstance(listed, list) or not codes:
        return
    stated = {name: int(match[1]) for name in listed if (match := re.fullmatch(r"(?:sm|compute)_(\d{2,3})a?", name))}
    binaries = sum(code.binaries for code in codes)
    machine_code = _sum(code.machine_code for code in codes)
    ptx = _sum(code.ptx for code in codes)
    for name, number in stated.items():
        if number not in machine_code and number not in ptx:
            yield f"build_info.py states {name}, and no library has code for it"
        elif name.startswith("compute_") and number not in ptx:
            yield f"build_info.py states {name}, and no library has PTX for it"
    for number, count in sorted(machine_code.items()):
        # NCCL and CUTLASS bring single kernels for more GPUs.
        if number not in stated.values() and count * 2 > binaries:
            yield f"build_info.py does not state sm_{number}, and most CUDA code is for it too"
    for number, count in sorted(ptx.items()):
        if f"compute_{number}" not in stated and count * 2 > binaries:
            yield f"build_info.py does not state compute_{number}, and most CUDA code has PTX for it"


def and_cuda(facts: WheelFacts) -> dict[str, SpecifierSet]:
    """Return what the extra and-cuda requires of NVIDIA's; nothing for wheels without the extra."""
    python, platform = next(iter(facts.pythons), "3.11"), next(iter(PLATFORM_OF.values()))
    found: dict[str, SpecifierSet] = {}
    for requirement in facts.requirements(python, platform, extra="and-cuda"):
        name = canonicalize_name(requirement.name)
        if name.startswith("nvidia-"):
            found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    return found


def _major(version: str) -> str:
    return version.partition(".")[0]


def _from(version: str) -> SpecifierSet:
    """Return the versions from this one on with the same major."""
    return SpecifierSet(f">={version},<{int(_major(version)) + 1}")


def _sum(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    total: dict[int, int] = {}
    for count in counts:
        for key, value in count.items():
            total[key] = total.get(key, 0) + value
    return total
