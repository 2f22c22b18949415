"""Formatting, lint and types, with the settings in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.shell_blocks import blocks

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]],
    ids=lambda command: command[-1],
)
def test_clean(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_type_checker_accepts_the_examples_of_the_api(tmp_path: Path) -> None:
    page = ROOT / "docs/reference/python-api.md"
    examples = [block.text for block in blocks(page) if block.language == "python"]
    for number, example in enumerate(examples):
        (tmp_path / f"example_{number}.py").write_text(example)
    command = [sys.executable, "-m", "mypy", *sorted(tmp_path.glob("*.py"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, len(examples)) == (0, 2), done.stdout
