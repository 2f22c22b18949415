"""Checks that need a GPU; without one they fail."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from driver import START_SECONDS, ask_driver, device_nodes, parse_capability
from framework import tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from contract import Facts, Measured
    from driver import Driver

DRIVER = Path("/proc/driver/nvidia/version")
# A GPU, and the one node there is in Windows' Linux.
NODES = ("nvidia[0-9]*", "dxg")
SMI_SECONDS = 60
# What to do where the driver refuses to start, by its answer (ERRORS of driver.py).
ADVICE = {
    "NOT_READY": "GPUs behind NVSwitch need NVIDIA's Fabric Manager; start nvidia-fabricmanager on the machine",
    "MISMATCH": "the driver was updated under its old kernel module; restart the machine",
    "COMPAT": "a CUDA compatibility library that this GPU does not take is found first; take it off LD_LIBRARY_PATH",
    "UNKNOWN": "reload the driver's module on the machine: modprobe -r nvidia_uvm && modprobe nvidia_uvm",
    "UNAVAILABLE": "another process has the GPU for itself; see the compute mode in nvidia-smi",
}


def visible(facts: Facts) -> Measured:
    """TensorFlow lists a GPU; its name and compute capability, and the version of the driver."""
    tf, driver = tensorflow(), ask_driver()
    listed = tf.config.list_physical_devices("GPU")
    if not listed:
        seen = Seen(environment=os.environ, nodes=_nodes(), module=DRIVER.exists(), driver=driver)
        raise CheckFailed(f"expected a GPU, found none: {why_none(seen, facts)}")
    return {
        **identify(listed, driver, tf.config.experimental.get_device_details),
        "driver": find_driver_version(DRIVER, shutil.which("nvidia-smi")),
    }


def identify(listed: Sequence[Any], driver: Driver, get_details: Callable[[Any], Mapping[str, Any]]) -> Measured:
    """Names and compute capabilities of the GPUs that TensorFlow lists: the driver's, else what TensorFlow tells.

    TensorFlow 2.21 tells the capability of Hopper and newer GPUs as 9.0a, and raises when it reads that itself.
    """
    if len(listed) == len(driver.gpus):
        return {
            "gpu": [gpu.name for gpu in driver.gpus],
            "capability": [".".join(map(str, parse_capability(gpu.capability))) for gpu in driver.gpus],
            "memory_mib": [gpu.memory_mib for gpu in driver.gpus],
        }
    details = [_details(get_details, gpu) for gpu in listed]
    names = [gpu.name for gpu in driver.gpus]
    cause = driver.problem or f"it lists {len(names)}: {', '.join(names)}"
    return {
        "gpu": [one.get("device_name", "unknown") for one in details],
        "capability": [".".join(map(str, one.get("compute_capability", ["unknown"]))) for one in details],
        "warnings": [
            f"TensorFlow lists {len(listed)} GPUs, and the driver does not confirm them ({cause}); where TensorFlow "
            "ignores some, name those to use in CUDA_VISIBLE_DEVICES"
        ],
    }


def _details(get_details: Callable[[Any], Mapping[str, Any]], gpu: Any) -> Mapping[str, Any]:
    try:
        return get_details(gpu)
    except Exception:  # a name is enough: whatever TensorFlow raises, the GPU is there
        return {}


@dataclass(frozen=True)
class Seen:
    """What a container shows of its machine's GPU: device nodes, the kernel's module, and what the driver tells."""

    environment: Mapping[str, str]
    nodes: Sequence[str]
    module: bool
    driver: Driver


def why_none(seen: Seen, facts: Facts) -> str:
    """The likeliest reason for no GPU, what hides it first, and what to do."""
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
    return _why_driver(seen.driver, facts)


def _why_driver(driver: Driver, facts: Facts) -> str:
    """The reason for no GPU where the machine has one: its driver's, the GPU's, or a library's."""
    problem = driver.problem or ""
    if "libcuda.so.1" in problem:
        return "the container has the GPU's nodes, and no libcuda.so.1 that loads: NVIDIA's container toolkit did " \
            f"not mount the driver; set NVIDIA_DRIVER_CAPABILITIES=compute,utility ({problem})"  # fmt: skip
    if driver.cuda and facts.cuda and int(driver.cuda.partition(".")[0]) < int(facts.cuda.partition(".")[0]):
        return (
            f"the machine's driver knows CUDA up to {driver.cuda}, and the image has {facts.cuda}: the driver is too "
            "old"
        )
    if problem:
        advice = next((ADVICE[word] for word in ADVICE if word in problem), "see nvidia-smi on the machine")
        return f"the machine's driver does not start, {problem}: {advice}"
    least = min(map(parse_capability, facts.architectures or ["0.0"]))
    old = [gpu for gpu in driver.gpus if parse_capability(gpu.capability) < least]
    if old and len(old) == len(driver.gpus):
        return (
            f"{old[0].name} has compute capability {old[0].capability}, and this TensorFlow has code from "
            f"{least[0]}.{least[1]} on: the GPU is too old for it; take an older TensorFlow"
        )
    return (
        f"the driver lists {len(driver.gpus)} and TensorFlow none: a library did not load; see libraries.* and "
        "TensorFlow's log"
    )


def driver_version(text: str) -> str | None:
    """The version in /proc/driver/nvidia/version, for the closed and for the open kernel module."""
    found = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    return found.group(1) if found else None


def _nodes() -> list[str]:
    return sorted(str(node) for pattern in NODES for node in Path("/dev").glob(pattern))


def find_driver_version(module: Path, command: str | None) -> str | None:
    """The driver's version from the kernel module's file, else from the program nvidia-smi; None where both lack."""
    if module.exists():
        return driver_version(module.read_text())
    if command is None:
        return None
    question = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    # It starts the driver where nothing keeps it running.
    seconds = SMI_SECONDS + START_SECONDS * len(device_nodes())
    try:
        done = subprocess.run(question, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.partition("\n")[0].strip() or None if done.returncode == 0 else None
