"""Query nvidia-smi, parse its table or the CSV of a query, and find its GPUs in the matrix."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfimg.core.errors import NoAccelerator, TfimgError, UsageError
from tfimg.core.process import CommandFailed
from tfimg.matrix.gpus import find_gpu, find_gpu_name
from tfimg.matrix.schema import Matrix

UNKNOWN_FIELD = 'Field "compute_cap" is not a valid field to query'
"""Output of drivers up to 470, which do not support this field (huggingface/candle#733)."""

QUERY = "nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv"
INPUT_HELP = f"Write what `nvidia-smi` prints to a file, or `{QUERY}`."
DRIVER_HELP = "Install NVIDIA's driver, or repair it: `nvidia-smi` by itself must list the GPUs."
HANGING_HELP = "Check `dmesg` for errors of the driver (NVRM, Xid), and reboot: a GPU that fell off the bus hangs it."

MAX_LINE = 300
"""Characters of a line that are read; the longest lines of nvidia-smi have half of that."""

VERSION = r"[0-9]{1,5}(?:\.[0-9]{1,5}){1,3}"
BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
HEADER = re.compile(
    # Drivers from 610 on no longer print `Driver` and `CUDA Version` (sgl-project/sglang#27487).
    rf"NVIDIA-SMI +\S+ +(?:Driver|KMD) Version: +({VERSION})(?: +CUDA (?:UMD )?Version: +({VERSION}))?"
)
GPU_LINE = re.compile(rf"\| +[0-9]+ +(\S.*?) +(?:On|Off|N/A|WDDM|TCC|MCDM) +\| *{BUS} ")

LOST = re.compile(r"Unable to determine the device handle for GPU.*")
"""A line before a table or in a CSV for a GPU that fell off the bus."""

UNREADABLE_NAME = re.compile(r"\[.*\]|ERR!|Unknown Error|GPU is lost")
"""What nvidia-smi prints in place of a name."""

ELLIPSIS = "..."
"""The end of a truncated name in a table of nvidia-smi."""

FAILURES = (
    (
        r"(?:Failed to initialize NVML: )?Driver/library version mismatch",
        "Reboot: the driver was updated, and the module that is loaded is still the old one.",
    ),
    (r"Failed to initialize NVML: .*", DRIVER_HELP),
    (r"NVIDIA-SMI has failed .*", DRIVER_HELP),
    (r"NVIDIA-SMI couldn't find .*", DRIVER_HELP),
    (LOST.pattern, HANGING_HELP),
    (r"No devices were found", "Check whether the GPU is on the bus (`lspci -d 10de:`), and `dmesg` for its errors."),
    (r".*\bnvidia-smi\b.*(?:not found|No such file).*", DRIVER_HELP),
)
"""Error messages of nvidia-smi, or of the shell in its place, with the next step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU. Tables of old drivers truncate names (`Tesla V100-SXM2...`) and lack the capability (`sm_75`)."""

    name: str
    capability: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaSmi:
    """The driver, the newest CUDA that it supports, if known, and every GPU.

    `problems` are sentences about GPUs that could not be read, and are not among `gpus`.
    """

    driver: str
    cuda: str | None
    gpus: tuple[Gpu, ...]
    problems: tuple[str, ...] = ()


_Output = tuple[str, str | None, list[Gpu | None]]
"""Driver, empty if there is no valid one; CUDA; GPUs, None for one whose name is unreadable."""


def parse_nvidia_smi(text: str) -> NvidiaSmi:
    """Parse the output of nvidia-smi: its table, or the CSV of a query.

    Raises `NoAccelerator` if it reports no GPU or a failure, `UsageError` for any other text.
    """
    lines = [line.strip() for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
    output = _parse_table(lines) or _parse_csv(lines)
    if output is None:
        raise _failure(lines)
    driver, cuda, found = output
    lost = [line[:MAX_LINE] for line in lines if LOST.match(line)]
    gpus = tuple(gpu for gpu in found if gpu)
    if not gpus and lost:
        raise _failure(lost)
    if not driver:
        raise UsageError("nvidia-smi's output does not contain the version of the driver.", next_step=INPUT_HELP)
    if not found:
        raise NoAccelerator(f"nvidia-smi lists no GPU; the driver is {driver}.", next_step=DRIVER_HELP)
    if not gpus:
        raise UsageError("nvidia-smi's output has a GPU without a readable name.", next_step=INPUT_HELP)
    problems = [f"nvidia-smi says: {line.rstrip('.')}. {HANGING_HELP}" for line in lost if line.isprintable()]
    if len(gpus) < len(found) and not lost:
        unreadable = len(found) - len(gpus)
        problems.append(f"nvidia-smi lists {unreadable} more without a readable name. {HANGING_HELP}")
    return NvidiaSmi(driver=driver, cuda=cuda, gpus=gpus, problems=tuple(problems))


def _parse_table(lines: Sequence[str]) -> _Output | None:
    header = next(filter(None, map(HEADER.search, lines)), None)
    if header is None:
        return None
    # MIG instances and processes have lines without a bus.
    names = [gpu[1] for line in lines if (gpu := GPU_LINE.match(line[:MAX_LINE]))]
    return header[1], header[2], [_parse_gpu(name) for name in names]


def _parse_csv(lines: Sequence[str]) -> _Output | None:
    required = {"name", "driver_version"}
    start = next((number for number, line in enumerate(lines) if required <= set(_column_names(line))), None)
    if start is None:
        return None
    columns = _column_names(lines[start])
    # Values are not quoted, and names have no commas.
    cells = [[cell.strip() for cell in line.split(",")] for line in lines[start + 1 :]]
    rows = [dict(zip(columns, row, strict=True)) for row in cells if len(row) == len(columns)]
    if not rows:
        return None
    # The row of a lost GPU has no driver either.
    driver = next((row["driver_version"] for row in rows if re.fullmatch(VERSION, row["driver_version"])), "")
    return driver, None, [_parse_gpu(row["name"], row.get("compute_cap", "")) for row in rows]


def _column_names(line: str) -> Sequence[str]:
    names = [cell.strip() for cell in line.split(",")]
    return ["name" if name == "gpu_name" else name for name in names]


def _parse_gpu(name: str, capability: str = "") -> Gpu | None:
    name = name.strip()
    if not 0 < len(name) <= 100 or not name.isprintable() or UNREADABLE_NAME.fullmatch(name):
        return None
    number = re.fullmatch(r"([0-9]{1,2})\.([0-9])", capability)
    return Gpu(name=name, capability=f"sm_{number[1]}{number[2]}" if number else None)


def _failure(lines: Sequence[str]) -> TfimgError:
    for pattern, step in FAILURES:
        for line in (line[:MAX_LINE] for line in lines):
            if re.fullmatch(rf"{pattern}\.?", line) and line.isprintable():
                return NoAccelerator(f"nvidia-smi says: {line}", next_step=step)
    if not lines:
        return UsageError("nvidia-smi's output is empty.", next_step=INPUT_HELP)
    if any(line.startswith("<nvidia_smi_log") for line in lines):
        return UsageError("This is nvidia-smi's XML, which tfimg does not read.", next_step=INPUT_HELP)
    return UsageError(f"This is not output of nvidia-smi: it begins with {lines[0][:60]!r}.", next_step=INPUT_HELP)


def query_nvidia_smi(run: Callable[[Sequence[str]], str]) -> NvidiaSmi:
    """Query this host's nvidia-smi.

    `run` runs a program and returns its output; it raises `CommandFailed`, `TimeoutError` with a message, or another
    `OSError`. Raises `NoAccelerator` if nvidia-smi is missing, fails, hangs or prints unknown output.
    """
    try:
        return parse_nvidia_smi(_query(run))
    except UsageError as error:
        raise NoAccelerator(error.what, next_step=DRIVER_HELP) from None
    except TimeoutError as error:
        raise NoAccelerator(str(error), next_step=HANGING_HELP) from None
    except FileNotFoundError:
        reason = "is not installed"
    except OSError as error:
        reason = f"cannot be started: {error.strerror}"
    raise NoAccelerator(f"`nvidia-smi`, which comes with NVIDIA's driver, {reason}.", next_step=DRIVER_HELP)


def _query(run: Callable[[Sequence[str]], str]) -> str:
    """Return the output, also of a failure."""
    output = ""
    for query in (QUERY, QUERY.replace(",compute_cap", "")):
        try:
            return run(query.split())
        except CommandFailed as error:
            # Its errors are on standard output.
            output = f"{error.stdout}\n{error.stderr}"
            if UNKNOWN_FIELD not in output:
                break
    return output


def find_capability(matrix: Matrix, gpu: Gpu) -> str | None:
    """Return the capability (`sm_75`) from the driver, else from the matrix by name; None if unknown."""
    if gpu.capability:
        return gpu.capability
    try:
        return find_gpu(matrix, gpu.name)
    except UsageError:
        return _find_truncated(matrix, gpu.name)


def find_matrix_name(matrix: Matrix, gpu: Gpu) -> str | None:
    """Return the matrix's name of a GPU if it has the same capability, else the capability."""
    sm, name = find_capability(matrix, gpu), find_gpu_name(matrix, gpu.name)
    return name if sm and name in matrix.gpus.get(sm, ()) else sm


def _find_truncated(matrix: Matrix, name: str) -> str | None:
    """Return the capability that all names with this beginning have: `GeForce RTX 208...` is `sm_75`."""
    if not name.endswith(ELLIPSIS):
        return None
    beginning = name.removesuffix(ELLIPSIS).strip()
    # Not Quadro: a Quadro RTX 6000 differs from the RTX 6000s.
    for maker in ("NVIDIA", "GeForce", "Tesla"):
        beginning = beginning.removeprefix(maker).strip()
    if not any(letter.isdecimal() for letter in beginning):
        return None
    found = {sm for sm, names in matrix.gpus.items() if any(known.startswith(beginning) for known in names)}
    return found.pop() if len(found) == 1 else None
