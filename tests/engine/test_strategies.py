"""Each distribution strategy in one container, in two, and with one that is killed: the loop and table of the page."""

import json
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from support.containers import run_container
from support.docker_daemon import wait_until
from support.session import run_once
from support.strategies import Row, read_loop, read_rows
from tfimg.engine.docker import DockerEngine

from .conftest import Built, build_release

pytestmark = [pytest.mark.full, pytest.mark.group("strategies")]

EPOCHS = 40
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}
ROWS = read_rows()
CLUSTERS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("mirrored", "two containers"): ("--workers", "2"),
    ("workers", "two containers"): ("--workers", "2"),
    ("workers", "killed worker"): ("--workers", "2"),
    ("ps", "two containers"): ("--workers", "2", "--ps", "1"),
    # One worker: without it no step is done, so that the training has to wait for it.
    ("ps", "killed worker"): ("--workers", "1", "--ps", "1"),
    ("ps", "killed server"): ("--workers", "1", "--ps", "1"),
}
"""The options of a cluster; else there is one container."""

VICTIMS = {("workers", "killed worker"): "worker-1", ("ps", "killed server"): "ps-0"}
"""The container whose program is killed; else the first worker's."""

KILL = """
import os, pathlib, signal, threading, time

third = pathlib.Path("/checkpoints/out/ckpt-3.index")
def kill():
    while not third.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
if os.environ.get("TFIMG_TASK", "worker:0") == "VICTIM" and not third.exists():
    threading.Thread(target=kill, daemon=True).start()
"""
"""Before the loop: kills the process of one task in its fourth epoch. A command from outside could come too late."""


@pytest.fixture(params=ROWS[0].found)
def release(request: pytest.FixtureRequest, engine: DockerEngine) -> Built:
    return build_release(request.param)


@pytest.fixture
def reference(release: Built, engine: DockerEngine) -> list[float]:
    """The weights of one process without a strategy."""

    def train() -> list[float]:
        done = run_container(engine, release.name, "python", "-c", read_loop(), "none", "/tmp/out", env=QUIET)  # noqa: S108
        assert done.status == 0, done.stderr[-3000:]
        return list(result(done.stdout)["weights"])

    return list(run_once(f"strategies-{release.identifier}", train))


def result(printed: str) -> dict[str, Any]:
    """Return what the loop prints at its end."""
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def restarts(engine: DockerEngine, name: str) -> dict[str, int]:
    """Return how often the container of each service was started again."""
    containers = engine.client.containers.list(all=True, filters={"label": f"com.docker.compose.project={name}"})
    return {one.labels["com.docker.compose.service"]: one.attrs["RestartCount"] for one in containers}


def have_ended(run: Callable[..., subprocess.CompletedProcess[str]], services: list[str]) -> bool:
    """Return whether the services have ended with status 0."""
    lines = run("ps", "--all", "--format", "{{.Service}} {{.State}} {{.ExitCode}}").stdout.splitlines()
    return {f"{service} exited 0" for service in services} <= set(lines)


def name_row(row: Row) -> str:
    return f"{row.strategy}-{row.situation}".replace(" ", "-")


@pytest.mark.parametrize("row", [row for row in ROWS if row.bound is not None], ids=name_row)
def test_the_weights_are_those_of_one_process(
    row: Row, release: Built, engine: DockerEngine, reference: list[float], compose: Any, name: str
) -> None:
    place = row.strategy, row.situation
    cluster = CLUSTERS.get(place, ("--workers", "1"))
    # What trains alone shares no checkpoints.
    folder = "/tmp/out" if place == ("mirrored", "two containers") else "/checkpoints/out"  # noqa: S108
    options = [word for pair in QUIET.items() for word in ("--env", "=".join(pair))]
    victim = VICTIMS.get(place, "worker-0") if "killed" in row.situation else ""
    before = KILL.replace("VICTIM", victim.replace("-", ":")) if victim else ""
    program = ("python", "-c", before + read_loop(), row.strategy, folder)
    run = compose(release.name, *cluster, *options, "--checkpoints", "results", "--", *program)
    up = run("up", "--detach")
    assert up.returncode == 0, up.stderr
    trainers = ["chief-0"] if row.strategy == "ps" else [f"worker-{number}" for number in range(int(cluster[1]))]
    wait_until(lambda: have_ended(run, trainers), seconds=180)
    assert not victim or restarts(engine, name)[victim] >= 1
    for trainer in trainers:
        printed = run("logs", "--no-log-prefix", trainer).stdout
        trained = result(printed)
        # `replicas` of parameter servers are those of a step, which one worker does.
        assert trained["replicas"] == (2 if row.strategy == "mirrored" else len(trainers))
        assert printed.count(f"epoch 1 of {EPOCHS}:") == 1, "it began again"
        assert printed.count(f"epoch {EPOCHS} of {EPOCHS}:") == 1
        differences = [abs(one - other) for one, other in zip(trained["weights"], reference, strict=True)]
        print(f"{row.strategy}, {row.situation}, {release.identifier}: {max(differences):.1e}")
        assert max(differences) <= row.bound


def test_parameter_servers_need_a_cluster(release: Built, engine: DockerEngine) -> None:
    assert [(row.strategy, row.situation) for row in ROWS if row.bound is None] == [("ps", "one container")]
    done = run_container(engine, release.name, "python", "-c", read_loop(), "ps", "/tmp/out", env=QUIET)  # noqa: S108
    assert done.status == 1
    assert "Cluster spec must be non-empty" in done.stderr
