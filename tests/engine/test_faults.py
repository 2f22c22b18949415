"""What goes wrong with a real engine: its own exit code, a paragraph, nothing left behind."""

import json
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
from support.docker_daemon import daemon, find_dockerd, image_tags, wait_until
from support.registry_container import docker
from support.small_workspace import make_workspace
from tfimg.core.paths import Workspace
from tfimg.engine.buildx import choose_output
from tfimg.engine.docker import DockerEngine
from tfimg.engine.interface import BuildRequest
from tfimg.engine.machine import CANDIDATE
from tfimg.recipe.labels import LOCK_LABEL
from tfimg.recipe.lock import hash_lock

from .conftest import IDENTIFIER, Built

pytestmark = [pytest.mark.full, pytest.mark.group("rebuild and faults"), pytest.mark.usefixtures("engine")]

EMPTY = "tfimg-test/empty:1"
BUILD = ("build", "--tf", "2.15.1", "--base", "bootstrap", "--repository", "tfimg-test/spoiled")


@pytest.fixture
def workspace(own_workspace: Path, engine: DockerEngine) -> Iterator[Path]:
    """A copy to be spoiled. After the test, the engine has no image or container that was made of it."""
    yield own_workspace
    assert made_of(engine, own_workspace) == []


def made_of(engine: DockerEngine, workspace: Path) -> list[str]:
    """Return the images that were made of the copied lock, and their containers, which inherit the label."""
    lock = hash_lock(Workspace(root=workspace).read_lock(IDENTIFIER))
    return [
        line
        for command in (["image", "ls", "--all"], ["ps", "--all"])
        for line in docker(*command, "--quiet", f"--filter=label={LOCK_LABEL}={lock}", host=engine.host).splitlines()
    ]


def spoil_lock(workspace: Path, layer: str, pattern: str, replacement: str) -> None:
    """Change a line of the copied lock."""
    file = workspace / "images/locks" / IDENTIFIER / f"{layer}.txt"
    text = file.read_text()
    file.write_text(spoiled := re.sub(pattern, replacement, text))
    assert spoiled != text


def test_a_wheel_with_another_hash_stops_the_build(workspace: Path) -> None:
    spoil_lock(workspace, "packages", r"(six==\S+ --hash=sha256:)\w{8}", r"\g<1>00000000")
    ended = run_tfimg(*BUILD, env={"TFIMG_WORKSPACE": str(workspace)})
    assert_refused(ended, code=12, says=r"differs from the lock: .*six")


def test_an_index_out_of_reach_stops_the_build(workspace: Path) -> None:
    """Port 9 of the loopback: no proxy answers."""
    index = "http://127.0.0.1:9/simple"
    ended = run_tfimg(
        *BUILD, "--no-cache", env={"TFIMG_WORKSPACE": str(workspace), "UV_DEFAULT_INDEX": index, "PIP_INDEX_URL": index}
    )
    assert_refused(ended, code=11, says=r"Cannot read the wheels of \S+ from the package index: .*refused")


def test_an_image_that_fails_a_check_gets_no_tag(workspace: Path, tmp_path: Path) -> None:
    """Without `six`, pip finds an unmet dependency; the report is kept all the same."""
    spoil_lock(workspace, "packages", r"six==.*\n", "")
    report = tmp_path / "report.json"
    ended = run_tfimg(*BUILD, "--report", str(report), env={"TFIMG_WORKSPACE": str(workspace)})
    assert_refused(ended, code=13, says=r"and \d+ of \d+ checks did not pass\..*environment\.pip_check failed")
    assert '"passed": false' in report.read_text()


def test_an_image_that_is_not_there_cannot_be_validated() -> None:
    assert_refused(run_tfimg("validate", "tfimg-test/none:1"), code=3, says="The engine has no image tfimg-test/none:1")


def test_an_image_without_python_cannot_be_validated(engine: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    docker("buildx", "build", f"--tag={EMPTY}", str(tmp_path), host=engine.host)
    try:
        ended = run_tfimg("validate", EMPTY, "--as", IDENTIFIER)
        assert_refused(ended, code=13, says="cannot be validated: it has no sh to start the suite with")
        assert docker("ps", "--all", "--quiet", f"--filter=ancestor={EMPTY}", host=engine.host) == ""
    finally:
        engine.remove(EMPTY)


@pytest.mark.parametrize(
    ("options", "event", "number", "pauses"),
    [
        (["--no-cache"], {"event": "step", "state": "started"}, signal.SIGTERM, []),
        (["--revalidate"], {"event": "check", "check": "environment.pip_check"}, signal.SIGINT, []),
        (["--no-cache"], {"event": "step", "state": "started"}, signal.SIGINT, [0.3]),
        (["--revalidate"], {"event": "check", "check": "environment.pip_check"}, signal.SIGINT, [0.1, 0.1]),
    ],
    ids=["building", "validating", "building, twice", "validating, three times"],
)
@pytest.mark.usefixtures("built")
def test_interrupted(
    workspace: Path,
    engine: DockerEngine,
    options: list[str],
    event: dict[str, str],
    number: signal.Signals,
    pauses: list[float],
) -> None:
    with start_tfimg(*BUILD, "--json", *options, env={"TFIMG_WORKSPACE": str(workspace)}) as child:
        assert child.stdout is not None
        while not event.items() <= json.loads(child.stdout.readline()).items():
            pass  # at the end of the output there is nothing to parse
        if "check" in event:
            assert len(made_of(engine, workspace)) >= 2, "an image and a container are found, where there are"
        child.send_signal(number)
        for pause in pauses:
            time.sleep(pause)
            child.send_signal(number)
        output = child.communicate(timeout=60)
    says = "tfimg: Stopped the suite of" if "check" in event and not pauses else "tfimg: "
    assert (child.returncode, says in output[1]) == (130, True), output
    assert "Traceback" not in output[1]


@pytest.mark.usefixtures("base")
def test_the_next_build_removes_the_candidate_of_a_killed_one_and_none_of_a_living_one(
    engine: DockerEngine, tmp_path: Path
) -> None:
    make_workspace(tmp_path / "workspace", hanging=(IDENTIFIER,))
    env = {
        "TFIMG_WORKSPACE": str(tmp_path / "workspace"),
        "TFIMG_STATE": str(tmp_path / "state"),
        "DOCKER_HOST": engine.host,
    }

    def validated(*others: str) -> set[str]:
        """The candidates in which a suite runs."""
        listed = docker("ps", "--format={{.Image}}", host=engine.host).split()
        return {name for name in listed if name.startswith(f"{CANDIDATE}:{IDENTIFIER}-")} - set(others)

    others = validated()
    with start_tfimg(*BUILD, env=env) as dead:
        wait_until(lambda: len(validated(*others)) == 1)
        (stale,) = validated(*others)
        with start_tfimg(*BUILD, "--repository", "tfimg-test/living", env=env) as alive:  # each image is built once
            wait_until(lambda: len(validated(*others, stale)) == 1)
            (used,) = validated(*others, stale)
            dead.kill()
            dead.wait()
            make_workspace(tmp_path / "workspace")
            ended = run_tfimg(*BUILD, env=env).succeeded()
            assert f"Removed what a killed build left behind: {stale}\n" in ended.stderr
            assert (engine.find_digest(stale), stale in validated()) == (None, False)
            assert engine.find_digest(used)
            assert used in validated()
            alive.kill()
            alive.wait()
    assert f"left behind: {used}\n" in run_tfimg(*BUILD, "--revalidate", env=env).succeeded().stderr
    for name in image_tags(engine):
        assert name not in (stale, used)
        if name.startswith("tfimg-test/spoiled:"):
            engine.remove(name)


def test_no_engine(tmp_path: Path) -> None:
    ended = run_tfimg("build", "--tf", "2.15", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert_refused(ended, code=10, says="No container engine answers at unix://.*`tfimg engine up --install`")


@pytest.fixture(scope="module")
def old_dockerd(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Debian 12's own Engine 20.10 with a library that it needs, unpacked beside the one that is installed."""
    folder = tmp_path_factory.mktemp("old")
    folder.chmod(0o755)
    requested = ["apt-get", "--quiet", "download", "docker.io/bookworm", "libdevmapper1.02.1/bookworm"]
    done = subprocess.run(requested, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no package of an engine that is too old can be had here: {done.stderr.strip()}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(folder)], check=True)
    start = folder / "dockerd"
    libraries = f"{folder}/lib/x86_64-linux-gnu:{folder}/usr/lib/x86_64-linux-gnu"
    start.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {folder}/usr/sbin/dockerd "$@"\n')
    start.chmod(0o755)
    return str(start)


def test_an_engine_that_is_too_old(old_dockerd: str, tmp_path: Path) -> None:
    with daemon(tmp_path, old_dockerd, "--storage-driver=vfs") as host:
        ended = run_tfimg("build", "--tf", "2.15", env={"DOCKER_HOST": host})
    assert_refused(ended, code=10, says=r"is Docker 20\.10\.\S+, and builds need 23\.0 or newer")


@pytest.fixture(scope="module")
def classic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a daemon with the classic store, on a file system of 200 MB."""
    folder = tmp_path_factory.mktemp("small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(folder)], check=True)
    try:
        with daemon(folder, find_dockerd(), "--storage-driver=vfs") as host:
            yield host
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_no_space(classic: str) -> None:
    ended = run_tfimg("build", "--tf", "2.15", env={"DOCKER_HOST": classic})
    assert_refused(ended, code=10, says=r"needs 7,000 MB, and the disk of \S+ has \d+ MB free")


def test_no_zstd_is_requested_of_the_classic_store(classic: str, tmp_path: Path) -> None:
    """It takes `compression=zstd` without a word and stores plain layers; so zstd is neither requested nor claimed."""
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /\n")
    engine = DockerEngine(host=classic, environ=os.environ)
    capabilities = engine.get_capabilities()
    output = choose_output(capabilities, "small:1")
    assert (capabilities.store, output.compression) == ("classic", "none")
    for option in (output.option, "type=image,name=small:1,compression=zstd,force-compression=true"):
        order = BuildRequest(dockerfile=tmp_path / "Dockerfile", context=tmp_path, name="small:1", output=option)
        assert list(engine.build(order))
        stored = engine.read_image("small:1")
        assert (stored.compression, stored.compressed_bytes) == ("none", None)


def test_the_env_points_plain_docker_at_the_engine(engine: DockerEngine, built: Built) -> None:
    script = 'eval "$(python -m tfimg engine env)" && docker image inspect --format "{{.Id}}" ' + built.name
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path}, check=True
    )
    assert done.stdout.strip() == engine.find_digest(built.name)
