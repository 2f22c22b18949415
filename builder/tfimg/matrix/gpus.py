"""GPUs that a wheel supports: with compiled code, or with PTX that the driver compiles at first start."""

import re
from difflib import get_close_matches
from typing import Literal

from packaging.version import Version

from tfimg.core.errors import UsageError
from tfimg.matrix.schema import Gpu, GpuDriver, Matrix
from tfimg.matrix.spec import ImageSpec

ExecutionMode = Literal["code", "ptx", "unproven"]  # how a wheel runs on a GPU; unproven: with PTX, and reports differ


def parse_capability(name: str) -> tuple[int, int]:
    """`sm_75`, `compute_80` → (7, 5), (8, 0): the last digit is the minor."""
    digits = name.rpartition("_")[2]
    return int(digits[:-1]), int(digits[-1])


def find_gpu(matrix: Matrix, text: str) -> str:
    """Return the capability of `T4`, `NVIDIA A100-SXM4-40GB`, `sm_75` or `7.5`: `sm_75`, `sm_80`.

    Raises `UsageError` for an unknown name.
    """
    if number := re.fullmatch(r"(?:(?:sm|compute|cc)[ _-]*|(?=[0-9]+\.))(1?[0-9])\.?([0-9])", text.lower()):
        return f"sm_{number[1]}{number[2]}"
    capabilities = {name: capability for capability, names in matrix.gpus.items() for name in names}
    if found := find_gpu_name(matrix, text):
        return capabilities[found]
    close = get_close_matches(text.lower(), [name.lower() for name in capabilities], n=4)
    similar = [name for name in capabilities if name.lower() in close]
    known = f"similar names are {', '.join(similar)}" if similar else f"it has {', '.join(capabilities)}"
    raise UsageError(
        f"--gpu {text!r} is not a GPU of the matrix: {known}.",
        next_step="Write a name of the matrix, or the GPU's compute capability, for example sm_75 or 7.5 "
        "(NVIDIA's list of CUDA GPUs has it).",
    )


def find_gpu_name(matrix: Matrix, text: str) -> str | None:
    """Return the matrix's name of a GPU: `tesla-t4`, `NVIDIA A100-SXM4-40GB` → `T4`, `A100`."""
    names = (name for names in matrix.gpus.values() for name in names)
    # The longest: `GTX 1080 Ti` also matches `GTX 1080`.
    return max((name for name in names if _matches(text, name)), key=len, default=None)


def is_arm64_gpu(matrix: Matrix, text: str) -> bool:
    return any(_matches(text, name) for name in matrix.arm64_gpus)


def _matches(text: str, name: str) -> bool:
    """Return whether a text is a GPU's name, possibly with maker and series before it and memory or form after it."""
    gap = r"[ _-]*"
    words = gap.join(map(re.escape, name.split()))
    pattern = rf" *(?:(?:nvidia|geforce|tesla|quadro){gap})*{words}(?:[ _-][ -~]*)?"
    return re.fullmatch(pattern, text, re.IGNORECASE) is not None


def find_driver_floor(matrix: Matrix, spec: ImageSpec, capability: str | None) -> str | None:
    """Return the lowest Linux driver that runs an image, on a GPU of this capability if there is one."""
    if spec.gpu is None or capability is None:
        return spec.driver
    has_code = find_execution_mode(matrix, spec.gpu, capability) == "code"
    known = matrix.gpu_drivers.get(capability, GpuDriver())
    floors = (spec.driver if has_code else spec.gpu.ptx_driver, known.since)
    return max(filter(None, floors), key=Version)


def find_execution_mode(matrix: Matrix, gpu: Gpu, capability: str) -> ExecutionMode | None:
    """Return how a row's wheel runs on a GPU of this capability; None: not at all.

    Code for X.Y runs on X.Z with Z ≥ Y and on no other major (CUDA programming guide, binary compatibility). PTX
    (`compute_`) runs on everything newer below the matrix's `ptx.below`; from there on, the row's reports decide.
    """
    wanted = parse_capability(capability)
    for architecture in gpu.architectures:
        major, minor = parse_capability(architecture)
        if major == wanted[0] and minor <= wanted[1]:
            return "code"
    ptx = (parse_capability(name) for name in gpu.architectures if name.startswith("compute_"))
    if not any(lowest <= wanted for lowest in ptx):
        return None
    if wanted < parse_capability(matrix.ptx.below):
        return "ptx"
    report = gpu.reports.get(capability)
    return "unproven" if report and report.runs == "unproven" else None


def describe_ptx(matrix: Matrix, gpu: Gpu, capability: str) -> str:
    """Return a note on a row's PTX on a GPU: its cost, or the reports on it."""
    if capability not in gpu.reports:
        return matrix.ptx.note
    report = gpu.reports[capability]
    return f"whether it runs is unproven: {_with_issue(report.reason, report.issue)}; {matrix.ptx.note}"


def explain_no_support(matrix: Matrix, gpu: Gpu, capability: str) -> str | None:
    """Return why a row's PTX does not run on a GPU from `ptx.below` on; None for an older GPU."""
    if parse_capability(capability) < parse_capability(matrix.ptx.below):
        return None
    report = gpu.reports.get(capability, matrix.ptx)
    return _with_issue(report.reason, report.issue)


def _with_issue(reason: str, issue: str | None) -> str:
    return f"{reason} ({issue})" if issue else reason
