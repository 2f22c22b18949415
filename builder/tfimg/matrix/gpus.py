"""Which GPUs a wheel runs on: by code of its own, or by PTX that the driver compiles at first start."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from tfimg.errors import UsageError
from tfimg.matrix.schema import Matrix

Means = Literal["code", "ptx"]
"""How a wheel runs on a GPU."""


def capability(name: str) -> tuple[int, int]:
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
    # A GTX 1080 Ti is a GTX 1080 too.
    for name in sorted(names, key=len, reverse=True):
        if _is_called(asked, name):
            return names[name]
    raise UsageError(
        f"--gpu {asked!r} is not a GPU that the matrix knows: it has {', '.join(names)}.",
        next_step="Write one of these, or the compute capability, for example sm_75 or 7.5.",
    )


def _is_called(asked: str, name: str) -> bool:
    """Is it the name, with or without its maker and series before it and memory, form or edition after it?"""
    gap = r"[ _-]*"
    words = gap.join(map(re.escape, name.split()))
    pattern = rf" *(?:(?:nvidia|geforce|tesla|quadro){gap})*{words}(?:[ _-][ -~]*)?"
    return re.fullmatch(pattern, asked, re.IGNORECASE) is not None


def runs(matrix: Matrix, architectures: Sequence[str], sm: str) -> Means | None:
    """How a wheel with these architectures runs on a GPU of this compute capability, or None: not at all.

    Code for X.Y runs on X.Z with Z ≥ Y and on no other major (CUDA programming guide, binary compatibility);
    PTX, which `compute_` adds, runs on everything newer below the matrix's `ptx.below`.
    """
    wanted = capability(sm)
    for architecture in architectures:
        major, minor = capability(architecture)
        if major == wanted[0] and minor <= wanted[1]:
            return "code"
    ptx = (capability(one) for one in architectures if one.startswith("compute_"))
    newer = any(one <= wanted for one in ptx)
    return "ptx" if newer and wanted < capability(matrix.ptx.below) else None
