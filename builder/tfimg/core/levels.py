"""Levels of proof of an image."""

from __future__ import annotations

from typing import Literal, get_args

Level = Literal["declared", "built", "linked", "validated"]
"""`declared`: the matrix lists it. `built`: it builds. `linked`: all checks that need no accelerator passed.
`validated`: all checks passed on the accelerator."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""All levels, lowest first."""
