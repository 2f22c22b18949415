"""What goes wrong with a real engine: its own exit code, a paragraph, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli import assert_refused, run_tfimg, start_tfimg
from support.docker_daemon import container_ids, daemon, find_dockerd, image_tags
from tfimg.engine.build import choose_output
from tfimg.engine.docker import DockerEngine
from tfimg.engine.protocol import BuildOrder

from .conftest import IDENTIFIER, REPOSITORY, Built

BUILD = ("build", "--tf", "2.15.1", "--base", "bootstrap", "--repository", "tfimg-test/spoiled")


@pytest.fixture
def untouched(engine: DockerEngine, built: Built) -> Iterator[None]:
    """After the test, the engine has the names and containers that it had before."""
    before = image_tags(engine), container_ids(engine)
    yield
    assert (image_tags(engine), container_ids(engine)) == before, built.name


def spoil_lock(workspace: Path, layer: str, pattern: str, replacement: str) -> None:
    """Change a line of the copied lock."""
    file = workspace / "images/locks" / IDENTIFIER / f"{layer}.txt"
    text = file.read_text()
    file.write_text(spoiled := re.sub(pattern, replacement, text))
    assert spoiled != text


@pytest.mark.usefixtures("untouched")
def test_a_wheel_with_another_hash_stops_the_build(workspace: Path) -> None:
    spoil_lock(workspace, "packages", r"(six==\S+ --hash=sha256:)\w{8}", r"\g<1>00000000")
    ended = run_tfimg(*BUILD, env={"TFIMG_WORKSPACE": str(workspace)})
    assert_refused(ended, code=17, says=r"is not the one that was locked: .*six")


@pytest.mark.usefixtures("untouched")
def test_an_index_out_of_reach_stops_the_build(workspace: Path) -> None:
    """Port 9 of the loopback: nobody answers there."""
    index = "http://127.0.0.1:9/simple"
    ended = run_tfimg(
        *BUILD, "--no-cache",
        env={"TFIMG_WORKSPACE": str(workspace), "UV_DEFAULT_INDEX": index, "PIP_INDEX_URL": index},
    )  # fmt: skip
    assert_refused(ended, code=14, says=r"The package index did not tell what it has of \S+: .*refused")


@pytest.mark.usefixtures("untouched")
def test_an_image_that_fails_a_check_gets_no_tag(workspace: Path, tmp_path: Path) -> None:
    """Without `six`, pip finds an unmet dependency; the report is kept all the same."""
    spoil_lock(workspace, "packages", r"six==.*\n", "")
    report = tmp_path / "report.json"
    ended = run_tfimg(*BUILD, "--report", str(report), env={"TFIMG_WORKSPACE": str(workspace)})
    assert_refused(
        ended, code=20, says=r"and \d+ of \d+ checks did not pass\..*environment\.pip_check failed"
    )
    assert '"passed": false' in report.read_text()


@pytest.mark.usefixtures("untouched")
def test_an_image_that_is_not_what_it_is_said_to_be_fails(built: Built) -> None:
    ended = run_tfimg("validate", built.name, "--as", "2.16.2-cpu-py3.11")
    assert_refused(ended, code=20, says=r"environment\.tensorflow_version failed")


def test_an_image_validates_as_what_its_label_says(built: Built) -> None:
    ended = run_tfimg("validate", built.name, "--json")
    assert ended.code == 0, ended.stderr
    report = ended.documents[-1]
    assert (report["event"], report["passed"], report["digest"]) == ("report", True, built.document["digest"])


@pytest.mark.usefixtures("engine")
def test_an_image_that_is_not_there_cannot_be_validated() -> None:
    assert_refused(
        run_tfimg("validate", "tfimg-test/none:1"), code=2, says="The engine has no image tfimg-test/none:1"
    )


@pytest.mark.usefixtures("untouched")
def test_an_image_without_python_cannot_be_validated(engine: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    line = ["docker", "--host", engine.host, "buildx", "build", "--tag=tfimg-test/empty:1", str(tmp_path)]
    subprocess.run(line, capture_output=True, check=True)
    try:
        ended = run_tfimg("validate", "tfimg-test/empty:1", "--as", IDENTIFIER)
        assert_refused(ended, code=21, says="was to be validated, but it has no sh to start the suite with")
    finally:
        engine.remove("tfimg-test/empty:1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("untouched")
def test_interrupted_while_building(workspace: Path, number: signal.Signals) -> None:
    with start_tfimg(*BUILD, "--no-cache", env={"TFIMG_WORKSPACE": str(workspace)}) as child:
        assert child.stderr is not None
        while "Base: " not in (line := child.stderr.readline()):
            assert line, "the build ended before it could be interrupted"
        time.sleep(1)
        child.send_signal(number)
        output = child.communicate(timeout=60)
    assert (child.returncode, "tfimg: Interrupted." in output[1]) == (130, True), output


@pytest.mark.usefixtures("untouched")
def test_interrupted_while_validating(built: Built, engine: DockerEngine) -> None:
    with start_tfimg(*BUILD, env={}) as child:
        assert child.stderr is not None
        while "environment.pip_check" not in (line := child.stderr.readline()):
            assert line, "the suite ended before it could be interrupted"
        assert container_ids(engine), built.name
        child.send_signal(signal.SIGINT)
        output = child.communicate(timeout=60)
    assert (child.returncode, "tfimg: Interrupted." in output[1]) == (130, True), output


def test_no_engine(tmp_path: Path) -> None:
    ended = run_tfimg("build", "--tf", "2.15", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert_refused(ended, code=10, says="No container engine answers at unix://.*`tfimg engine up --install`")


@pytest.fixture(scope="module")
def old_dockerd(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Debian 12's own Engine 20.10 with a library that it needs, unpacked beside the one that is installed."""
    folder = tmp_path_factory.mktemp("old")
    folder.chmod(0o755)
    asked = ["apt-get", "--quiet", "download", "docker.io/bookworm", "libdevmapper1.02.1/bookworm"]
    done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no package of an engine that is too old can be had here: {done.stderr.strip()}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True)
    start = folder / "dockerd"
    libraries = f"{folder}/lib/x86_64-linux-gnu:{folder}/usr/lib/x86_64-linux-gnu"
    start.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {folder}/usr/sbin/dockerd "$@"\n')
    start.chmod(0o755)
    return str(start)


@pytest.mark.usefixtures("engine")
def test_an_engine_that_is_too_old(old_dockerd: str, tmp_path: Path) -> None:
    with daemon(tmp_path, old_dockerd, "--storage-driver=vfs") as host:
        ended = run_tfimg("build", "--tf", "2.15", env={"DOCKER_HOST": host})
    assert_refused(ended, code=11, says=r"is Docker 20\.10\.\S+, and builds need 23\.0 or newer")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.usefixtures("engine")
def test_no_space(small_disk: Path) -> None:
    with daemon(small_disk, find_dockerd(), "--storage-driver=vfs") as host:
        ended = run_tfimg("build", "--tf", "2.15", env={"DOCKER_HOST": host})
    assert_refused(ended, code=13, says=r"has 0\.\d GB free below \S+, and a build needs 7 GB")


@pytest.mark.usefixtures("engine")
def test_the_classic_store_is_not_said_to_do_what_it_ignores(tmp_path: Path) -> None:
    """It takes `compression=zstd` without a word and stores plain layers; so zstd is neither asked nor claimed."""
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    with daemon(tmp_path, find_dockerd(), "--storage-driver=vfs") as host:
        engine = DockerEngine(host=host, environ=os.environ)
        capabilities = engine.capabilities()
        output = choose_output(capabilities, "small:1")
        assert (capabilities.store, output.compression) == ("classic", "none")
        for option in (output.option, "type=image,name=small:1,compression=zstd,force-compression=true"):
            order = BuildOrder(
                dockerfile=context / "Dockerfile", context=context, name="small:1", build_args={}, labels={},
                secrets=(), secret_env={}, output=option,
            )  # fmt: skip
            assert list(engine.build(order))
            stored = engine.read_back("small:1")
            assert (stored.compression, stored.compressed_bytes) == ("none", None)


def test_the_private_engine_stops_and_starts_again(engine: DockerEngine, built: Built) -> None:
    if not run_tfimg("engine", "status", "--json").documents[0]["private"]:
        pytest.skip("the engine that runs is not tfimg's own to stop")
    assert run_tfimg("engine", "down", "--json").documents[0]["stopped"] is True
    assert run_tfimg("engine", "down", "--json").documents[0]["stopped"] is False
    assert not Path(engine.host.removeprefix("unix://")).exists()
    up = run_tfimg("engine", "up", "--json")
    assert (up.code, up.documents[0]["started"]) == (0, True), up.stderr
    assert engine.digest(f"{REPOSITORY}:2.15") == built.document["digest"]


def test_the_env_points_plain_docker_at_the_engine(engine: DockerEngine, built: Built) -> None:
    script = 'eval "$(python -m tfimg engine env)" && docker image inspect --format "{{.Id}}" ' + built.name
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path}, check=True
    )
    assert done.stdout.strip() == engine.digest(built.name)
