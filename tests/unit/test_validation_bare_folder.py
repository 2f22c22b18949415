"""`tfimg bare`: the folder, its wheels whole and in pieces, and run.py in it, with small wheels and a small suite."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from run import summarize

from support.cli import CliResult, CliRunner
from support.environment import TestEnvironment
from support.wheels import index_of, lock_line, write_wheel
from tfimg.core.paths import Workspace

GPU = "2.21.0-cuda12.5-py3.11"
PYTHON = f"3.11={sys.executable}"

makes_environment = pytest.mark.full
"""A virtual environment with pip takes several seconds."""

SUITE = """\
import json, os, sys
import tensorflow, ctypes.util
nonce = sys.argv[sys.argv.index("--nonce") + 1]
facts = json.load(open(sys.argv[sys.argv.index("--facts") + 1]))
def say(**event): print(json.dumps(event), flush=True)
print("no event"); print('{"event": NaN}')
say(event="suite", nonce=nonce, facts=facts, prefix=sys.prefix)
wanted = ("LD_LIBRARY_PATH", "XLA_FLAGS", "PATH", "PYTHONPATH")
evidence = {name: os.environ.get(name) for name in wanted}
evidence["links"] = {name: os.path.realpath(os.path.join(evidence["LD_LIBRARY_PATH"].split(":")[0], name))
                     for name in ("libcupti.so", "libnvrtc.so")}
say(event="end", check="one", outcome="passed", seconds=0.1, reason=None, evidence=evidence)
say(event="done", code=CODE, verdict="passed", fault=None)
print("a line for the log", file=sys.stderr)
sys.exit(CODE)
"""


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of `tfimg bare`, how it is made, and how run.py is started in it."""

    path: Path
    tfimg: CliRunner
    work: Path

    def make(self, *options: str) -> CliResult:
        return self.tfimg("bare", str(self.path), GPU, *options)

    def run(self, *options: str, code: int = 0) -> str:
        command = [
            sys.executable,
            str(self.path / "run.py"),
            "--work",
            str(self.work),
            "--output",
            "evidence.json",
        ]
        done = subprocess.run([*command, *options], cwd=self.path.parent, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def evidence(self) -> Any:
        (run,) = json.loads((self.path.parent / "evidence.json").read_text())["runs"]
        return run

    @property
    def wheels(self) -> list[str]:
        return sorted(file.name for file in (self.path / "wheels").iterdir() if file.suffix != ".json")


@pytest.fixture
def folder(tmp_path: Path, workspace: Workspace) -> Iterator[Folder]:
    """A release that locks four small wheels, which an index on this machine serves."""
    root = tmp_path / "workspace"
    (root / "images/locks" / GPU).mkdir(parents=True)
    shutil.copytree(workspace.images / "bare", root / "images/bare")
    (root / "images/validation").mkdir()
    (root / "images/validation/__main__.py").write_text(SUITE.replace("CODE", "0"))
    shutil.copy(workspace.matrix, root)
    (built := tmp_path / "built").mkdir()
    site = (
        "nvidia/cuda_nvcc/bin/ptxas",
        "nvidia/cuda_cupti/lib/libcupti.so.11.8",
        "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    )
    big = bytes(range(256)) * 16384
    wheels = [
        write_wheel(built, "tensorflow", {"tensorflow/__init__.py": b"", "tensorflow/big": big}, kind=0),
        *(write_wheel(built, f"nvidia{number}", {path: b"x"}) for number, path in enumerate(site)),
    ]  # fmt: skip
    (root / "images/locks" / GPU / "tensorflow.txt").write_text("".join(map(lock_line, wheels)))
    with index_of(wheels) as url:
        environ = {"TFIMG_WORKSPACE": str(root), "UV_DEFAULT_INDEX": url}
        tfimg = CliRunner(home=tmp_path, edge=TestEnvironment(), environ=environ)
        yield Folder(path=tmp_path / "bare", tfimg=tfimg, work=tmp_path / "work")


@makes_environment
def test_the_suite_runs_in_an_environment_of_the_locked_wheels(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.make().succeeded().stdout.startswith("folder ")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/driver")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/x")
    monkeypatch.setenv("PYTHONPATH", str(folder.path))
    output = folder.run("--python", PYTHON)
    assert "passed        0.1 s  one" in output
    assert "1 of 1 releases passed" in output
    run = folder.evidence
    assert run["identifier"] == GPU
    assert (run["status"], run["problem"], len(run["wheels"])) == (0, None, 4)
    assert [event["event"] for event in run["events"]] == ["suite", "end", "done"]
    assert run["events"][0]["nonce"] == run["nonce"]
    facts = run["events"][0]["facts"]
    assert (facts["identifier"], facts["device"], facts["level"]) == (None, "gpu", "validated")
    own, found = folder.work / GPU, run["events"][1]["evidence"]
    assert run["events"][0]["prefix"] == str(own / "environment")
    nvidia = own / "environment/lib/python3.11/site-packages/nvidia"
    libraries = [
        str(own / "links"),
        str(nvidia / "cuda_cupti/lib"),
        str(nvidia / "cuda_nvrtc/lib"),
        "/driver",
    ]
    assert found["LD_LIBRARY_PATH"].split(":") == libraries
    assert found["XLA_FLAGS"] == f"--xla_gpu_cuda_data_dir={nvidia}/cuda_nvcc --xla_dump_to=/x"
    assert found["PATH"].split(":")[:2] == [str(own / "environment/bin"), str(nvidia / "cuda_nvcc/bin")]
    assert found["PYTHONPATH"] is None
    assert {name: Path(path).name for name, path in found["links"].items()} == {
        "libcupti.so": "libcupti.so.11.8", "libnvrtc.so": "libnvrtc.so.12",
    }  # fmt: skip
    assert run["variables"]["LD_LIBRARY_PATH"].startswith("{folder}/links:{folder}/environment/lib/")
    assert str(folder.work) not in json.dumps(run["variables"])
    assert not own.exists(), "an environment of gigabytes is left"


@makes_environment
def test_a_suite_that_fails_is_reported_and_nothing_is_called_green(folder: Folder) -> None:
    main = Path(folder.tfimg.environ["TFIMG_WORKSPACE"]) / "images/validation/__main__.py"
    main.write_text(SUITE.replace("CODE", "6"))
    folder.make().succeeded()
    output = folder.run("--python", PYTHON, code=1)
    assert "0 of 1 releases passed" in output
    assert "refuses the others" in output
    assert "a line for the log" in (folder.work / f"{GPU}.log").read_text()
    assert folder.evidence["status"] == 6
    ended = folder.tfimg("record", str(folder.path.parent / "evidence.json"))
    assert "environment.python is required, and was not run" in ended.refusal(13)


@makes_environment
def test_pieces_are_joined_again_and_whole_wheels_stay_whole(folder: Folder) -> None:
    folder.make("--pieces", "1").succeeded()
    pieces = [f"tensorflow-1.0-py3-none-any.whl.{number:03}" for number in range(5)]
    assert [name for name in folder.wheels if name.startswith("tensorflow")] == pieces
    sizes = [(folder.path / "wheels" / name).stat().st_size for name in pieces]
    assert (set(sizes[:-1]), sizes[-1] < 1 << 20) == ({1 << 20}, True)
    assert "All files" in folder.run("--check")
    folder.run("--python", PYTHON)
    assert folder.evidence["status"] == 0


def test_files_that_are_missing_or_damaged_are_named_before_anything_is_made(folder: Folder) -> None:
    folder.make("--pieces", "1").succeeded()
    wheels = folder.path / "wheels"
    first, second, third, *_ = sorted(wheels.glob("*.whl.*"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    third.write_bytes(bytes(1 << 20))
    output = folder.run(code=3)
    assert f"wheels/{first.name} is missing" in output
    assert f"wheels/{second.name} has {(1 << 20) - 1} bytes, not {1 << 20}" in output
    assert third.name not in output, "its size is right, and nothing else was asked for"
    assert f"wheels/{third.name} has another SHA-256" in folder.run("--check", code=3)
    assert not folder.work.exists()


@makes_environment
def test_a_piece_of_the_right_size_and_other_bytes_is_not_installed(folder: Folder) -> None:
    folder.make("--pieces", "1").succeeded()
    (*_, piece) = sorted((folder.path / "wheels").glob("*.whl.*"))
    piece.write_bytes(bytes(piece.stat().st_size))
    assert "does not have its SHA-256 when joined" in folder.run("--python", PYTHON, code=1)
    assert "when joined" in folder.evidence["problem"]


def test_another_run_fetches_only_what_is_missing_or_damaged(folder: Folder) -> None:
    folder.make("--pieces", "1").succeeded()
    wheels = folder.path / "wheels"
    piece = sorted(wheels.glob("tensorflow*.whl.*"))[1]
    piece.write_bytes(bytes(1 << 20))
    (wheels / "nvidia0-1.0-py3-none-any.whl").unlink()
    told = folder.make("--pieces", "1").succeeded().stderr
    assert [line.split("]")[1].split(":")[0].strip() for line in told.splitlines() if line.startswith("[")] == [
        "fetched", "fetched", "is there", "is there",
    ]  # fmt: skip
    assert "All files" in folder.run("--check")
    assert "fetched" not in folder.make("--pieces", "1").succeeded().stderr


def test_a_suite_that_was_changed_is_not_run(folder: Folder) -> None:
    folder.make().succeeded()
    (folder.path / "suite/__main__.py").write_text("print('all is well')\n")
    assert "copy it again" in folder.run(code=3)


def test_a_machine_without_the_python_says_so_in_the_evidence(folder: Folder) -> None:
    folder.make().succeeded()
    other = shutil.which("false")
    assert "the environment cannot be made" in folder.run("--python", f"3.11={other}", code=1)
    assert folder.evidence["problem"]
    assert folder.evidence["events"] == []


def test_only_a_folder_of_its_own_is_written_to(folder: Folder) -> None:
    folder.path.mkdir()
    (folder.path / "thesis.txt").write_text("mine")
    assert "but `tfimg bare` did not create it" in folder.make().refusal(2)
    assert [file.name for file in folder.path.iterdir()] == ["thesis.txt"]


def test_a_work_folder_that_variables_cannot_carry_is_refused(folder: Folder) -> None:
    folder.make().succeeded()
    assert "has a space or a colon" in folder.run("--work", str(folder.work / "a b"), code=2)


def test_an_image_for_tpus_is_refused(tfimg: CliRunner, tmp_path: Path) -> None:
    message = tfimg("bare", str(tmp_path / "x"), "2.20.0-tpu-py3.11").refusal(4)
    assert "is for TPUs" in message


def test_the_folder_of_a_request_is_that_of_one_image(folder: Folder) -> None:
    ended = folder.tfimg("bare", str(folder.path), "--tf", "2.21", "--device", "gpu", "--python", "3.11", "--json")
    assert ended.succeeded().documents[-1]["releases"] == [GPU]


def test_the_summary_of_releases_counts_skipped_checks() -> None:
    ends = [{"event": "end", "outcome": outcome} for outcome in ("passed", "skipped", "skipped")]
    run = {"status": 0, "events": [*ends, {"event": "done", "code": 0}]}
    assert summarize([run, {**run, "status": 1}]) == "1 of 2 releases passed, and 4 checks were skipped."
    passed = {"status": 0, "events": [ends[0], {"event": "done", "code": 0}]}
    assert summarize([passed]) == "1 of 1 releases passed."
