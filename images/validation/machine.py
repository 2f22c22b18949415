"""Describe the machine for the report, as this process sees it."""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


def machine() -> dict[str, Any]:
    """Python, C library, kernel, processor, memory: of the container, limits included. Sizes in MiB."""
    return {
        "python": platform.python_version(),
        "glibc": platform.libc_ver()[1],
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": processor_name(_text("/proc/cpuinfo")),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": _kilobytes(_text("/proc/meminfo"), "MemTotal") // 1024,
        "memory_limit_mib": _limit(_text("/sys/fs/cgroup/memory.max")),
        "shm_mib": shutil.disk_usage("/dev/shm").total >> 20 if Path("/dev/shm").is_dir() else 0,  # noqa: S108
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def processor_name(cpuinfo: str) -> str | None:
    """The model that a /proc/cpuinfo names; Arm's has none."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found.group(1).strip() if found else None


def _kilobytes(meminfo: str, name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+) kB$", meminfo, re.MULTILINE)
    return int(found.group(1)) if found else 0


def _limit(memory_max: str) -> int | None:
    """cgroup v2's limit; None where there is none, or another kind of cgroup."""
    return int(memory_max) >> 20 if memory_max.strip().isdigit() else None
