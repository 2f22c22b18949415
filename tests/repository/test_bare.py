"""A bare machine with real wheels: TensorFlow for CPU is proven and recorded, and for GPU refused where no GPU is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli import CliResult, run_tfimg
from support.paths import ROOT
from tfimg.core.paths import Workspace

# Each downloads and installs a release: 300 MB for CPU, 2.5 GB for GPU.
pytestmark = [pytest.mark.full, pytest.mark.group("gpu"), pytest.mark.timeout(1800)]
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def copy(tmp_path: Path) -> Workspace:
    """A copy of the workspace for records."""
    root = tmp_path / "workspace"
    ignored = shutil.ignore_patterns("rendered", "evidence", "__pycache__")
    shutil.copytree(ROOT / "images", root / "images", ignore=ignored)
    shutil.copy(ROOT / "matrix.yaml", root)
    return Workspace(root=root)


def run(copy: Workspace, *request: str) -> tuple[int, str, CliResult]:
    """Make the folder, run it, and record the evidence; the status and output of run.py, and how `record` ended."""
    env, folder = {"TFIMG_WORKSPACE": str(copy.root)}, copy.root.parent / "bare"
    made = run_tfimg("bare", str(folder), "--tf", "2.21", "--python", MINOR, *request, "--pieces", "60", env=env)
    made.succeeded()
    assert max(file.stat().st_size for file in (folder / "wheels").iterdir()) <= 60 << 20
    evidence = folder.parent / "evidence.json"
    command = [
        sys.executable,
        str(folder / "run.py"),
        "--output",
        str(evidence),
        "--python",
        f"{MINOR}={sys.executable}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr, run_tfimg("record", str(evidence), env=env)


def test_tensorflow_for_cpu_is_proven_and_recorded(copy: Workspace) -> None:
    status, output, recorded = run(copy)
    assert status == 0, output
    recorded.succeeded()
    (file,) = (copy.images / "evidence/bare").rglob("*.json")
    assert file.name == "cpu.json"
    kept = json.loads(file.read_text())
    assert {result["outcome"] for result in kept["results"]} == {"passed"}
    assert {"numerics.convolution", "training.cnn", "saving.keras"} <= {one["check"] for one in kept["results"]}


@pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]"))), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_fails_clearly_and_its_evidence_is_refused(copy: Workspace) -> None:
    status, output, recorded = run(copy, "--device", "gpu")
    assert status == 1
    assert "gpu.visible  expected a GPU, found none: the machine has no NVIDIA driver that runs" in output
    assert "gpu.visible failed: expected a GPU, found none" in recorded.refusal(13)
    assert not (copy.images / "evidence").exists()
    (ran,) = json.loads((copy.root.parent / "evidence.json").read_text())["runs"]
    ends = [event for event in ran["events"] if event["event"] == "end"]
    assert [end["check"] for end in ends if "the facts say nothing" in (end["reason"] or "")] == []
    without_gpu = {end["check"]: end["outcome"] for end in ends if end["check"].startswith(("libraries.", "compiler."))}
    assert set(without_gpu.values()) == {"passed"}, without_gpu
