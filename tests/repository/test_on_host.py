"""A bare machine with real wheels: TensorFlow for CPU is proven and recorded, and for GPU refused where no GPU is."""

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
    ignored = shutil.ignore_patterns("records", "__pycache__")
    shutil.copytree(ROOT / "images", root / "images", ignore=ignored)
    shutil.copy(ROOT / "matrix.yaml", root)
    return Workspace(root=root)


def run(copy: Workspace, identifier: str) -> tuple[int, str, CliResult]:
    """Fill a folder with pip, run run.py, and record; the status and output of run.py, and how `record` ended."""
    folder, record = copy.root.parent / "wheels", copy.root.parent / "host-run.json"
    locks = [f"--requirement={file}" for file in sorted(copy.locks(identifier).glob("*.txt"))]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--dest", str(folder)]
    subprocess.run([*pip, *locks], check=True)
    program = [sys.executable, str(copy.images / "on_host/run.py"), identifier, "--python", sys.executable]
    command = [*program, "--wheels", str(folder), "--output", str(record)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    recorded = run_tfimg("matrix", "record", str(record), env={"TFIMG_WORKSPACE": str(copy.root)})
    return done.returncode, done.stdout + done.stderr, recorded


def test_tensorflow_for_cpu_is_proven_and_recorded(copy: Workspace) -> None:
    status, output, recorded = run(copy, f"2.21.0-cpu-py{MINOR}")
    assert status == 0, output
    recorded.succeeded()
    (file,) = (copy.images / "records/on_host").rglob("*.json")
    assert file.name == "cpu.json"
    kept = json.loads(file.read_text())
    assert kept["skipped"] == {}
    assert {"numerics.convolution", "training.cnn", "saving.keras"} <= {*kept["passed"]}


@pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]"))), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_fails_clearly_and_its_results_are_refused(copy: Workspace) -> None:
    status, output, recorded = run(copy, f"2.21.0-cuda12.5-py{MINOR}")
    assert status == 1
    assert "gpu.visible  expected a GPU, found none: the machine has no NVIDIA driver that runs" in output
    assert "gpu.visible failed: expected a GPU, found none" in recorded.refusal(13)
    assert not (copy.images / "records").exists()
    ran = json.loads((copy.root.parent / "host-run.json").read_text())
    ends = [event for event in ran["events"] if event["event"] == "end"]
    assert [end["check"] for end in ends if "the facts say nothing" in (end["reason"] or "")] == []
    without_gpu = {end["check"]: end["outcome"] for end in ends if end["check"].startswith(("libraries.", "compiler."))}
    assert set(without_gpu.values()) == {"passed"}, without_gpu
