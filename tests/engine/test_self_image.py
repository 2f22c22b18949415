"""The image of tfimg itself: it drives the engine whose socket it is given."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

import tfimg
from conftest import Installed
from support.containers import Ended, container
from support.paths import ROOT
from support.session import run_once, session_folder
from tfimg.core.paths import state_folder
from tfimg.engine.docker import DockerEngine

from .conftest import IDENTIFIER, Built

pytestmark = [pytest.mark.full, pytest.mark.group("release")]

NAME = "tfimg-test/tfimg:self"
INNER = "tfimg-test/self"


@pytest.fixture(scope="session")
def release(engine: DockerEngine, installed: Installed) -> Path:
    """The folder of a release with the image, which the release's own command builds once for all workers."""
    return Path(run_once("self-image", lambda: _build(engine, installed)))


def _build(engine: DockerEngine, installed: Installed) -> str:
    folder = session_folder() / "release"
    (folder / "dist").mkdir(parents=True)
    shutil.copy(installed.wheel, folder / "dist")
    done = subprocess.run(
        [ROOT / "builder/release", "image", folder, NAME],
        env={**os.environ, "DOCKER_HOST": engine.host}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{NAME} {engine.find_digest(NAME)} ")
    return str(folder)


@pytest.fixture(scope="session")
def image(release: Path) -> str:
    return NAME if release else ""


@pytest.fixture
def run(engine: DockerEngine, image: str) -> Run:
    return Run(engine, image)


class Run:
    """Runs commands of the image with the engine's socket, and with the layers that this machine has."""

    def __init__(self, engine: DockerEngine, image: str) -> None:
        self.engine, self.image = engine, image

    def __call__(self, *command: str) -> Ended:
        with container(self.engine, self.image, network_mode="host") as prepared:
            prepared.with_command(list(command))
            prepared.with_volume_mapping(self.engine.host.removeprefix("unix://"), "/var/run/docker.sock", "rw")
            layers = state_folder(os.environ) / "layers"
            prepared.with_volume_mapping(str(layers), "/var/lib/tfimg/layers", "rw")
            wrapped = prepared.start().get_wrapped_container()
            status = wrapped.wait(timeout=900)["StatusCode"]
            stdout, stderr = (wrapped.logs(stdout=out, stderr=not out).decode() for out in (True, False))
        return Ended(status=status, stdout=stdout, stderr=stderr)


def test_the_archive_has_the_image_by_its_digest_alone(engine: DockerEngine, release: Path) -> None:
    """So that it can be copied to a registry without a change."""
    with tarfile.open(release / "image/image.tar") as archive:
        index = json.loads(read_member(archive, "index.json"))
        (digest,) = (manifest["digest"] for manifest in index["manifests"])
        manifest = read_member(archive, f"blobs/{digest.replace(':', '/')}")
    assert f"sha256:{hashlib.sha256(manifest).hexdigest()}" == digest == engine.find_digest(NAME)
    assert (release / "image/digest").read_text() == f"{digest}\n"
    labels = engine.find_labels(NAME)
    assert labels is not None
    assert (labels["org.opencontainers.image.title"], labels["org.opencontainers.image.version"]) == (
        "tfimg", tfimg.__version__,
    )  # fmt: skip


def read_member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def test_it_has_tfimg_and_the_clients_of_the_engine(engine: DockerEngine, run: Run) -> None:
    version = run("--version")
    assert (version.status, version.stdout, version.stderr) == (0, f"tfimg {tfimg.__version__}\n", "")
    status = run("engine", "status", "--json")
    assert status.status == 0, status.stderr
    capabilities = engine.get_capabilities()
    assert json.loads(status.stdout)["engine"] == capabilities.engine


def test_it_builds_validates_and_tags_an_image_in_the_engine(engine: DockerEngine, built: Built, run: Run) -> None:
    assert built.name, "its base and its layers are there"
    ended = run("build", "--tf", "2.15", "--python", "3.11", "--base", "bootstrap", "--repository", INNER, "--json")
    assert ended.status == 0, ended.stderr
    document = json.loads(ended.stdout.splitlines()[-1])
    assert document["report"]["level"] == "validated"
    assert f"{INNER}:{IDENTIFIER}" in document["tags"]
    assert [layer["digest"] for layer in document["layers"][:3]] == [
        layer["digest"] for layer in built.document["layers"][:3]
    ], "the layers of wheels are the same bytes"
    assert engine.find_digest(f"{INNER}:{IDENTIFIER}") == document["digest"]


def test_it_runs_an_image(built: Built, run: Run) -> None:
    ended = run("run", built.name, "--", "python", "-c", "print('from inside')")
    assert (ended.status, ended.stdout) == (0, "from inside\n"), ended.stderr


def test_without_the_socket_it_says_what_is_missing(engine: DockerEngine, image: str) -> None:
    with container(engine, image, network_mode="none") as prepared:
        prepared.with_command(["engine", "status"])
        wrapped = prepared.start().get_wrapped_container()
        assert wrapped.wait(timeout=120)["StatusCode"] != 0
        assert "engine" in wrapped.logs(stdout=False, stderr=True).decode()
