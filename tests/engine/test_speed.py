"""Builds and programs are about as fast as the committed figures say, each beside what it is compared with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

pytestmark = [pytest.mark.full, pytest.mark.group("speed")]

ALLOWED = 1.15
"""What a ratio may be of the committed one. Two runs on a quiet machine differ by less than a tenth."""


def test_a_cold_build_is_as_fast_as_the_committed_figures(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    subprocess.run(
        [
            sys.executable, ROOT / "tests/benchmarks/images", "--tf=2.15", "--device=cpu", "--runs=1",
            "--scenario=cold", "--contestant", "tfimg", "plain", f"--json={file}",
        ],
        check=True,
    )  # fmt: skip
    found, committed = (_ratios(path) for path in (file, ROOT / ".github/benchmarks/cpu.json"))
    assert found.keys() >= {"run", "push", "pull"}
    for figure in ("run", "push", "pull"):
        assert found[figure] <= ALLOWED * committed[figure], (found, committed)


def test_programs_start_as_fast_as_the_committed_figures() -> None:
    argv = [sys.executable, ROOT / "tests/benchmarks", "--starts", "--json"]
    found = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)["ratios"]
    committed = json.loads((ROOT / ".github/benchmarks/starts.json").read_text())["ratios"]
    assert found.keys() == committed.keys()
    slower = {name: (ratio, committed[name]) for name, ratio in found.items() if ratio > ALLOWED * committed[name]}
    assert not slower


def _ratios(file: Path) -> dict[str, float]:
    """Return tfimg's ratios to one `pip install`, by figure."""
    results = json.loads(file.read_text())["results"]
    return {one["figure"]: one["of_plain"] for one in results if one["contestant"] == "tfimg" and one["of_plain"]}
