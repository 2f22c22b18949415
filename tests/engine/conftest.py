"""A real engine for the whole run, and one real image that the tests share."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.cli_result import Ended
from support.small_workspace import small
from tfimg.engine.connect import connect
from tfimg.engine.docker import DockerEngine
from tfimg.process import start_daemon
from tfimg.workspace import state_folder

ROOT = Path(__file__).parents[2]
IDENTIFIER = "2.15.1-cpu-py3.11"
REPOSITORY = "tfimg-test/tensorflow"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("engine")


def tfimg(*arguments: str, env: dict[str, str] | None = None) -> Ended:
    """Run the real program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tfimg", *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, **(env or {})},
    )  # fmt: skip
    return Ended(code=done.returncode, stdout=done.stdout, stderr=done.stderr)


@contextmanager
def started(*arguments: str, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """The real program while it runs; killed when the block leaves it running."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tfimg", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **env},
    )  # fmt: skip
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    """The engine that runs, or a private one for as long as the tests last."""
    up = tfimg("engine", "up", "--install", "--json")
    assert up.code == 0, up.stderr
    before = "already" if _was_running(up) else "ours"
    engine = connect(os.environ, state_folder(os.environ))
    yield engine
    for image in engine._client.images.list(name=REPOSITORY):
        for tag in image.tags:
            engine.remove(tag)
    if before == "ours":
        down = tfimg("engine", "down", "--json")
        assert down.documents == [{"stopped": True, "folder": str(state_folder(os.environ) / "engine")}]


def _was_running(up: Ended) -> bool:
    return not up.documents[-1]["started"]


@pytest.fixture(scope="session")
def base(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bootstrapped base, for images of the tests' own; it is kept, as the engine's own builds keep it."""
    name = "tfimg/base:bookworm-py3.11"
    if engine.digest(name) is None:
        small(root := tmp_path_factory.mktemp("small") / "workspace")
        arguments = (
            "--tf",
            "2.15",
            "--python",
            "3.11",
            "--base",
            "bootstrap",
            "--repository",
            "tfimg-test/base",
        )
        ended = tfimg("build", *arguments, "--json", env={"TFIMG_WORKSPACE": str(root)})
        assert ended.code == 0, ended.stderr
        for tag in ended.documents[-1]["tags"]:
            engine.remove(tag)
    return name


@dataclass(frozen=True, kw_only=True)
class Built:
    """The image of the README's first line, and what building it said."""

    ended: Ended
    report: dict[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        """The last event: what was built."""
        return self.ended.documents[-1]

    @property
    def name(self) -> str:
        """A tag of it."""
        return f"{REPOSITORY}:{IDENTIFIER}"


@pytest.fixture(scope="session")
def built(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The image, really built and validated, once."""
    report = tmp_path_factory.mktemp("report") / "report.json"
    ended = tfimg(
        "build", "--tf", "2.15", "--python", "3.11", "--base", "bootstrap", "--repository", REPOSITORY, "--json",
        "--report", str(report),
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    return Built(ended=ended, report=json.loads(report.read_text()))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of the matrix and images/, to be spoiled."""
    copy = tmp_path / "workspace"
    shutil.copytree(ROOT / "images", copy / "images", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "matrix.yaml", copy)
    return copy


@contextmanager
def daemon(folder: Path, dockerd: str, *options: str) -> Iterator[str]:
    """Another engine, in a network namespace of its own; yields its host.

    Without one, an engine that is told to have no bridge deletes that of the engine that runs (moby 26.1: `docker0`).
    Its mounts are its own too, so that none is left behind.
    """
    host = f"unix://{folder}/docker.sock"
    pid = start_daemon(
        [
            "unshare", "--net", "--mount", dockerd, "--host", host,
            "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec",
            "--pidfile", f"{folder}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false", *options,
        ],
        log=folder / "log",
    )  # fmt: skip
    try:
        wait_until(lambda: (folder / "docker.sock").exists() and _answers(host), folder / "log")
        yield host
    finally:
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), folder / "log")


def _answers(host: str) -> bool:
    asked = ["docker", "--host", host, "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def wait_until(met: Any, log: Path, seconds: float = 60) -> None:
    """Wait for a condition, at most so long; show the log when it is not met."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.1)


def names(engine: DockerEngine) -> Sequence[str]:
    """Every name in the engine's store."""
    return sorted(tag for image in engine._client.images.list() for tag in image.tags)


def containers(engine: DockerEngine) -> Sequence[str]:
    """Every container, running or not."""
    return [container.id or "" for container in engine._client.containers.list(all=True)]
