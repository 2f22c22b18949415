"""Many images on a real engine: small ones, all real but for what is in them, and the one that all tests share."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliResult, run_tfimg, start_tfimg
from support.docker_daemon import daemon, image_tags
from support.small_workspace import small
from tfimg.batch.journal import open_journal
from tfimg.batch.pipeline import Work
from tfimg.batch.schedule import Worker
from tfimg.batch.stock import prune
from tfimg.engine.docker import DockerEngine
from tfimg.recipe.plan import Plan

from .conftest import IDENTIFIER, REPOSITORY, Built

FIRST, SECOND, THIRD = "2.13.1-cpu-py3.11", "2.14.1-cpu-py3.11", "2.15.1-cpu-py3.11"
THREE = (FIRST, SECOND, THIRD)
SMALL = "tfimg-test/small"
OPTIONS = ("--base", "bootstrap", "--repository", SMALL, "--json")


@pytest.fixture
def here(engine: DockerEngine, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Where the runs of a test live: a workspace of small images, a state folder; the engine is the shared one."""
    small(tmp_path / "workspace")
    yield {
        "TFIMG_WORKSPACE": str(tmp_path / "workspace"), "TFIMG_STATE": str(tmp_path / "state"),
        "DOCKER_HOST": engine.host,
    }  # fmt: skip
    made = {
        one["digest"]
        for run in tmp_path.glob("state*")
        for one in journal({"TFIMG_STATE": str(run)})
        if one.get("digest")
    }
    for name in [*(name for name in image_tags(engine) if name.startswith(f"{SMALL}:")), *made]:
        engine.remove(name)


def status(ended: CliResult) -> dict[str, str]:
    return {one["identifier"]: one["status"] for one in ended.documents if one["event"] == "result"}


def journal(here: dict[str, str]) -> list[dict[str, Any]]:
    file = Path(here["TFIMG_STATE"]) / "batch/journal.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def wait_for(met: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_at(here: dict[str, str], identifier: str) -> bool:
    """Whether a run has begun an image."""
    return any(one["event"] == "start" and one["identifier"] == identifier for one in journal(here))


def candidates(engine: DockerEngine, here: dict[str, str]) -> list[str]:
    """What is left of these runs in the engine."""
    return [name for name in image_tags(engine) if name in begun(here)]


def left_running(engine: DockerEngine, here: dict[str, str]) -> list[str]:
    """The containers that were made from what these runs built; the engine may have others'."""
    images = [
        one.attrs["Config"]["Image"] for one in engine._client.containers.list(all=True, ignore_removed=True)
    ]
    return [image for image in images if image in begun(here)]


def begun(here: dict[str, str]) -> set[str]:
    """The names of what these runs have begun to build."""
    return {one["candidate"] for one in journal(here) if one["event"] == "start"}


def test_the_shared_image_is_unchanged_to_a_run_over_many(built: Built, engine: DockerEngine) -> None:
    began = time.monotonic()
    ended = run_tfimg("build", IDENTIFIER, "--base", "bootstrap", "--repository", REPOSITORY, "--json")
    assert (ended.code, status(ended)) == (0, {IDENTIFIER: "unchanged"}), ended.stderr
    assert time.monotonic() - began < 10
    (one,) = ended.documents[-1]["images"]
    stored = engine.read_back(built.name)
    assert (one["digest"], one["level"]) == (built.document["digest"], built.report["level"])
    assert one["unpacked_bytes"] == stored.unpacked_bytes
    if engine.capabilities().store == "containerd":
        # The store counts manifest and configuration, some kilobytes.
        assert stored.compressed_bytes
        assert 0 <= one["compressed_bytes"] - stored.compressed_bytes < 50_000


def test_images_are_built_and_then_unchanged(here: dict[str, str], engine: DockerEngine) -> None:
    first = run_tfimg("build", *THREE, *OPTIONS, env=here)
    assert (first.code, status(first)) == (0, dict.fromkeys(THREE, "built")), first.stderr
    assert {f"{SMALL}:{name}" for name in THREE} < set(image_tags(engine))
    assert candidates(engine, here) == []
    again = run_tfimg("build", *THREE, *OPTIONS, env=here)
    assert (again.code, status(again)) == (0, dict.fromkeys(THREE, "unchanged"))


def test_a_failing_image_stops_no_other(here: dict[str, str], engine: DockerEngine, tmp_path: Path) -> None:
    small(tmp_path / "workspace", failing=(SECOND,))
    ended = run_tfimg("build", *THREE, *OPTIONS, env=here)
    assert (ended.code, status(ended)) == (20, dict(zip(THREE, ["built", "failed", "built"], strict=True)))
    assert "as it was told" in ended.stderr
    assert f"{SMALL}:{SECOND}" not in image_tags(engine)
    assert candidates(engine, here) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("stage", ["slow", "hanging"])
def test_a_signal_ends_builds_and_checks_and_leaves_nothing(
    stage: str, number: signal.Signals, here: dict[str, str], engine: DockerEngine, tmp_path: Path
) -> None:
    small(tmp_path / "workspace", **{stage: (SECOND,)})
    with start_tfimg("build", FIRST, SECOND, *OPTIONS, "--jobs", "1", env=here) as child:
        assert child.stdout
        sign = "slowly" if stage == "slow" else "check-started"
        heard = (line for line in child.stdout if SECOND in line and sign in line)
        assert next(heard)
        child.send_signal(number)
        out, err = child.communicate(timeout=60)
    told = [json.loads(line) for line in out.splitlines()]
    assert child.returncode == 130, err
    assert {one["identifier"]: one["status"] for one in told if one["event"] == "result"} == {
        SECOND: "interrupted"
    }
    assert journal(here)[-1]["event"] == "interrupted"
    assert (candidates(engine, here), left_running(engine, here)) == ([], [])
    small(tmp_path / "workspace")
    again = run_tfimg("build", FIRST, SECOND, *OPTIONS, env=here)
    assert again.code == 0, again.stderr


@pytest.mark.parametrize("stage", ["slow", "hanging"])
def test_after_a_kill_the_same_command_goes_on(
    stage: str, here: dict[str, str], engine: DockerEngine, tmp_path: Path
) -> None:
    small(tmp_path / "workspace", **{stage: (SECOND,)})
    with start_tfimg("build", FIRST, SECOND, *OPTIONS, "--jobs", "1", env=here) as child:
        assert child.stdout
        sign = "slowly" if stage == "slow" else "check-started"
        assert next(line for line in child.stdout if SECOND in line and sign in line)
        other = run_tfimg("build", THIRD, *OPTIONS, env=here)
        assert (other.code, str(child.pid) in other.stderr) == (27, True), (
            "a second run does not disturb the first"
        )
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    if stage == "hanging":
        assert candidates(engine, here) != []
        assert left_running(engine, here) != []
    small(tmp_path / "workspace")
    began = time.monotonic()
    again = run_tfimg("build", FIRST, SECOND, THIRD, *OPTIONS[:-1], env=here)
    assert again.code == 0, again.stderr
    assert time.monotonic() - began < 60
    assert f"Going on where a run was killed, at {SECOND}" in again.stderr
    assert (candidates(engine, here), left_running(engine, here)) == ([], [])


def test_what_is_done_is_not_done_again_after_a_kill(here: dict[str, str], tmp_path: Path) -> None:
    with start_tfimg("build", *THREE, *OPTIONS, "--jobs", "1", env=here) as child:
        wait_for(lambda: is_at(here, SECOND))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    again = run_tfimg("build", *THREE, *OPTIONS, env=here)
    assert (again.code, status(again)) == (0, dict(zip(THREE, ["unchanged", "built", "built"], strict=True)))


def test_an_inventory_tells_what_an_inspection_tells(here: dict[str, str], engine: DockerEngine) -> None:
    assert run_tfimg("build", FIRST, *OPTIONS, env=here).code == 0
    name = f"{SMALL}:{FIRST}"
    found = {image.digest: image for image in engine.inventory()}
    image = found[str(engine.digest(name))]
    stored = engine.read_back(name)
    assert name in image.names
    assert (image.labels, image.content) == (stored.labels, stored.content)
    assert (image.unpacked_bytes, image.labels["tfimg.identifier"]) == (stored.unpacked_bytes, FIRST)
    assert image in engine.inventory(found), "what is known already is told the same"


def test_room_is_made_with_what_is_ours_alone(tmp_path: Path) -> None:
    """On another engine, whose cache and images nobody misses."""
    dockerd = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert dockerd
    with daemon(tmp_path, dockerd, "--storage-driver=vfs") as host:
        engine = DockerEngine(host=host, environ=os.environ)
        ours, theirs = "tfimg-test/ours:1", "tfimg-test/theirs:1"
        old = {
            name: _scratch(host, tmp_path, name, label)
            for name, label in ((ours, "tfimg.identifier=x"), (theirs, "x=y"))
        }
        for name, label in ((ours, "tfimg.identifier=y"), (theirs, "x=z")):
            assert _scratch(host, tmp_path, name, label) not in old.values()
        left, live = "tfimg/candidate:x-00000001", "tfimg/candidate:x-00000002"
        engine.tag(ours, [left, live])
        with open_journal(tmp_path / "batch") as journal:
            journal.note("start", identifier="x", candidate=left, engine=host)
        assert _cache(host) != "0B"
        for own, cache in ((False, False), (True, True)):
            worker = Worker(
                name=host, engine=engine, capabilities=engine.capabilities(), prepare=_unprepared, own=own
            )  # fmt: skip
            with open_journal(tmp_path / "batch") as journal:
                prune(worker, journal)
            assert (_cache(host) == "0B") is cache
        assert image_tags(engine) == [ours, theirs, live]
        assert {image.digest for image in engine.inventory()} & set(old.values()) == {old[theirs]}


def _unprepared(_plan: Plan) -> Work:
    raise AssertionError


def _scratch(host: str, folder: Path, name: str, label: str) -> str:
    """Build a tiny image of a name, whoever had it before; returns its digest."""
    (folder / "Dockerfile").write_text(
        f"FROM scratch AS one\nCOPY Dockerfile /{label}\nFROM scratch\nCOPY --from=one / /\n"
    )
    line = ["docker", "--host", host, "buildx", "build", "--quiet", "--label", label, "--tag", name, "--file"]
    done = subprocess.run(
        [*line, str(folder / "Dockerfile"), str(folder)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _cache(host: str) -> str:
    """How much build cache an engine has."""
    line = ["docker", "--host", host, "system", "df", "--format", "{{.Type}} {{.Size}}"]
    told = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(row.removeprefix("Build Cache ") for row in told if row.startswith("Build Cache"))


def test_resources_are_those_of_the_machine(engine: DockerEngine) -> None:
    left = engine.resources()
    assert left.cpus == os.cpu_count()
    assert 0 < left.memory_bytes < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert left.disk_bytes is not None
