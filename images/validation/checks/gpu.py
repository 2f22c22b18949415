"""What only a present GPU can show. One that is absent is a failure here."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from child import answer
from contract import CheckFailed
from framework import tensorflow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract import Evidence, Facts

QUESTIONS = Path(__file__).parents[1] / "fresh.py"
DRIVER = Path("/proc/driver/nvidia/version")
# A GPU, and the one node there is in Windows' Linux.
NODES = ("nvidia[0-9]*", "dxg")
# An import of TensorFlow takes up to 10 s on two busy cores; the rest is for a cold disk.
START_SECONDS = 120
# With code for the GPU in the wheel it takes seconds; compiling all of TensorFlow's PTX takes many minutes.
KERNEL_SECONDS = 60
NCCL_SECONDS = 120


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


def first_kernel(_facts: Facts) -> Evidence:
    """A new process has its first product within a minute, with nothing kept from earlier runs."""
    # TensorFlow's own log line says when PTX is compiled.
    found = _ask("first_kernel", START_SECONDS + KERNEL_SECONDS, CUDA_CACHE_DISABLE="1")
    if found["seconds"] > KERNEL_SECONDS:
        raise CheckFailed(
            f"expected the first kernel within {KERNEL_SECONDS} s, found {found['seconds']} s: PTX is being "
            "compiled, because TensorFlow has no code for this GPU; take a TensorFlow that has",
            **found,
        )
    return found


def memory_growth(_facts: Facts) -> Evidence:
    """With memory growth on, a small product leaves more than half of the GPU's free memory to others."""
    found = _ask("growth", START_SECONDS + KERNEL_SECONDS, TF_FORCE_GPU_ALLOW_GROWTH=None)
    if not all(found["growth"]) or found["taken_mib"] * 2 >= found["free_mib"]:
        raise CheckFailed(
            f"expected memory growth on and little taken, found {found['growth']} and {found['taken_mib']} of "
            f"{found['free_mib']} MiB: TensorFlow ignores the option, or another process took memory just now; "
            "try again alone",
            **found,
        )
    return found


def nccl(_facts: Facts) -> Evidence:
    """A sum over all GPUs is right on each of them. One GPU has nothing to add up, which the evidence says."""
    count = len(tensorflow().config.list_physical_devices("GPU"))
    if count == 0:
        raise CheckFailed("expected a GPU, found none; see gpu.visible")
    if count == 1:
        return {"gpus": 1, "not_checked": "one GPU: nothing was reduced over NCCL"}
    found = _ask("all_reduce", START_SECONDS + NCCL_SECONDS)
    if found["replicas"] != count or found["sums"] != [[count * (count + 1) / 2]] * count:
        raise CheckFailed(
            f"expected the sum {count * (count + 1) / 2} on each of {count} GPUs, found {found['sums']}: NCCL "
            "does not reach all of them; run with NCCL_DEBUG=INFO, and give the container more shared memory",
            **found,
        )
    return {"gpus": count, **found}


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
    done = subprocess.run(question, capture_output=True, text=True, timeout=START_SECONDS)
    return done.stdout.partition("\n")[0].strip() or None


def _ask(question: str, seconds: int, kind: str = "GPU", **changes: str | None) -> Evidence:
    """The answer of `fresh.py`, in this environment with changes; None removes a variable."""
    environment = {**os.environ, **{name: value for name, value in changes.items() if value is not None}}
    for name in (name for name, value in changes.items() if value is None):
        environment.pop(name, None)
    hung = "PTX is being compiled, or the GPU or its driver hangs; see nvidia-smi on the host"
    found: Evidence = answer(
        QUESTIONS, question, kind, seconds=seconds, env=environment, hung=hung, see="gpu.visible"
    )
    return found
