"""The three forms in which nvidia-smi tells its GPUs, its table, its CSV of a query and its XML → the words in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NoReturn
from xml.parsers import expat

from tfimg.errors import UsageError

FORMS = (
    "Write what `nvidia-smi` prints to a file, or `nvidia-smi -q -x`, or `nvidia-smi "
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

XML_GPU = "nvidia_smi_log/gpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuWords:
    """What is said of one GPU, as it is said."""

    name: str | None
    capability: str | None = None
    memory: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """What is said of the driver, its CUDA and the GPUs, as it is said."""

    driver: str | None
    cuda: str | None
    gpus: tuple[GpuWords, ...]


def read(text: str) -> Words | None:
    """The words of an output in any of the forms; None when it has none of them. Raises `UsageError` for bad XML."""
    return _xml(text) or _table(text) or _csv(text)


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
    return Words(driver=header[1], cuda=header[2], gpus=tuple(gpus))


def _csv(text: str) -> Words | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    heads = (number for number, line in enumerate(lines) if {"name", "driver_version"} <= set(_columns(line)))
    head = next(heads, None)
    if head is None:
        return None
    columns = _columns(lines[head])
    # Nothing in it is quoted, and no name has a comma.
    cells = [[cell.strip() for cell in line.split(",")] for line in lines[head + 1 :]]
    if not cells or any(len(row) != len(columns) for row in cells):
        return None
    rows = [dict(zip(columns, row, strict=True)) for row in cells]
    gpus = [
        GpuWords(name=row["name"], capability=row.get("compute_cap"), memory=row.get("memory.total"))
        for row in rows
    ]
    return Words(driver=rows[0]["driver_version"], cuda=None, gpus=tuple(gpus))


def _columns(line: str) -> Sequence[str]:
    """The names in a CSV's first line, without units: `memory.total [MiB]` is `memory.total`."""
    named = [cell.strip().removesuffix("[MiB]").strip() for cell in line.split(",")]
    return ["name" if name == "gpu_name" else name for name in named]


@dataclass
class _Reader:
    """What the XML's elements hold, by their path; that of each GPU apart."""

    path: list[str] = field(default_factory=list)
    log: dict[str, str] = field(default_factory=dict)
    gpus: list[dict[str, str]] = field(default_factory=list)

    def start(self, name: str, _: object) -> None:
        self.path.append(name)
        # The length first: hostile XML may be as deep as it is long.
        if len(self.path) == 2 and "/".join(self.path) == XML_GPU:
            self.gpus.append({})

    def end(self, _: str) -> None:
        self.path.pop()

    def text(self, text: str) -> None:
        if len(self.path) > 5:  # nothing that is looked for lies so deep
            return
        path = "/".join(self.path)
        into = self.gpus[-1] if path.startswith(f"{XML_GPU}/") else self.log
        into[path] = into.get(path, "") + text.strip()


def _refuse_entities(*_: object) -> NoReturn:
    raise UsageError("The XML declares entities, which nvidia-smi's does not.", next_step=FORMS)


def _xml(text: str) -> Words | None:
    if "<nvidia_smi_log" not in text:
        return None
    reader = _Reader()
    parser = expat.ParserCreate()  # loads no DTD
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler, parser.EntityDeclHandler = reader.text, _refuse_entities
    start = min(
        place for sign in ("<?xml", "<!DOCTYPE", "<nvidia_smi_log") if (place := text.find(sign)) >= 0
    )
    try:
        parser.Parse(text[start:].encode(errors="replace"), True)
    except expat.ExpatError as error:
        raise UsageError(f"nvidia-smi's XML cannot be read: {error}.", next_step=FORMS) from None
    return Words(
        driver=_first(reader.log, "driver_version", "kmd_version"),
        cuda=_first(reader.log, "cuda_version", "cuda_umd_version"),
        gpus=tuple(
            GpuWords(
                name=gpu.get(f"{XML_GPU}/product_name"), memory=gpu.get(f"{XML_GPU}/fb_memory_usage/total")
            )
            for gpu in reader.gpus
        ),
    )


def _first(log: dict[str, str], *names: str) -> str | None:
    return next((value for name in names if (value := log.get(f"nvidia_smi_log/{name}"))), None)
