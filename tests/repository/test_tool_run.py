"""`pipx run tfimg` and `uv tool run tfimg`: the wheel from a package index, with the dependencies of today."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pypi_simple import PYPI_SIMPLE_ENDPOINT
from uv import find_uv_bin

import tfimg
from conftest import Installed
from support.http_server import AnyMethod, serving
from tfimg.index.network import read_host_network, read_pip_settings

pytestmark = pytest.mark.full

VERSION = f"tfimg {tfimg.__version__}\n"


@dataclass(frozen=True)
class OneWheel:
    """An index with one wheel; other projects are at `upstream`. `requested` lists the paths."""

    wheel: Path
    upstream: str
    requested: list[str] = field(default_factory=list)


class _Handler(AnyMethod):
    def answer(self) -> None:
        index = self.server.subject  # type: ignore[attr-defined]
        index.requested.append(self.path)
        folder, _, project = self.path.strip("/").partition("/")
        if self.path == f"/files/{index.wheel.name}":
            self.reply(200, {"Content-Type": "application/octet-stream"}, index.wheel.read_bytes())
        elif (folder, project) == ("simple", "tfimg"):
            page = f'<!DOCTYPE html><a href="/files/{index.wheel.name}">{index.wheel.name}</a>'
            self.reply(200, {"Content-Type": "text/html"}, page.encode())
        elif folder == "simple" and project:
            self.reply(302, {"Location": f"{index.upstream}/{project}/"}, b"")
        else:
            self.reply(404, {}, b"")


@dataclass(frozen=True)
class Runner:
    """Programs whose only package index is ours, with homes, caches and a current folder of their own."""

    index: OneWheel
    folder: Path
    environ: dict[str, str]

    def run(self, *command: str | Path) -> str:
        empty = self.folder / "empty"
        empty.mkdir(exist_ok=True)
        done = subprocess.run(command, cwd=empty, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert list(empty.iterdir()) == []
        return done.stdout


@pytest.fixture
def runner(installed: Installed, tmp_path: Path) -> Iterator[Runner]:
    network = read_host_network(os.environ, read_pip_settings())
    # No address of an index in the repository: the one in pip's settings, else the one that it takes by itself.
    upstream = network.variables.get("PIP_INDEX_URL", PYPI_SIMPLE_ENDPOINT).rstrip("/")
    index = OneWheel(installed.wheel, upstream)
    with serving(_Handler, index) as address:
        url = f"http://{address}/simple"
        own = {
            "PIP_INDEX_URL": url, "UV_DEFAULT_INDEX": url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
            "PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin"),
            "PIPX_DEFAULT_PYTHON": sys.executable, "UV_PYTHON": sys.executable, "UV_TOOL_DIR": str(tmp_path / "tools"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"), "TFIMG_WORKSPACE": "",
        }  # fmt: skip
        environ = {**network.environment(os.environ), **own}
        for name in ("PYTHONPATH", "TFIMG_WORKSPACE", "VIRTUAL_ENV"):
            environ.pop(name, None)
        yield Runner(index, tmp_path, environ)


def test_pipx_runs_it(runner: Runner) -> None:
    environment = runner.folder / "environment"
    runner.run(find_uv_bin(), "venv", "--quiet", "--python", sys.executable, environment)
    runner.run(find_uv_bin(), "pip", "install", "--quiet", "--python", environment, "pipx")
    assert "/simple/pipx/" in runner.index.requested, "and it was passed on"
    check(runner, environment / "bin/pipx", "run")


def test_uv_runs_it(runner: Runner) -> None:
    check(runner, find_uv_bin(), "tool", "run")


def check(runner: Runner, *command: str | Path) -> None:
    assert runner.run(*command, "tfimg", "--version") == VERSION
    assert "/simple/pydantic/" in runner.index.requested
    assert f"/files/{runner.index.wheel.name}" in runner.index.requested
    listed = json.loads(runner.run(*command, "tfimg", "list", "2.15.1-cpu-py3.11", "--json"))
    assert [image["identifier"] for image in listed] == ["2.15.1-cpu-py3.11"]
    planned = runner.run(*command, "tfimg", "plan", "--tf", "2.15", "--python", "3.11")
    assert "2.15.1-cpu-py3.11" in planned
