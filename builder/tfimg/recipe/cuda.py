"""Wheels of CUDA's libraries among extra packages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_LIBRARY = re.compile(r"(nvidia-[a-z0-9-]+?)-cu(\d\d)")
"""Name of a wheel of NVIDIA's libraries without its CUDA major, and the major. All of them write into `nvidia/`."""

_BUILD = re.compile(r"cupy-cuda\d+x|jax-cuda\d+-p.*|onnxruntime-gpu|triton|faiss-gpu(-cu\d+)?")
"""Builds of other packages for CUDA, which bring libraries of their own or need them."""

CPU_BUILDS: Mapping[str, str] = {"faiss-gpu": "faiss-cpu", "onnxruntime-gpu": "onnxruntime"}
"""Package for CUDA → the one for CPUs of the same project."""

TORCH = ("torch", "torchvision", "torchaudio")
"""Packages whose builds for CPU have the local version `+cpu` and are on an index of their own."""

TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def find_cuda_copies(image: Iterable[str], names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the wheels of NVIDIA that would write over those of an image, each with that one.

    `nvidia-cudnn-cu11` and `nvidia-cudnn-cu12` have the same files in `nvidia/cudnn`.
    """
    here = {match[1]: name for name in image if (match := _LIBRARY.fullmatch(name))}
    found = ((name, here.get(match[1])) for name in names if (match := _LIBRARY.fullmatch(name)))
    return tuple((name, other) for name, other in found if other and other != name)


def is_for_cuda(name: str) -> bool:
    """Return whether a wheel holds libraries of CUDA, or is of no use without."""
    return bool(_LIBRARY.fullmatch(name) or _BUILD.fullmatch(name))


def list_cpu_builds(versions: Mapping[str, str]) -> list[str]:
    """Return what to take in place of packages for CUDA, in words."""
    ways = [f"take {CPU_BUILDS[name]} in place of {name}" for name in versions if name in CPU_BUILDS]
    torch = [f"{name}=={versions[name].partition('+')[0]}+cpu" for name in TORCH if name in versions]
    return [*ways, *([describe_torch_for_cpu(torch)] if torch else [])]


def describe_torch_for_cpu(requirements: Iterable[str]) -> str:
    """Return in words how to take PyTorch's builds for CPU, as requirements such as torch==2.2.1+cpu."""
    return (
        f"write {','.join(requirements)}, the build for CPU, put its wheel of {TORCH_INDEX} into a folder and add "
        "--find-links FOLDER"
    )
