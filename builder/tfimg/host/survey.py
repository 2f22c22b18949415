"""Survey this machine: what it has that a container needs. Reading only."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tfimg.core.errors import NoAccelerator
from tfimg.engine.protocol import DEFAULT_CDI_FOLDERS, DeviceSupport
from tfimg.host.nvidia_smi import NvidiaSmi
from tfimg.matrix.schema import PROCESSORS, Matrix
from tfimg.matrix.spec import ImageSpec

NVIDIA = "0x10de"
"""NVIDIA's vendor number on the PCI bus."""

DISPLAY = "0x03"
"""First byte of the class of display controllers; GPUs without a screen are among them."""

HOOK = "usr/bin/nvidia-container-runtime-hook"
"""The program that an engine needs for `--gpus` (moby, daemon/nvidia_linux.go)."""

AVX = re.compile(r"^flags\s*:.*\bavx\b", re.MULTILINE)
MEMORY = re.compile(r"^MemTotal:\s*(\d+) kB", re.MULTILINE)
CDI_KIND = re.compile(r"""["']?kind["']?\s*:\s*["']?nvidia\.com/gpu["']?\s*[,\n}]""")

Socket = Literal["open", "closed", "absent"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """What this machine has.

    `platform` is the matrix's name, or else the kernel's; `avx` is None on Arm. `cards` counts NVIDIA's GPUs on the
    bus; `module`: their kernel module is loaded. `tpus` are device nodes, `closed_tpus` those that only some users may
    open. `hook`: the hook of NVIDIA's toolkit is installed; `cdi` are folders with NVIDIA's specification.
    """

    platform: str
    avx: bool | None
    memory_bytes: int | None
    cards: int
    module: bool
    smi: NvidiaSmi | NoAccelerator
    tpus: tuple[str, ...]
    closed_tpus: tuple[str, ...]
    hook: bool
    cdi: tuple[str, ...]
    socket: Socket


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetHost:
    """Where an image is to run: the matrix with its images, this machine, and the engine."""

    matrix: Matrix
    specs: Sequence[ImageSpec]
    host: Host
    toolkit: DeviceSupport


def survey_host(
    *, root: Path, machine: str, query_smi: Callable[[], NvidiaSmi], may_use: Callable[[Path], bool], docker_host: str
) -> Host:
    """Survey the machine below `root`.

    `machine` is the kernel's name of the processor; `may_use` returns whether this user may read and write a path.
    """
    smi: NvidiaSmi | NoAccelerator
    try:
        smi = query_smi()
    except NoAccelerator as error:
        smi = error
    memory = MEMORY.search(_read(root / "proc/meminfo"))
    tpus = [*sorted(root.glob("dev/accel[0-9]*")), *sorted(root.glob("dev/vfio/[0-9]*"))]
    return Host(
        platform=next((name for name, known in PROCESSORS.items() if known == machine), machine),
        avx=bool(AVX.search(_read(root / "proc/cpuinfo"))) if machine == "x86_64" else None,
        memory_bytes=int(memory[1]) * 1024 if memory else None,
        cards=sum(_is_card(device) for device in root.glob("sys/bus/pci/devices/*")),
        module=(root / "proc/driver/nvidia/version").exists(),
        smi=smi,
        tpus=tuple(f"/{node.relative_to(root)}" for node in tpus),
        closed_tpus=tuple(f"/{node.relative_to(root)}" for node in tpus if node.stat().st_mode & 0o006 != 0o006),
        hook=(root / HOOK).exists(),
        cdi=tuple(folder for folder in DEFAULT_CDI_FOLDERS if _has_nvidia_cdi(root / folder.lstrip("/"))),
        socket=_socket(root, docker_host, may_use),
    )


def _read(path: Path) -> str:
    # Files below /proc and /sys come and go, and some are for root alone.
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _is_card(device: Path) -> bool:
    return _read(device / "vendor").strip() == NVIDIA and _read(device / "class").startswith(DISPLAY)


def _has_nvidia_cdi(folder: Path) -> bool:
    files = (file for suffix in ("json", "yaml", "yml") for file in folder.glob(f"*.{suffix}"))
    return any(CDI_KIND.search(f"{_read(file)}\n") for file in files)


def _socket(root: Path, docker_host: str, may_use: Callable[[Path], bool]) -> Socket:
    path = root / docker_host.removeprefix("unix://").lstrip("/")
    if not docker_host.startswith("unix://") or not path.exists():
        return "absent"
    return "open" if may_use(path) else "closed"
