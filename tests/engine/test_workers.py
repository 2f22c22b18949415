"""`tfimg validate --workers`: the suite's distributed checks across real containers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli import run_tfimg
from support.docker_daemon import wait_until
from support.registry_container import docker
from tfimg.engine.docker import NETWORK_LABEL, DockerEngine
from tfimg.validation.workers import PREFIX

from .conftest import Built

pytestmark = [pytest.mark.full, pytest.mark.group("clusters")]

ONE = ("--only", "environment.python", "--workers", "2")
"""One check in one container, then those across two."""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A state folder, and with it locks, of this test alone."""
    return {"TFIMG_STATE": str(tmp_path / "state")}


def list_left(engine: DockerEngine, state: str) -> list[str]:
    """Return networks and containers of calls with a state folder, by their locks."""
    locks = [file.name for file in Path(state, "workers").glob("*")]
    found = [
        docker(*words, "--filter", f"label={NETWORK_LABEL}={name}", host=engine.host).split()
        for name in locks
        for words in (("network", "ls", "--format={{.Name}}"), ("ps", "--all", "--format={{.Names}}"))
    ]
    return [*locks, *(one for names in found for one in names)]


def test_two_containers_agree_and_the_report_says_so(
    built: Built, engine: DockerEngine, environ: dict[str, str], tmp_path: Path
) -> None:
    files = [tmp_path / "report.json", tmp_path / "report.html", tmp_path / "report.xml"]
    options = [word for file in files for word in ("--report", str(file))]
    done = run_tfimg("validate", built.name, *ONE, *options, env=environ)
    assert done.code == 0, done.stderr
    assert "passed     workers.multi_worker" in done.stderr
    report = json.loads(files[0].read_text())
    one, several = (next(each for each in report["results"] if each["check"] == f"workers.{name}")["measured"]
                    for name in ("multi_worker", "parameter_server"))  # fmt: skip
    assert (one["workers"], one["containers"], several["containers"]) == (2, 2, 4)
    weights = [one[f"worker {number}"]["weights"] for number in range(2)]
    assert weights[0] == weights[1]
    assert set(several["chief 0"]["computed_by"]) <= {"worker 0", "worker 1"}
    assert not any("workers." in name for name in report["required"])
    for file in files[1:]:
        assert "parameter_server" in file.read_text()
    shown = run_tfimg("explain", str(files[0]))
    assert "passed     workers.parameter_server" in shown.stdout
    assert list_left(engine, environ["TFIMG_STATE"]) == []


def test_a_wrong_answer_of_one_worker_is_red(built: Built, workspace: Path, environ: dict[str, str]) -> None:
    """Its gradient is twice as large: the sum that all workers get is wrong."""
    file = workspace / "images/validation/checks/distribution.py"
    right = "tape.gradient(loss, weights)"
    wrong = f"{right} * (2 if os.environ.get('TFIMG_TASK') == 'worker:1' else 1)"
    text = file.read_text()
    assert right in text
    file.write_text(text.replace(right, wrong).replace("import importlib\n", "import importlib\nimport os\n"))
    done = run_tfimg("validate", built.name, *ONE, env={**environ, "TFIMG_WORKSPACE": str(workspace)})
    assert done.code == 13, done.stderr
    assert "workers.multi_worker failed" in done.stderr
    assert "worker 1: expected the weights" in done.stderr


@pytest.fixture
def started(built: Built, engine: DockerEngine, environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A run whose second worker is running."""
    line = [sys.executable, "-P", "-m", "tfimg", "validate", built.name, *ONE]
    with subprocess.Popen(line, env={**os.environ, **environ}, stderr=subprocess.PIPE, text=True) as child:
        wait_until(lambda: find_worker(engine, environ))
        yield child


def find_worker(engine: DockerEngine, environ: dict[str, str]) -> str:
    """Return the ID of the running container of worker 1; empty if there is none."""
    networks = [file.name for file in Path(environ["TFIMG_STATE"], "workers").glob(f"{PREFIX}*")]
    for name in networks:
        for one in docker("ps", "--quiet", f"--filter=label={NETWORK_LABEL}={name}", host=engine.host).split():
            host = docker("inspect", "--format={{.Config.Hostname}}", one, host=engine.host)
            if host.strip() == f"{name}-worker-1":
                return one
    return ""


def test_a_worker_that_is_killed_is_named(
    started: subprocess.Popen[str], engine: DockerEngine, environ: dict[str, str]
) -> None:
    docker("kill", find_worker(engine, environ), host=engine.host)
    _, output = started.communicate(timeout=120)
    assert started.returncode == 13, output
    assert "workers.multi_worker crashed: worker 1: the process ended with status 137, killed from outside" in output
    assert list_left(engine, environ["TFIMG_STATE"]) == []


def test_ctrl_c_leaves_nothing(started: subprocess.Popen[str], engine: DockerEngine, environ: dict[str, str]) -> None:
    started.send_signal(signal.SIGINT)
    _, output = started.communicate(timeout=60)
    assert started.returncode == 130, output
    assert "Traceback" not in output
    assert list_left(engine, environ["TFIMG_STATE"]) == []


def test_what_a_killed_call_left_is_removed_by_the_next(
    started: subprocess.Popen[str], built: Built, engine: DockerEngine, environ: dict[str, str]
) -> None:
    started.kill()
    started.wait()
    (left, *_) = Path(environ["TFIMG_STATE"], "workers").iterdir()
    assert len(list_left(engine, environ["TFIMG_STATE"])) == 4, "a lock, a network and two containers"
    done = run_tfimg("validate", built.name, *ONE, env=environ)
    assert done.code == 0, done.stderr
    assert list_left(engine, environ["TFIMG_STATE"]) == []
    for words in (("network", "ls"), ("ps", "--all")):
        assert docker(*words, "--quiet", "--filter", f"label={NETWORK_LABEL}={left.name}", host=engine.host) == ""
