"""A real engine for the whole run, and real images that the tests share."""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliResult, run_tfimg
from support.docker_daemon import image_tags
from support.paths import ROOT
from support.planted_faults import spec_of
from support.programs import installed_program
from support.rotation import GROUPS, VARIABLE, group_of, image_of, today
from support.session import run_once
from support.shell_blocks import USER, make_folder
from tfimg.build.builder import Builder, BuildSettings
from tfimg.core.paths import state_folder
from tfimg.engine.connect import connect
from tfimg.engine.docker import DockerEngine
from tfimg.matrix.conditions import Request
from tfimg.matrix.devices import Device
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.project.services import Services

IDENTIFIER = "2.15.1-cpu-py3.11"
REPOSITORY = "tfimg-test/tensorflow"


def pytest_report_header() -> str:
    """Say which images and which long tests have their turn."""
    images = " and ".join(image_of(today(), device).identifier for device in ("cpu", "gpu"))
    waiting = ", ".join(group for group in GROUPS if group != group_of(today()))
    return (
        f"images in turn: {images} ({VARIABLE}={today()})\n"
        f"long tests in turn with -m full: {group_of(today())}; not today: {waiting} (name their files to run them)"
    )


MINUTES = {
    "test_smoke": 9, "test_cloud": 8, "test_gpu": 7, "test_registry": 5, "test_looks": 4, "test_publish": 4,
    "test_custom_wheel": 6, "test_tpu": 3, "test_build": 3, "test_leaks": 3, "test_mutations": 2,
}  # fmt: skip
"""Rough minutes of the longest files: they begin first, so that the workers end together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker("engine")
    items.sort(key=lambda item: -MINUTES.get(item.path.stem, 0))


@pytest.fixture(scope="session")
def engine() -> DockerEngine:
    """The engine that runs, or a private one for as long as the tests last."""
    run_once("engine", _start_engine)
    return connect(os.environ, state_folder(os.environ))


@pytest.fixture(scope="session")
def earlier_tags(engine: DockerEngine) -> set[str]:
    """Tags that were in the engine before the tests."""
    return set(run_once("engine", _start_engine)["tags"])


def _start_engine() -> dict[str, Any]:
    up = run_tfimg("engine", "up", "--install", "--json")
    assert up.code == 0, up.stderr
    engine = connect(os.environ, state_folder(os.environ))
    return {"host": engine.host, "started": up.documents[-1]["started"], "tags": image_tags(engine)}


@pytest.fixture(scope="session")
def base(engine: DockerEngine) -> str:
    """The bootstrapped base of Python 3.11; it is kept after the run, as builds keep it."""
    return str(run_once("base", lambda: prepare_bootstrap("3.11")))


def prepare_bootstrap(python: str) -> str:
    """Return the name of a bootstrapped base for a Python version, made when the engine does not have it."""
    project = Project(services=Services(environ=os.environ))
    builder = Builder(project, project.services.engine(), BuildSettings(base="bootstrap"))
    return builder.prepare_base(project.resolve(Request(python=python)).spec).name


@dataclass(frozen=True, kw_only=True)
class Built:
    """A real image, and the output of its build."""

    identifier: str
    stdout: str
    stderr: str

    @property
    def result(self) -> CliResult:
        """How the command ended."""
        return CliResult(code=0, stdout=self.stdout, stderr=self.stderr)

    @property
    def document(self) -> dict[str, Any]:
        """The last event: what was built."""
        document: dict[str, Any] = self.result.documents[-1]
        return document

    @property
    def report(self) -> dict[str, Any]:
        """The report of its validation."""
        report: dict[str, Any] = self.document["report"]
        return report

    @property
    def name(self) -> str:
        """A tag of it."""
        return f"{REPOSITORY}:{self.identifier}"

    @property
    def spec(self) -> ImageSpec:
        """The image in the matrix."""
        return spec_of(self.identifier)


@pytest.fixture(scope="session")
def built(engine: DockerEngine) -> Built:
    """The image of the README's first line."""
    return _built(IDENTIFIER, "--tf", "2.15", "--python", "3.11")


@pytest.fixture(scope="session")
def jupyter(engine: DockerEngine) -> Built:
    """The image of variant jupyter."""
    return _built(f"{IDENTIFIER}-jupyter", "--tf", "2.15", "--python", "3.11", "--variant", "jupyter")


@pytest.fixture(scope="session")
def newer(engine: DockerEngine) -> Built:
    """The day's CPU image of TensorFlow 2.16 or newer."""
    return _built_in_turn("cpu", "--profile", "full")


@pytest.fixture(scope="session")
def gpu(engine: DockerEngine) -> Built:
    """The day's GPU image of TensorFlow 2.18 or newer, with cuDNN 9."""
    return _built_in_turn("gpu", "--level", "linked", "--profile", "full")


@pytest.fixture(scope="session")
def tpu(engine: DockerEngine) -> Built:
    """The TPU image of TensorFlow 2.20."""
    return _built("2.20.0-tpu-py3.11", "--tf", "2.20", "--device", "tpu", "--level", "linked")


def build_release(tensorflow: str, variant: str | None = None) -> Built:
    """Build the CPU image of a release with its default Python."""
    project = Project(services=Services(environ=os.environ))
    spec = project.resolve(Request(tensorflow=tensorflow, device="cpu")).spec
    request = ("--tf", tensorflow, "--python", spec.python, *(("--variant", variant) if variant else ()))
    return _built(f"{spec.identifier}-{variant}" if variant else spec.identifier, *request)


def _built_in_turn(device: Device, *options: str) -> Built:
    spec = image_of(today(), device)
    request = ["--tf", spec.tensorflow, "--python", spec.python, "--device", device]
    return _built(spec.identifier, *request, *options)


def _built(identifier: str, *options: str) -> Built:
    """Build, validate and tag an image once for all workers."""
    return Built(identifier=identifier, **run_once(f"image-{identifier}", lambda: _build(identifier, *options)))


def _build(identifier: str, *options: str) -> dict[str, Any]:
    done = run_tfimg("build", *options, "--base", "bootstrap", "--repository", REPOSITORY, "--revalidate", "--json")
    assert done.code == 0, f"{identifier} of {today()} was not built:\n{done.stderr}"
    assert done.documents[-1]["identifier"] == identifier
    return {"stdout": done.stdout, "stderr": done.stderr}


@dataclass(frozen=True)
class Setting:
    """A folder with links to the checkout, and the environment of an ordinary user."""

    folder: Path
    environ: Mapping[str, str]
    group: int


@pytest.fixture
def setting(engine: DockerEngine, built: Built) -> Iterator[Setting]:
    """A folder whose matrix names the tests' repository, so that no tag of the engine's user moves."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environ = make_folder(folder, ROOT)
        workspace = folder / "home/workspace"
        workspace.mkdir()
        shutil.copytree(ROOT / "images", workspace / "images", ignore=shutil.ignore_patterns("__pycache__"))
        matrix = (ROOT / "matrix.yaml").read_text().replace("tfimg/tensorflow", REPOSITORY)
        (workspace / "matrix.yaml").write_text(matrix)
        socket = Path(engine.host.removeprefix("unix://"))
        group = socket.stat().st_gid if socket.is_socket() else USER
        yield Setting(folder, {**environ, "DOCKER_HOST": engine.host, "TFIMG_WORKSPACE": str(workspace)}, group)
        for image in ("my-training", "faulty"):
            with suppress(Exception):
                engine.remove(image)


@pytest.fixture
def name() -> str:
    """The name of a Compose project or a network."""
    return f"tfimg-test-{secrets.token_hex(4)}"


@pytest.fixture
def compose(engine: DockerEngine, tmp_path: Path, name: str) -> Iterator[Any]:
    """Run Docker Compose with the file of a workload; remove what it made."""
    file = tmp_path / "compose.yaml"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [installed_program("docker-compose"), "--file", str(file), *words],
            env={"DOCKER_HOST": engine.host, "HOME": str(tmp_path), "PATH": os.defpath},
            capture_output=True, text=True, check=False, timeout=80,
        )  # fmt: skip

    def write(image: str, *options: str) -> Any:
        written = run_tfimg("compose", image, "--name", name, "--output", str(file), *options)
        assert written.code == 0, written.stderr
        return run

    yield write
    if file.exists():
        run("down", "--volumes", "--timeout", "0")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of the matrix and images/, to be spoiled."""
    copy = tmp_path / "workspace"
    shutil.copytree(ROOT / "images", copy / "images", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "matrix.yaml", copy)
    return copy


@pytest.fixture
def own_workspace(workspace: Path) -> Path:
    """A copy whose lock differs by a comment, so that no other test makes images with the same label."""
    with (workspace / "images/locks" / IDENTIFIER / "packages.txt").open("a") as lock:
        lock.write(f"# {secrets.token_hex(8)}\n")
    return workspace
