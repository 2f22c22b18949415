"""Folders of this checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
"""Recorded inputs: logs, outputs of programs, small matrices."""
