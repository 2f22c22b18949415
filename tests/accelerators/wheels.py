"""The suite on the wheels for GPUs and TPUs, on a machine with neither: `tests/accelerators` runs these tests."""

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from checks import CHECKS
from virtual_environment import make_variables

from support.fake_driver import VARIABLE, fake_driver
from support.locked_tensorflow import PYTHON, SUITE, locked_python
from support.paths import ROOT
from tfimg.core.paths import Workspace
from tfimg.matrix.load import parse_matrix
from tfimg.matrix.spec import expand_matrix
from tfimg.recipe.facts import collect_host_facts

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

GPU, TPU = f"2.21.0-cuda12.5-{PYTHON}", f"2.20.0-tpu-{PYTHON}"
TWO_GPUS = "devices=2 name=NVIDIA_H200 major=9 minor=0"

Outcomes = dict[str, tuple[str, str | None]]


def claims(identifier: str) -> dict[str, Any]:
    """What a virtual environment of an image's lock claims to be."""
    workspace, today = Workspace(root=ROOT), datetime.now(UTC).date()
    matrix = parse_matrix(workspace.matrix.read_text(), source="matrix.yaml", today=today)
    (spec,) = [spec for spec in expand_matrix(matrix) if spec.identifier == identifier]
    return collect_host_facts(spec, workspace.read_lock(identifier))


def variables(folder: Path) -> dict[str, str]:
    """Return what images/on_host sets for the wheels in a folder's virtual environment."""
    return make_variables(folder)


Run = Callable[..., Outcomes]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run checks of the suite for what an image claims; return their outcomes and reasons."""

    def run_suite(identifier: str, level: str, *only: str, facts: dict[str, Any] | None = None) -> Outcomes:
        python = locked_python(identifier)
        (tmp_path / "environment").symlink_to(python.parents[1])
        environment = variables(tmp_path)
        libraries = f"{fake_driver()}:{environment.get('LD_LIBRARY_PATH', '')}"
        if level == "validated":
            environment.update({"LD_LIBRARY_PATH": libraries, VARIABLE: TWO_GPUS})
        file = tmp_path / "facts.json"
        file.write_text(json.dumps(facts or claims(identifier)))
        arguments = ["--json", "--facts", str(file), "--level", level, "--only", *only]
        done = subprocess.run(
            # libtpu would look for a TPU VM's metadata server for minutes.
            [str(python), str(SUITE), *arguments], env={**environment, "TPU_SKIP_MDS_QUERY": "1"},
            capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        ends = [json.loads(line) for line in done.stdout.splitlines() if '"event": "end"' in line]
        assert ends, done.stderr
        return {end["check"]: (end["outcome"], end["reason"]) for end in ends}

    return run_suite


def validated(device: str) -> list[str]:
    """The checks that need the device."""
    return [name for name, check in CHECKS.items() if device in check.devices and check.level == "validated"]


LINKED = [
    name
    for name, check in CHECKS.items()
    if name.startswith(("libraries.", "compiler.")) and check.devices == ("gpu",) and name != "libraries.driver_stub"
]


def test_gpu_wheels_are_linked(run: Run) -> None:
    names = [*LINKED, "devices.listing"]
    assert run(GPU, "linked", *names) == dict.fromkeys(names, ("passed", None))


def test_gpu_wheels_are_linked_where_no_lock_is_claimed(run: Run) -> None:
    nothing = {**claims(GPU), "packages": None, "architectures": []}
    assert run(GPU, "linked", *LINKED, facts=nothing) == dict.fromkeys(LINKED, ("passed", None))


def test_gpu_wheels_validate_nothing_without_a_gpu(run: Run) -> None:
    names = [*validated("gpu"), "devices.listing", "distribution.mirrored", "tools.profiler", "numerics.matmul"]
    outcomes = run(GPU, "validated", *names)
    assert set(outcomes) == set(names)
    assert {outcome for outcome, _ in outcomes.values()} == {"failed", "skipped"}


@pytest.mark.skipif(bool(list(Path("/dev").glob("accel*"))), reason="this machine has a TPU")
def test_tpu_wheels_are_linked(run: Run) -> None:
    names = ["tpu.pair", "tpu.library"]
    assert run(TPU, "linked", *names) == dict.fromkeys(names, ("passed", None))


@pytest.mark.skipif(bool(list(Path("/dev").glob("accel*"))), reason="this machine has a TPU")
def test_tpu_wheels_validate_nothing_without_a_tpu(run: Run) -> None:
    names = validated("tpu")
    outcomes = run(TPU, "validated", *names)
    assert set(outcomes) == set(names)
    assert {outcome for outcome, _ in outcomes.values()} == {"failed", "skipped"}
