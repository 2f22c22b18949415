"""Time limits on an emulated processor."""

from __future__ import annotations

import os

VARIABLE = "TFIMG_EMULATED"
"""Set for all processes of the suite on an emulator."""

FACTOR = 20
"""TensorFlow 2.15 for Arm took 50 s to import on an emulator, and 3 s on the same machine without one."""


def extend(seconds: float) -> float:
    """The time that an emulator needs for what takes others `seconds`."""
    return seconds * FACTOR if os.environ.get(VARIABLE) else seconds
