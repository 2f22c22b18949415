"""What only a present GPU can show. One that is absent is a failure here."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from framework import tensorflow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract import Evidence, Facts

DRIVER = Path("/proc/driver/nvidia/version")
# A GPU, and the one node there is in Windows' Linux.
NODES = ("nvidia[0-9]*", "dxg")
# nvidia-smi starts the driver where nothing keeps it running, which takes seconds for each GPU.
SMI_SECONDS = 60


def visible(_facts: Facts) -> Evidence:
    """TensorFlow lists a GPU; its name and compute capability, and the version of the driver."""
    tf = tensorflow()
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        raise CheckFailed(f"expected a GPU, found none: {why_none(os.environ, _nodes(), _driver_loads())}")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return {
        "gpu": [one.get("device_name") for one in details],
        "capability": [".".join(map(str, one.get("compute_capability", ()))) for one in details],
        "driver": _driver_version(),
    }


def why_none(environment: Mapping[str, str], nodes: list[str], driver_loads: bool) -> str:
    """The likeliest reason for no GPU, what hides it first, and what to do."""
    cuda, toolkit = environment.get("CUDA_VISIBLE_DEVICES"), environment.get("NVIDIA_VISIBLE_DEVICES")
    if cuda is not None and cuda.split(",")[0].strip() in ("", "-1", "NoDevFiles"):
        return f"CUDA_VISIBLE_DEVICES={cuda!r} hides it; unset it"
    if toolkit in ("", "void", "none"):
        return f"NVIDIA_VISIBLE_DEVICES={toolkit!r} keeps it out of the container; unset it, or name a GPU"
    if not nodes:
        return "there is no /dev/nvidia*; start the container with --gpus all, and see nvidia-smi on the host"
    if not driver_loads:
        return "the driver's libcuda.so.1 does not load; start the container with NVIDIA's container toolkit"
    return "the driver is too old, or a library did not load; see libraries.* and TensorFlow's log lines"


def driver_version(text: str) -> str | None:
    """The version in /proc/driver/nvidia/version, for the closed and for the open kernel module."""
    found = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    return found.group(1) if found else None


def _nodes() -> list[str]:
    return sorted(str(node) for pattern in NODES for node in Path("/dev").glob(pattern))


def _driver_loads() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _driver_version() -> str | None:
    if DRIVER.exists():
        return driver_version(DRIVER.read_text())
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    question = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(question, capture_output=True, text=True, timeout=SMI_SECONDS)
    return done.stdout.partition("\n")[0].strip() or None
