"""GPUs that a wheel supports: with compiled code, or with PTX that the driver compiles at first start."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Literal

from packaging.version import Version

from tfimg.core.errors import UsageError
from tfimg.matrix.schema import Gpu, GpuDriver, Matrix
from tfimg.matrix.spec import ImageSpec

ExecutionMode = Literal[
    "code", "ptx", "unproven"
]  # how a wheel runs on a GPU; unproven: with PTX, and nothing shows it


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
    similar = _find_similar(capabilities, text)
    known = f"similar names are {', '.join(similar)}" if similar else f"it has {', '.join(EXAMPLES)} and others"
    raise UsageError(
        f"--gpu {text!r} is not a GPU of the matrix: {known}.",
        next_step="Write a name of the matrix, or the GPU's compute capability, for example sm_75 or 7.5 "
        "(NVIDIA's list of CUDA GPUs has it).",
    )


EXAMPLES = ("T4", "A100", "RTX 4090", "Quadro RTX 6000")

SERIES = re.compile(r"(?:(?:nvidia|geforce|tesla|quadro|grid|jetson|agx) ?)+")
"""What may stand before a name of the matrix."""

VGPU = re.compile(r"(?P<board>.+?)-(?:[0-9]{1,2}-)?[0-9]{1,3}[ABCQ][0-9]?", re.IGNORECASE)
"""A virtual GPU: `GRID T4-16Q`, `NVIDIA A100-4-20C`, `GRID T4-2B4`: the board, slices of MIG, GB of memory, the series
(NVIDIA vGPU software, User Guide, Virtual GPU Types Reference)."""

BOARD_VARIANT = re.compile(r"(?<=[0-9])[DLMPSX]{1,2}$", re.IGNORECASE)
"""Memory and form of a virtual GPU's board, which its capability does not depend on: `V100DX`, `RTX6000P`, `H100XM`."""

MODEL_VARIANT = re.compile(r"(?<=[0-9])(?:ti|super|d)+$")
"""A variant of a GeForce that people write without a blank: `RTX 3060Ti`."""


MAX_NAME = 200  # characters of a text that are compared. The longest name that nvidia-smi prints has about 50


def find_gpu_name(matrix: Matrix, text: str) -> str | None:
    """Return the matrix's name of a GPU: `tesla-t4`, `NVIDIA A100-SXM4-40GB`, `GRID A100D-20C` → `T4`, `A100`, `A100`.

    A name that begins with `Quadro` is only found with it: a Quadro RTX 6000 is not an RTX 6000 Ada.
    """
    names = [name for names in matrix.gpus.values() for name in names]
    vgpu = VGPU.fullmatch(text.strip())
    if vgpu is None:
        return _match(names, text)
    boards = (vgpu["board"], BOARD_VARIANT.sub("", vgpu["board"]))
    # The virtual GPUs of a Quadro RTX 6000 are called RTX6000-24Q.
    quadros = (f"Quadro {SERIES.sub('', board.lower())}" for board in boards)
    return next(filter(None, (_match(names, board) for board in (*boards, *quadros))), None)


def is_arm64_gpu(matrix: Matrix, text: str) -> bool:
    return _match(matrix.arm64_gpus, text) is not None


def describe_forward_compatibility(matrix: Matrix, text: str) -> str | None:
    """Return what may help on a GPU whose driver is too old; None where it does not work, as on GeForce."""
    if _match(matrix.data_center_gpus, text) is None:
        return None
    return "NVIDIA's forward compatibility (cuda-compat) may help this GPU, one of data centres, without a newer driver"


def find_capabilities(matrix: Matrix, beginning: str) -> set[str]:
    """Return the capabilities of all GPUs whose names begin so: `GeForce RTX 208` → `sm_75`.

    With its series if there is such a name: `Quadro RTX 600` → `sm_75`, `RTX 600` → `sm_89`.
    """
    for start in filter(None, map(_compact, _forms(beginning))):
        found = {sm for sm, names in matrix.gpus.items() for name in names if _compact(name).startswith(start)}
        if found:
            return found
    return set()


def _match(names: Iterable[str], text: str) -> str | None:
    """Return the longest name that a text begins with, whatever maker and series before and memory or form after it."""
    known = {_compact(name): name for name in names}
    found = set()
    for form in _forms(text):
        form = form[:MAX_NAME]
        for end in (*(gap.start() for gap in re.finditer(" ", form)), len(form)):
            beginning = _compact(form[:end])
            found |= {beginning, MODEL_VARIANT.sub("", beginning)} & set(known)
    return known[max(found, key=len)] if found else None


def _forms(text: str) -> tuple[str, ...]:
    """Return a name in lower case with blanks as the only separators: as it is, and without maker and series."""
    if not text.isprintable():
        return ()
    words = re.sub(r"[ _-]+", " ", text.lower()).strip()
    unmade = re.sub(r"^nvidia ?", "", words)
    series = SERIES.match(words)
    return (unmade, words[series.end() :]) if series else (words,)


def _compact(name: str) -> str:
    return re.sub(r"[ _-]", "", name.lower())


def _find_similar(names: Iterable[str], text: str) -> list[str]:
    """Return the names with the number and the words of a text, else those that are written like it."""
    plain = (_forms(text) or ("",))[-1]
    number, words = re.search(r"[0-9]{3,}", plain), set(re.findall("[a-z]+", plain))
    if number:
        whole = re.compile(rf"(?<![0-9]){number[0]}(?![0-9])")
        if same := [name for name in names if whole.search(name) and all(word in name.lower() for word in words)]:
            return same
    close = get_close_matches(plain, [name.lower() for name in names], n=4)
    return [name for name in names if name.lower() in close]


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
