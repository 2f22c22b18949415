"""Levels of proof of an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Level = Literal["declared", "built", "linked", "validated"]
"""How much is proven; see `LEVEL_MEANINGS`."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""All levels, lowest first."""

LEVEL_MEANINGS: Mapping[Level, str] = {
    "declared": "The matrix lists the image; nothing is proven.",
    "built": "The image builds.",
    "linked": "All checks that need no GPU or TPU passed in the image.",
    "validated": "All checks passed in the image, on the device that it is for.",
}
