"""`builder/setup` on a project without dependencies: it says what it does, and nothing else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "nothing"
version = "1"
[project.optional-dependencies]
dev = []
[tool.setuptools]
py-modules = []
"""


def setup(folder: Path, workspace: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    (folder / "builder").mkdir(exist_ok=True)
    shutil.copy(workspace / "builder" / "setup", folder / "builder")
    return subprocess.run(
        ["sh", folder / "builder" / "setup"], capture_output=True, text=True, check=False,
        env={**os.environ, "PIP_EXTRA_INDEX_URL": "file:///missing/simple", **environ},
    )  # fmt: skip


ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_setup_prints_its_steps_and_no_warnings_of_pip(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    first, again = setup(tmp_path, ROOT), setup(tmp_path, ROOT)
    assert (first.returncode, first.stderr, again.stderr) == (0, "", "")
    made, *steps = first.stdout.splitlines()
    assert made.startswith("Making .venv with Python 3.")
    assert again.stdout.splitlines() == steps
    assert [line.split()[0] for line in steps] == ["Installing", "Done."]
    assert "file:///missing/simple" in (tmp_path / ".venv" / "pip.log").read_text(), "the log has what was left out"
    (tmp_path / "pyproject.toml").write_text(PROJECT.replace("dev = []", "dev = ['tfimg-has-no-such-package']"))
    failed = setup(tmp_path, ROOT, PIP_NO_INDEX="1", PIP_NO_BUILD_ISOLATION="0")
    assert failed.returncode == 1
    assert failed.stderr.endswith("is in .venv/pip.log. Check the network and pip's settings.\n")
