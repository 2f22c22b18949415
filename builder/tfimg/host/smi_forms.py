"""Parse the two forms of nvidia-smi's output: its table, and the CSV of a query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

FORMS = (
    "Write what `nvidia-smi` prints to a file, or `nvidia-smi "
    "--query-gpu=name,driver_version,compute_cap,memory.total --format=csv`."
)

LONG = 300
"""Characters of a line that are looked at; the longest that nvidia-smi prints are half of that."""

VERSION = r"[0-9]{1,5}(?:\.[0-9]{1,5}){1,3}"

BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
HEADER = re.compile(
    # Drivers from 610 on no longer say `Driver` and `CUDA Version` (sgl-project/sglang#27487).
    rf"NVIDIA-SMI +\S+ +(?:Driver|KMD) Version: +({VERSION})(?: +CUDA (?:UMD )?Version: +(\S+))?"
)
GPU_LINE = re.compile(rf"\| +[0-9]+ +(\S.*?) +(?:On|Off|N/A|WDDM|TCC|MCDM) +\| *{BUS} ")
MEMORY = re.compile(r"/ *([0-9]{1,9}) ?MiB")

LOST = re.compile(r"Unable to determine the device handle for GPU.*")
"""What stands before a table, or between the lines of a CSV, for a GPU that fell off the bus."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuWords:
    """What is said of one GPU, as it is said."""

    name: str | None
    capability: str | None = None
    memory: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """What is said of the driver, its CUDA and the GPUs, as it is said; `problems` are lines about GPUs that fail."""

    driver: str | None
    cuda: str | None
    gpus: tuple[GpuWords, ...]
    problems: tuple[str, ...] = ()


def read(text: str) -> Words | None:
    """Return the words of a table or a CSV; None for other text."""
    return _table(text) or _csv(text)


def _table(text: str) -> Words | None:
    header = HEADER.search(text)
    if not header:
        return None
    # A GPU's memory is in the line below its name; instances of MIG, processes have lines without a bus.
    gpus = []
    for line, below in pairwise([*text.splitlines(), ""]):
        if gpu := GPU_LINE.match(line.strip()[:LONG]):
            memory = MEMORY.search(below)
            gpus.append(GpuWords(name=gpu[1], memory=memory and memory[1]))
    return Words(driver=header[1], cuda=header[2], gpus=tuple(gpus), problems=_problems(text.splitlines()))


def _csv(text: str) -> Words | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    heads = (number for number, line in enumerate(lines) if {"name", "driver_version"} <= set(_columns(line)))
    head = next(heads, None)
    if head is None:
        return None
    columns = _columns(lines[head])
    # Nothing in it is quoted, and no name has a comma.
    cells = [[cell.strip() for cell in line.split(",")] for line in lines[head + 1 :]]
    rows = [dict(zip(columns, row, strict=True)) for row in cells if len(row) == len(columns)]
    if not rows:
        return None
    gpus = [
        GpuWords(name=row["name"], capability=row.get("compute_cap"), memory=row.get("memory.total")) for row in rows
    ]
    drivers = [row["driver_version"] for row in rows]
    # A GPU that is lost does not tell the driver either.
    driver = next((one for one in drivers if re.fullmatch(VERSION, one)), drivers[0])
    return Words(driver=driver, cuda=None, gpus=tuple(gpus), problems=_problems(lines))


def _problems(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(line.strip()[:LONG] for line in lines if LOST.match(line.strip()))


def _columns(line: str) -> Sequence[str]:
    """The names in a CSV's first line, without units: `memory.total [MiB]` is `memory.total`."""
    named = [cell.strip().removesuffix("[MiB]").strip() for cell in line.split(",")]
    return ["name" if name == "gpu_name" else name for name in named]
