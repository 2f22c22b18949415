"""Folders of this checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
"""Recorded inputs: logs, outputs of programs, small matrices."""
