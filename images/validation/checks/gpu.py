"""What only a present GPU can show. One that is absent is a failure here."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from framework import tensorflow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contract import Evidence, Facts

DRIVER = Path("/proc/driver/nvidia/version")
# A GPU, and the one node there is in Windows' Linux.
NODES = ("nvidia[0-9]*", "dxg")
# nvidia-smi starts the driver where nothing keeps it running, which takes seconds for each GPU.
SMI_SECONDS = 60


def visible(facts: Facts) -> Evidence:
    """TensorFlow lists a GPU; its name and compute capability, and the version of the driver."""
    tf = tensorflow()
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        seen = Seen(
            environment=os.environ, nodes=_nodes(), module=DRIVER.exists(), driver_cuda=_driver_cuda()
        )
        raise CheckFailed(f"expected a GPU, found none: {why_none(seen, facts.cuda)}")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return {
        "gpu": [one.get("device_name") for one in details],
        "capability": [".".join(map(str, one.get("compute_capability", ()))) for one in details],
        "driver": _driver_version(),
    }


@dataclass(frozen=True)
class Seen:
    """What a container shows of its machine's GPU: device nodes, the kernel's module, and the driver's library.

    `driver_cuda` is the CUDA version that the library knows, (12, 2); None where it does not load.
    """

    environment: Mapping[str, str]
    nodes: Sequence[str]
    module: bool
    driver_cuda: tuple[int, int] | None


def why_none(seen: Seen, cuda: str | None) -> str:
    """The likeliest reason for no GPU, what hides it first, and what to do. `cuda` is the image's, as 12.2."""
    hidden, asked = (
        seen.environment.get("CUDA_VISIBLE_DEVICES"),
        seen.environment.get("NVIDIA_VISIBLE_DEVICES"),
    )
    if hidden is not None and hidden.split(",")[0].strip() in ("", "-1", "NoDevFiles"):
        return f"CUDA_VISIBLE_DEVICES={hidden!r} hides it; unset it"
    if asked in ("", "void", "none"):
        return f"NVIDIA_VISIBLE_DEVICES={asked!r} keeps it out of the container; unset it, or name a GPU"
    if not seen.nodes and seen.module:
        return "the machine's driver runs, and the container was not handed its GPU: start it with --gpus all, which " \
            "needs NVIDIA's container toolkit on the machine"  # fmt: skip
    if not seen.nodes:
        return "the machine has no NVIDIA driver that runs; see nvidia-smi there"
    if seen.driver_cuda is None:
        return "the container has the GPU's nodes, and no libcuda.so.1 that loads: NVIDIA's container toolkit did " \
            "not hand in the driver; set NVIDIA_DRIVER_CAPABILITIES=compute,utility"  # fmt: skip
    if cuda is not None and seen.driver_cuda[0] < int(cuda.partition(".")[0]):
        known = ".".join(map(str, seen.driver_cuda))
        return (
            f"the machine's driver knows CUDA up to {known}, and the image has {cuda}: the driver is too old"
        )
    return "a library did not load, or the GPU is in a state of its own; see libraries.* and nvidia-smi"


def driver_version(text: str) -> str | None:
    """The version in /proc/driver/nvidia/version, for the closed and for the open kernel module."""
    found = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    return found.group(1) if found else None


def _nodes() -> list[str]:
    return sorted(str(node) for pattern in NODES for node in Path("/dev").glob(pattern))


def _driver_cuda() -> tuple[int, int] | None:
    version = ctypes.c_int()
    try:
        # 12020 is 12.2 (CUDA driver API, cuDriverGetVersion); it works before cuInit and without a GPU.
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None
    return None if failed else (version.value // 1000, version.value % 1000 // 10)


def _driver_version() -> str | None:
    if DRIVER.exists():
        return driver_version(DRIVER.read_text())
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    question = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(question, capture_output=True, text=True, timeout=SMI_SECONDS)
    return done.stdout.partition("\n")[0].strip() or None
