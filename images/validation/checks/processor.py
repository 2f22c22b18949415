"""The processor against what the wheel was compiled for, before a line of the wheel runs."""

from __future__ import annotations

import ctypes
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed, CheckSkipped
from machine import processor_name

if TYPE_CHECKING:
    from contract import Facts, Measured

CPUINFO = Path("/proc/cpuinfo")
# Linux' names (pni is SSE3). Wheels for x86-64 are compiled with -mavx, which includes all before it. Tried on emulated
# processors that lack one of them: without AVX, SSE4.2 or POPCNT TensorFlow 2.15 and 2.21 end at the import, by SIGILL
# or by "was compiled to use AVX instructions"; without AVX2 and FMA, which are used where present, they work.
# Wheels for ARM are compiled for the base of ARMv8.
NEEDED = {
    "x86_64": ("sse2", "pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "avx"),
    "aarch64": ("fp", "asimd"),
}
# Used where present, chosen at run time; told, because they explain why one machine is faster than another.
FASTER = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimddp", "bf16", "sve")


# The kernel's names of the bits of AT_HWCAP on ARM (arch/arm64/include/uapi/asm/hwcap.h).
AT_HWCAP = 16
CAPABILITIES = {0: "fp", 1: "asimd", 20: "asimddp", 22: "sve"}


def cpu(_facts: Facts) -> Measured:
    """The processor has the instructions that the wheel uses without asking."""
    try:
        text = CPUINFO.read_text(errors="replace")
    except OSError as error:
        raise CheckSkipped(f"the processor's instructions are unknown ({error}); mount /proc") from None
    return judge(platform.machine(), text, ctypes.CDLL(None).getauxval(AT_HWCAP))


def judge(machine: str, cpuinfo: str, capabilities: int = 0) -> Measured:
    """The verdict on a machine, its /proc/cpuinfo, and its AT_HWCAP: an emulator may show the cpuinfo of its host."""
    is_foreign = machine == "aarch64" and not re.search(r"^Features\s*:", cpuinfo, re.MULTILINE)
    has = decode(capabilities) if is_foreign else instructions(cpuinfo)
    if machine not in NEEDED or not has:
        raise CheckSkipped(
            f"what TensorFlow needs of {machine} is not known, or an emulator hides what it offers; "
            "see environment.import_tensorflow"
        )
    measured = {
        "machine": machine,
        "model": "an emulated processor" if is_foreign else processor_name(cpuinfo) or "a processor without a name",
        "needed": list(NEEDED[machine]),
        "faster": [name for name in FASTER if name in has],
    }
    missing = [name for name in NEEDED[machine] if name not in has]
    if missing:
        raise CheckFailed(
            f"expected a processor with {', '.join(missing)}, found {measured['model']} without: the host is at "
            "fault, not the image: it is too old, or its virtual machine or emulator hides them; give the machine "
            "the host's own processor type (QEMU: -cpu host), or take another host",
            missing=missing,
            **measured,
        )
    return measured


def decode(capabilities: int) -> frozenset[str]:
    """The instruction sets of ARM in an AT_HWCAP, by Linux' names."""
    return frozenset(name for bit, name in CAPABILITIES.items() if capabilities >> bit & 1)


def instructions(cpuinfo: str) -> frozenset[str]:
    """The instruction sets that all processors in a /proc/cpuinfo have, by Linux' names."""
    lines = re.findall(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    return frozenset.intersection(*(frozenset(line.split()) for line in lines)) if lines else frozenset()
