"""The machine that a benchmark ran on."""

import os
import re
from pathlib import Path


def machine() -> dict[str, str | int]:
    """Processor, processors that this process may use, GB of memory, and kernel."""
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model[1] if model else os.uname().machine,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9),
        "kernel": os.uname().release,
    }
