"""A real engine for the whole run, and one real image that the tests share."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliResult, run_tfimg
from support.docker_daemon import image_tags
from support.paths import ROOT
from support.session import once, session_folder
from tfimg.cli.context import Context
from tfimg.cli.edge import Edge
from tfimg.cli.images import prepare_base
from tfimg.cli.parser import build_parser
from tfimg.engine.connect import connect
from tfimg.engine.docker import DockerEngine
from tfimg.resolution.request import Request
from tfimg.resolution.resolve import resolve
from tfimg.workspace import state_folder

IDENTIFIER = "2.15.1-cpu-py3.11"
REPOSITORY = "tfimg-test/tensorflow"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("engine")


@pytest.fixture(scope="session")
def engine() -> DockerEngine:
    """The engine that runs, or a private one for as long as the tests last."""
    once("engine", _start_engine)
    return connect(os.environ, state_folder(os.environ))


def _start_engine() -> dict[str, Any]:
    up = run_tfimg("engine", "up", "--install", "--json")
    assert up.code == 0, up.stderr
    engine = connect(os.environ, state_folder(os.environ))
    return {"host": engine.host, "started": up.documents[-1]["started"], "tags": image_tags(engine)}


@pytest.fixture(scope="session")
def base(engine: DockerEngine) -> str:
    """The bootstrapped base of Python 3.11; it is kept after the run, as builds keep it."""
    return str(once("base", lambda: prepare_bootstrap("3.11")))


def prepare_bootstrap(python: str) -> str:
    """Return the name of a bootstrapped base for a Python version, made when the engine does not have it."""
    context = Context(build_parser().parse_args(["build", "--base", "bootstrap"]), os.environ, Edge())
    spec = resolve(context.matrix, context.specs, Request(python=python)).spec
    return prepare_base(context, spec, {}).name


@dataclass(frozen=True, kw_only=True)
class Built:
    """The image of the README's first line, and the output of its build."""

    stdout: str
    stderr: str
    report: dict[str, Any]

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
    def name(self) -> str:
        """A tag of it."""
        return f"{REPOSITORY}:{IDENTIFIER}"


@pytest.fixture(scope="session")
def built(engine: DockerEngine) -> Built:
    """The image, built and validated once for all workers."""
    return Built(**once("built", _build))


def _build() -> dict[str, Any]:
    report = session_folder() / "report.json"
    done = run_tfimg(
        "build", "--tf", "2.15", "--python", "3.11", "--base", "bootstrap", "--repository", REPOSITORY, "--json",
        "--report", str(report),
    )  # fmt: skip
    assert done.code == 0, done.stderr
    return {"stdout": done.stdout, "stderr": done.stderr, "report": json.loads(report.read_text())}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of the matrix and images/, to be spoiled."""
    copy = tmp_path / "workspace"
    shutil.copytree(ROOT / "images", copy / "images", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "matrix.yaml", copy)
    return copy
