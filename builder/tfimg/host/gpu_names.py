"""A GPU as nvidia-smi tells it → its compute capability, and what the matrix calls it."""

from __future__ import annotations

from tfimg.core.errors import UsageError
from tfimg.host.nvidia_smi import Gpu
from tfimg.matrix.gpus import find_gpu, find_gpu_name
from tfimg.matrix.schema import Matrix

ELLIPSIS = "..."
"""How tables of nvidia-smi end a name that they have no room for."""


def find_capability(matrix: Matrix, gpu: Gpu) -> str | None:
    """`sm_75`, as the driver tells it, else as the matrix has it by name; None where neither does."""
    if gpu.capability:
        return gpu.capability
    try:
        return find_gpu(matrix, gpu.name)
    except UsageError:
        return _uncut(matrix, gpu.name)


def find_matrix_name(matrix: Matrix, gpu: Gpu) -> str | None:
    """What to ask the matrix for: its own name of the GPU where that says the same, else the capability."""
    sm, name = find_capability(matrix, gpu), find_gpu_name(matrix, gpu.name)
    return name if sm and name in matrix.gpus.get(sm, ()) else sm


def _uncut(matrix: Matrix, name: str) -> str | None:
    """The capability that all names have which begin as a cut one does: `GeForce RTX 208...` → `sm_75`."""
    if not name.endswith(ELLIPSIS):
        return None
    left = name.removesuffix(ELLIPSIS).strip()
    # Not Quadro: a Quadro RTX 6000 is none of the RTX 6000s.
    for maker in ("NVIDIA", "GeForce", "Tesla"):
        left = left.removeprefix(maker).strip()
    if not any(letter.isdecimal() for letter in left):
        return None
    found = {sm for sm, names in matrix.gpus.items() if any(known.startswith(left) for known in names)}
    return found.pop() if len(found) == 1 else None
