"""Time limits of checks: that of the table, extended for the GPUs of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver import START_SECONDS, has_code
from emulation import extend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract import Check, Facts

# The limits of the table are for a machine without an accelerator; a GPU's libraries have gigabytes to load, and
# nothing was measured on one.
VALIDATED_FACTOR = 3
# Compiling TensorFlow's PTX took up to half an hour on an H100 (tensorflow/tensorflow#60739, #62320).
PTX_SECONDS = 3600.0


def time_limit(check: Check, facts: Facts, gpus: Sequence[str]) -> float:
    """Seconds after which a check is ended, on a machine with GPUs of these compute capabilities.

    The driver may load a kernel when it is first used (lazy loading, the default since CUDA 12.2), so every check
    may be one that compiles PTX.
    """
    if facts.level != "validated" or facts.device == "cpu":
        return extend(check.seconds)
    limit = check.seconds * VALIDATED_FACTOR + START_SECONDS * len(gpus)
    return limit + (PTX_SECONDS if may_compile_ptx(facts.architectures, gpus) else 0)


def may_compile_ptx(architectures: Sequence[str] | None, gpus: Sequence[str]) -> bool:
    """Whether the wheel has no code for one of these GPUs, or nothing says what the wheel has code for."""
    return any(not architectures or not has_code(architectures, gpu) for gpu in gpus)
