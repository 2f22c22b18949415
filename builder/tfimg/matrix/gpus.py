"""Which GPUs a wheel runs on: by code of its own, or by PTX that the driver compiles at first start."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Literal

from packaging.version import Version

from tfimg.core.errors import UsageError
from tfimg.matrix.schema import Gpu, Matrix
from tfimg.matrix.spec import ImageSpec

ExecutionMode = Literal["code", "ptx", "unproven"]
"""How a wheel runs on a GPU; unproven: by PTX, of which reports differ."""


def parse_capability(name: str) -> tuple[int, int]:
    """`sm_75`, `compute_80` → (7, 5), (8, 0): the last digit is the minor."""
    digits = name.rpartition("_")[2]
    return int(digits[:-1]), int(digits[-1])


def find_gpu(matrix: Matrix, asked: str) -> str:
    """`T4`, `tesla-t4`, `NVIDIA A100-SXM4-40GB`, `sm_75`, `7.5` → `sm_75`, `sm_80`.

    Raises `UsageError` for a name that the matrix does not have.
    """
    if number := re.fullmatch(r"(?:(?:sm|compute|cc)[ _-]*|(?=[0-9]+\.))(1?[0-9])\.?([0-9])", asked.lower()):
        return f"sm_{number[1]}{number[2]}"
    names = {name: sm for sm, known in matrix.gpus.items() for name in known}
    if found := find_gpu_name(matrix, asked):
        return names[found]
    near = get_close_matches(asked.lower(), [name.lower() for name in names], n=4)
    like = [name for name in names if name.lower() in near]
    known = f"near to it are {', '.join(like)}" if like else f"it has {', '.join(names)}"
    raise UsageError(
        f"--gpu {asked!r} is not a GPU that the matrix knows: {known}.",
        next_step="Write a name of the matrix, or the GPU's compute capability, for example sm_75 or 7.5 "
        "(NVIDIA's list of CUDA GPUs has it).",
    )


def find_gpu_name(matrix: Matrix, asked: str) -> str | None:
    """The matrix's own name of a GPU: `tesla-t4`, `NVIDIA A100-SXM4-40GB` → `T4`, `A100`."""
    names = (name for known in matrix.gpus.values() for name in known)
    # The longest, because a GTX 1080 Ti is a GTX 1080 too.
    return max((name for name in names if _is_called(asked, name)), key=len, default=None)


def is_arm64_gpu(matrix: Matrix, asked: str) -> bool:
    """Does the GPU of this name sit beside an Arm processor?"""
    return any(_is_called(asked, name) for name in matrix.arm64_gpus)


def find_driver_floor(matrix: Matrix, spec: ImageSpec, sm: str | None) -> str | None:
    """The lowest Linux driver that runs an image, on a GPU of a compute capability if one is given."""
    if spec.gpu is None or sm is None:
        return spec.driver
    floors = [spec.driver] if find_execution_mode(matrix, spec.gpu, sm) == "code" else [spec.gpu.ptx_driver]
    known = matrix.gpu_drivers.get(sm)
    if known and known.since:
        floors.append(known.since)
    return max((floor for floor in floors if floor), key=Version)


def _is_called(asked: str, name: str) -> bool:
    """Is it the name, with or without its maker and series before it and memory, form or edition after it?"""
    gap = r"[ _-]*"
    words = gap.join(map(re.escape, name.split()))
    pattern = rf" *(?:(?:nvidia|geforce|tesla|quadro){gap})*{words}(?:[ _-][ -~]*)?"
    return re.fullmatch(pattern, asked, re.IGNORECASE) is not None


def find_execution_mode(matrix: Matrix, gpu: Gpu, sm: str) -> ExecutionMode | None:
    """How a row's wheel runs on a GPU of this compute capability, or None: not at all.

    Code for X.Y runs on X.Z with Z ≥ Y and on no other major (CUDA programming guide, binary compatibility);
    PTX, which `compute_` adds, runs on everything newer below the matrix's `ptx.below`; from there on, the row's
    reports decide.
    """
    wanted = parse_capability(sm)
    for architecture in gpu.architectures:
        major, minor = parse_capability(architecture)
        if major == wanted[0] and minor <= wanted[1]:
            return "code"
    ptx = (parse_capability(one) for one in gpu.architectures if one.startswith("compute_"))
    if not any(one <= wanted for one in ptx):
        return None
    if wanted < parse_capability(matrix.ptx.below):
        return "ptx"
    report = gpu.reports.get(sm)
    return "unproven" if report and report.runs == "unproven" else None


def describe_ptx(matrix: Matrix, gpu: Gpu, sm: str) -> str:
    """What to know of a row's PTX on a GPU, in words without a full stop: its cost, or what reports say of it."""
    if sm not in gpu.reports:
        return matrix.ptx.note
    report = gpu.reports[sm]
    return f"whether it runs is unproven: {_with_issue(report.reason, report.issue)}; {matrix.ptx.note}"


def explain_no_support(matrix: Matrix, gpu: Gpu, sm: str) -> str | None:
    """Why a row's PTX does not run on a GPU from `ptx.below` on, without a full stop; None for an older GPU."""
    if parse_capability(sm) < parse_capability(matrix.ptx.below):
        return None
    report = gpu.reports.get(sm, matrix.ptx)
    return _with_issue(report.reason, report.issue)


def _with_issue(reason: str, issue: str | None) -> str:
    return f"{reason} ({issue})" if issue else reason
