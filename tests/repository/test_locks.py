"""Locks against the package index itself, and without one."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from uv import find_uv_bin

from conftest import ROOT
from tfimg.cli import main
from tfimg.index.network import read_host_network, read_pip_settings
from tfimg.recipe.lock import LockQuery, resolve_packages


@pytest.mark.facts
def test_the_index_still_gives_the_committed_lock() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfimg", "lock", "2.15.1-cpu-py3.11", "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"[2-9] files, all up to date\n", done.stdout), "the image and its variants"


@pytest.mark.facts
def test_a_release_that_the_index_does_not_have_cannot_be_locked(capsys, tmp_path) -> None:
    """A matrix with an invented release of today."""
    (tmp_path / "images").mkdir()
    matrix = (ROOT / "matrix.yaml").read_text().replace('version: "2.15.1"', 'version: "2.15.9"')
    (tmp_path / "matrix.yaml").write_text(matrix)
    code = main(["lock", "2.15.9-cpu-py3.11", "2.15.9-cpu-py3.10"], {**os.environ, "TFIMG_WORKSPACE": str(tmp_path)})
    told = capsys.readouterr().err
    assert (code, "The package index has no tensorflow-cpu==2.15.9 that was uploaded by" in told) == (12, True), told
    assert "The others" not in told, told
    written = [file.name for file in (tmp_path / "images").rglob("*") if file.is_file()]
    assert written == ["installer.txt"], "what was resolved before is kept"


@pytest.mark.full  # uv waits 20 s between its attempts
def test_an_index_out_of_reach_is_distinguished_from_one_without_the_package(capsys, tmp_path) -> None:
    environ = {**os.environ, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "UV_CACHE_DIR": str(tmp_path)}
    code = main(["lock", "2.15.1-cpu-py3.11", "--check"], environ)
    told = capsys.readouterr().err
    assert (code, "The package index did not answer while uv==" in told) == (11, True), told


@pytest.mark.facts
def test_without_a_cutoff_tensorboard_would_not_import() -> None:
    """Why locks are resolved as of the release's time: what the index gives today for the same requirements."""
    asked = LockQuery(
        requirements=("tensorflow-cpu==2.15.1", "tensorboard"),
        python="3.11",
        platform="linux/amd64",
        cutoff="2026-11-16T00:00:00Z",
    )
    env = read_host_network(os.environ, read_pip_settings()).environment(os.environ)
    versions = {package.name: package.version for package in resolve_packages(asked, uv=find_uv_bin(), env=env)}
    setuptools = versions["setuptools"]
    assert setuptools is not None
    assert setuptools.major >= 82, "the first without pkg_resources, which TensorBoard imports up to 2.20"
