"""images/on_host/run.py with small wheels and a small suite: what it installs, sets, writes and refuses."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from run import read_facts

from support.wheels import lock_line, write_wheel
from tfimg.core.files import hash_files
from tfimg.core.paths import Workspace
from tfimg.project.project import Project
from tfimg.recipe.facts import collect_host_facts
from tfimg.recipe.lock import hash_lock
from tfimg.validation.suite import suite_files

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
GPU = f"2.21.0-cuda12.5-py{PYTHON}"

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
measured = {name: os.environ.get(name) for name in wanted}
measured["links"] = {name: os.path.realpath(os.path.join(measured["LD_LIBRARY_PATH"].split(":")[0], name))
            for name in ("libcupti.so", "libnvrtc.so")}
say(event="end", check="one", outcome="passed", seconds=0.1, reason=None, measured=measured)
say(event="done", code=CODE, verdict="passed", fault=None)
print("a line for the log", file=sys.stderr)
sys.exit(CODE)
"""


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A checkout with the lock of four small wheels, which lie in `wheels`."""

    workspace: Workspace
    wheels: Path

    def run(self, *options: str, identifier: str = GPU, code: int = 0) -> str:
        command = [
            sys.executable,
            str(self.workspace.images / "on_host/run.py"),
            identifier,
            "--wheels",
            str(self.wheels),
        ]
        done = subprocess.run([*command, *options], cwd=self.wheels.parent, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def record(self) -> Any:
        return json.loads((self.wheels.parent / "host-run.json").read_text())


@pytest.fixture
def checkout(tmp_path: Path, workspace: Workspace) -> Checkout:
    copy = Workspace(root=tmp_path / "workspace")
    shutil.copytree(workspace.images / "on_host", copy.images / "on_host")
    shutil.copytree(workspace.images / "rendered", copy.images / "rendered")
    copy.validation.mkdir()
    (copy.validation / "__main__.py").write_text(SUITE.replace("CODE", "0"))
    (copy.validation / "__pycache__").mkdir()
    (copy.validation / "__pycache__/left.py").write_text("no part of the suite")
    (wheels := tmp_path / "wheels").mkdir()
    site = (
        "nvidia/cuda_nvcc/bin/ptxas",
        "nvidia/cuda_cupti/lib/libcupti.so.11.8",
        "nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    )
    copy.locks(GPU).mkdir(parents=True)
    copy.lock(GPU, "tensorflow").write_text(
        lock_line(write_wheel(wheels, "tensorflow", {"tensorflow/__init__.py": b""}))
    )
    nvidia = [write_wheel(wheels, f"nvidia{number}", {path: b"x"}) for number, path in enumerate(site)]
    copy.lock(GPU, "cuda").write_text("".join(map(lock_line, nvidia)))
    return Checkout(workspace=copy, wheels=wheels)


@makes_environment
def test_the_suite_runs_in_an_environment_of_the_locked_wheels(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/driver")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/x")
    monkeypatch.setenv("PYTHONPATH", str(checkout.wheels))
    output = checkout.run()
    assert "passed        0.1 s  one" in output
    run, workspace = checkout.record, checkout.workspace
    assert (run["identifier"], run["status"], run["lock"]) == (GPU, 0, hash_lock(workspace.read_lock(GPU)))
    assert run["suite"] == hash_files(suite_files(workspace.validation))
    assert [event["event"] for event in run["events"]] == ["suite", "end", "done"]
    assert run["events"][0]["nonce"] == run["nonce"]
    facts = run["events"][0]["facts"]
    assert (facts["identifier"], facts["device"], facts["level"]) == (None, "gpu", "validated")
    assert facts["packages"] == {"tensorflow": "1.0", **{f"nvidia{number}": "1.0" for number in range(3)}}
    own, found = checkout.wheels / "work", run["events"][1]["measured"]
    assert run["events"][0]["prefix"] == str(own / "environment")
    nvidia = own / f"environment/lib/python{PYTHON}/site-packages/nvidia"
    libraries = [str(own / "links"), str(nvidia / "cuda_cupti/lib"), str(nvidia / "cuda_nvrtc/lib"), "/driver"]
    assert found["LD_LIBRARY_PATH"].split(":") == libraries
    assert found["XLA_FLAGS"] == f"--xla_gpu_cuda_data_dir={nvidia}/cuda_nvcc --xla_dump_to=/x"
    assert found["PATH"].split(":")[:2] == [str(own / "environment/bin"), str(nvidia / "cuda_nvcc/bin")]
    assert found["PYTHONPATH"] is None
    assert {name: Path(path).name for name, path in found["links"].items()} == {
        "libcupti.so": "libcupti.so.11.8", "libnvrtc.so": "libnvrtc.so.12",
    }  # fmt: skip
    assert not own.exists(), "an environment of gigabytes is left"


@makes_environment
def test_a_suite_that_fails_is_reported_and_nothing_is_called_green(checkout: Checkout) -> None:
    main = checkout.workspace.validation / "__main__.py"
    main.write_text(SUITE.replace("CODE", "6"))
    output = checkout.run(code=1)
    assert "did not pass. TensorFlow's output is in host-run.log" in output
    assert "a line for the log" in (checkout.wheels.parent / "host-run.log").read_text()
    assert checkout.record["status"] == 6


@makes_environment
@pytest.mark.parametrize("damage", [Path.unlink, lambda wheel: wheel.write_bytes(b"x")], ids=["missing", "changed"])
def test_a_wheel_that_is_missing_or_another_is_named_and_nothing_is_run(
    checkout: Checkout, damage: Callable[[Path], object]
) -> None:
    damage(checkout.wheels / "nvidia1-1.0-py3-none-any.whl")
    output = checkout.run(code=2)
    assert "run.py: the wheels cannot be made (fill --wheels with `pip download`" in output
    assert "nvidia1" in output
    assert not (checkout.wheels.parent / "host-run.json").exists()
    assert not (checkout.wheels / "work").exists()


def test_a_machine_without_the_python_says_so(checkout: Checkout) -> None:
    assert "the environment cannot be made" in checkout.run("--python", str(shutil.which("false")), code=2)


@makes_environment
def test_another_python_than_the_image_s_is_refused(checkout: Checkout) -> None:
    identifier = GPU.replace(f"py{PYTHON}", "py3.9")
    checkout.workspace.locks(GPU).rename(checkout.workspace.locks(identifier))
    output = checkout.run("--python", sys.executable, identifier=identifier, code=2)
    assert f"is Python {PYTHON}, and the image is for 3.9" in output


def test_a_work_folder_that_exists_is_left_alone(checkout: Checkout) -> None:
    (work := checkout.wheels / "thesis").mkdir()
    (work / "thesis.txt").write_text("mine")
    assert f"{work} exists" in checkout.run("--work", str(work), code=2)
    assert (work / "thesis.txt").read_text() == "mine"


def test_a_work_folder_that_variables_cannot_carry_is_refused(checkout: Checkout) -> None:
    assert "has a space or a colon" in checkout.run("--work", "a b", code=2)


@pytest.mark.parametrize("identifier", ["2.20.0-tpu-py3.11", "2.99.0-cpu-py3.11", "../../x", "2.21.0-cuda12.5-py3.12"])
def test_an_image_without_a_lock_or_for_tpus_is_refused(checkout: Checkout, identifier: str) -> None:
    assert f"has no image {identifier} for CPUs or GPUs" in checkout.run(identifier=identifier, code=2)


def test_the_suite_is_to_prove_what_tfimg_requires_of_every_image(workspace: Workspace) -> None:
    """The program has no matrix: it reads the facts in the Dockerfile of another Python."""
    project = Project()
    identifiers = [folder.name for folder in (workspace.images / "locks").iterdir() if folder.is_dir()]
    # Packages without their dependencies waive `pip check` by the variant's facts, which no rendered Dockerfile has.
    others = ("-tpu-", "-tfjs", "-serve")
    found = [identifier for identifier in identifiers if not any(part in identifier for part in others)]
    assert len(found) > 200
    for identifier in found:
        lock = workspace.read_lock(identifier)
        assert read_facts(identifier, lock) == collect_host_facts(project.spec(identifier), lock)
