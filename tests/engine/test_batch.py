"""Builds of many images on a real engine: small images, and the TensorFlow image that all tests share."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tfimg.build.inventory import free_space
from tfimg.build.journal import BuildStarted, open_journal

from support.cli import CliResult, run_tfimg, start_tfimg
from support.docker_daemon import daemon, find_dockerd, image_tags
from support.small_workspace import make_workspace
from tfimg.build.builder import Builder
from tfimg.engine.docker.engine import DockerEngine
from tfimg.project.project import Project

from .conftest import IDENTIFIER, REPOSITORY, Built

pytestmark = pytest.mark.full

FIRST, SECOND, THIRD = "2.13.1-cpu-py3.11", "2.14.1-cpu-py3.11", "2.15.1-cpu-py3.11"
THREE = (FIRST, SECOND, THIRD)


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Runs of `tfimg build` that share a workspace of small images, a state folder and a repository of their own."""

    engine: DockerEngine
    folder: Path
    repository: str

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables that lead a run here."""
        return {
            "TFIMG_WORKSPACE": str(self.folder / "workspace"),
            "TFIMG_STATE": str(self.folder / "state"),
            "DOCKER_HOST": self.engine.host,
        }

    @property
    def options(self) -> Sequence[str]:
        """What every run is given."""
        return "--base", "bootstrap", "--repository", self.repository

    def change(self, **images: tuple[str, ...]) -> None:
        """Change which images are slow to build, fail their checks, or hang in them; see `small`."""
        workspace = make_workspace(self.folder / "workspace", **images)
        with (workspace.templates / "Dockerfile.j2").open("a") as template:
            template.write(f"\nLABEL runs={self.repository}\n")  # a digest that no other test makes

    def build(self, *images: str) -> CliResult:
        """Build images, and wait for the end."""
        return run_tfimg("build", *images, *self.options, "--json", env=self.environ)

    @contextmanager
    def building(self, *images: str, events: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
        """Build images, two at a time, and yield when each of `events` was printed for its image."""
        with start_tfimg("build", *images, *self.options, "--json", "--jobs", "2", env=self.environ) as child:
            assert child.stdout
            missing = set(events.items())
            while missing:
                line = child.stdout.readline()
                assert line, f"the run ended before {missing}"
                missing = {(image, event) for image, event in missing if not (image in line and event in line)}
            yield child

    @property
    def journal(self) -> Sequence[dict[str, Any]]:
        """All that these runs noted."""
        file = self.folder / "state/batch/journal.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def statuses(self) -> dict[str, str]:
        """The status of each image that the last run made, as its journal has it."""
        runs = [number for number, record in enumerate(self.journal) if record["event"] == "run"]
        last = self.journal[runs[-1] :]
        return {record["identifier"]: record["status"] for record in last if record["event"] == "end"}

    def candidates(self) -> Sequence[str]:
        """The names of unfinished images that these runs left in the engine."""
        return [name for name in image_tags(self.engine) if name in self._begun()]

    def containers(self) -> Sequence[str]:
        """The images of the containers that these runs left in the engine."""
        listed = self.engine.client.containers.list(all=True, ignore_removed=True)
        images = [container.attrs["Config"]["Image"] for container in listed]
        return [image for image in images if image in self._begun()]

    def _begun(self) -> set[str]:
        return {record["candidate"] for record in self.journal if record["event"] == "start"}

    def remove(self) -> None:
        """Remove every image that these runs made, and end the builds that outlived a killed run."""
        candidates = [name.encode() for name in self._begun()]
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                if any(name in command for name in candidates):
                    os.kill(int(folder.name), signal.SIGKILL)
        digests = {record["digest"] for record in self.journal if record.get("digest")}
        names = [name for name in image_tags(self.engine) if name.startswith(f"{self.repository}:")]
        for name in [*names, *digests]:
            self.engine.remove(name)


@contextmanager
def small_runs(engine: DockerEngine, folder: Path) -> Iterator[Runs]:
    """Make a place for runs; remove what they made at the end of the block."""
    runs = Runs(engine=engine, folder=folder, repository=f"tfimg-test/small-{secrets.token_hex(4)}")
    runs.change()
    try:
        yield runs
    finally:
        runs.remove()


@pytest.fixture
def runs(engine: DockerEngine, base: str, tmp_path: Path) -> Iterator[Runs]:
    """No image has been built here."""
    with small_runs(engine, tmp_path) as prepared:
        yield prepared


@pytest.fixture(scope="module")
def finished(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """One run has built three images here."""
    with small_runs(engine, tmp_path_factory.mktemp("finished")) as prepared:
        first = prepared.build(*THREE)
        assert (first.code, first.statuses) == (0, dict.fromkeys(THREE, "built")), first.stderr
        yield prepared


def test_the_shared_image_is_unchanged_to_a_run_over_many(built: Built, engine: DockerEngine) -> None:
    ended = run_tfimg("build", IDENTIFIER, "--base", "bootstrap", "--repository", REPOSITORY, "--json")
    assert (ended.code, ended.statuses) == (0, {IDENTIFIER: "unchanged"}), ended.stderr
    (image,) = ended.documents[-1]["images"]
    stored = engine.read_image(built.name)
    assert (image["digest"], image["level"]) == (built.document["digest"], built.report["level"])
    assert image["unpacked_bytes"] == stored.unpacked_bytes
    if engine.get_capabilities().store == "containerd":
        # The store counts manifest and configuration, some kilobytes.
        assert stored.compressed_bytes
        assert 0 <= image["compressed_bytes"] - stored.compressed_bytes < 50_000


def test_images_are_built_and_then_unchanged(finished: Runs) -> None:
    assert {f"{finished.repository}:{identifier}" for identifier in THREE} < set(image_tags(finished.engine))
    assert finished.candidates() == []
    again = finished.build(*THREE)
    assert (again.code, again.statuses) == (0, dict.fromkeys(THREE, "unchanged"))


def test_the_inventory_agrees_with_an_inspection(finished: Runs) -> None:
    engine, name = finished.engine, f"{finished.repository}:{FIRST}"
    known = {image.digest: image for image in engine.list_images()}
    image = known[str(engine.find_digest(name))]
    stored = engine.read_image(name)
    assert name in image.names
    assert (image.labels, image.content) == (stored.labels, stored.content)
    assert (image.unpacked_bytes, image.labels["tfimg.identifier"]) == (stored.unpacked_bytes, FIRST)
    assert image in engine.list_images(known), "an image that is known already is described in the same way"


def test_a_failing_image_stops_no_other(runs: Runs) -> None:
    runs.change(failing=(SECOND,))
    ended = runs.build(*THREE)
    assert (ended.code, ended.statuses) == (13, {FIRST: "built", SECOND: "failed", THIRD: "built"})
    assert "as it was told" in ended.stderr
    assert f"{runs.repository}:{SECOND}" not in image_tags(runs.engine)
    assert runs.candidates() == []


BUILDING_AND_CHECKING = {SECOND: "check-started", THIRD: "slowly"}
"""The events of a run whose second image hangs in its checks, and whose third is slow to build."""


def test_a_signal_ends_builds_and_checks_and_leaves_nothing(runs: Runs) -> None:
    runs.change(hanging=(SECOND,), slow=(THIRD,))
    with runs.building(SECOND, THIRD, events=BUILDING_AND_CHECKING) as child:
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert CliResult(130, out, err).statuses == dict.fromkeys((SECOND, THIRD), "interrupted")
    assert runs.journal[-1]["event"] == "interrupted"
    assert (runs.candidates(), runs.containers()) == ([], [])
    runs.change()
    again = runs.build(SECOND, THIRD)
    assert again.code == 0, again.stderr


def test_after_a_kill_the_same_command_goes_on_with_what_was_not_done(runs: Runs) -> None:
    runs.change(hanging=(SECOND,), slow=(THIRD,))
    with runs.building(*THREE, events=BUILDING_AND_CHECKING) as child:
        other = runs.build(FIRST)
        message = "a second run does not disturb the first"
        assert (other.code, str(child.pid) in other.stderr) == (12, True), message
        child.kill()
        child.wait()
    assert runs.candidates() != []
    assert runs.containers() != []
    done = runs.build(FIRST)
    assert (done.code, done.statuses) == (0, {FIRST: "unchanged"}), done.stderr
    runs.change()
    # Not as JSON: what people are told is read here.
    again = run_tfimg("build", SECOND, THIRD, *runs.options, env=runs.environ)
    assert again.code == 0, again.stderr
    message = f"Continuing a killed run, with ({SECOND}, {THIRD}|{THIRD}, {SECOND})"
    assert re.search(message, again.stderr), again.stderr
    assert runs.statuses == dict.fromkeys((SECOND, THIRD), "built")
    assert (runs.candidates(), runs.containers()) == ([], [])


def test_evidence_outlives_a_kill_and_its_images_and_a_build_that_is_the_same_agrees_with_it(runs: Runs) -> None:
    runs.change(hanging=(SECOND,), slow=(THIRD,))
    with runs.building(*THREE, "--record", events=BUILDING_AND_CHECKING) as child:
        child.kill()
        child.wait()
    for name in image_tags(runs.engine):
        if name.startswith(f"{runs.repository}:"):
            runs.engine.remove(name)
    done = runs.build(FIRST, "--record")
    assert (done.code, done.statuses) == (0, {FIRST: "recorded"}), done.stderr
    runs.change()
    again = runs.build(*THREE, "--record")
    assert (again.code, again.statuses) == (0, dict.fromkeys(THREE, "built")), again.stderr
    tags = set(image_tags(runs.engine))
    line = ["reproduce", "--recorded", "3", "--base", "bootstrap", "--json"]
    compared = run_tfimg(*line, env=runs.environ)
    assert (compared.code, compared.statuses) == (0, dict.fromkeys(THREE, "built")), compared.stderr
    assert "only the level is compared" not in compared.stdout + compared.stderr, "their recipes are the same"
    assert {name for name in tags if runs.repository in name} <= set(image_tags(runs.engine))
    assert runs.candidates() == []


class PrivateBuilder(Builder):
    """A builder whose engine counts as tfimg's own."""

    is_private = True


def test_pruning_removes_only_what_tfimg_made(tmp_path: Path) -> None:
    """On another engine, whose cache and images no other test needs."""
    with daemon(tmp_path, find_dockerd(), "--storage-driver=vfs") as host:
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
            journal.write(BuildStarted(identifier="x", candidate=left, engine=host))
        assert _cache(host) != "0B"
        for kind, cache in ((Builder, False), (PrivateBuilder, True)):
            builder = kind(Project(), engine)
            with open_journal(tmp_path / "batch") as journal:
                free_space(builder, journal)
            assert (_cache(host) == "0B") is cache
        assert image_tags(engine) == [ours, theirs, live]
        assert {image.digest for image in engine.list_images()} & set(old.values()) == {old[theirs]}


def _scratch(host: str, folder: Path, name: str, label: str) -> str:
    """Build a tiny image of a name, whoever had it before; returns its digest."""
    (folder / "Dockerfile").write_text(
        f"FROM scratch AS one\nCOPY Dockerfile /{label}\nFROM scratch\nCOPY --from=one / /\n"
    )
    line = ["docker", "--host", host, "buildx", "build", "--quiet", "--label", label, "--tag", name, "--file"]
    done = subprocess.run([*line, str(folder / "Dockerfile"), str(folder)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _cache(host: str) -> str:
    """How much build cache an engine has."""
    line = ["docker", "--host", host, "system", "df", "--format", "{{.Type}} {{.Size}}"]
    told = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(row.removeprefix("Build Cache ") for row in told if row.startswith("Build Cache"))


def test_resources_are_those_of_the_machine(engine: DockerEngine) -> None:
    left = engine.get_resources()
    assert left.cpus == os.cpu_count()
    assert 0 < left.memory_bytes < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert left.disk_bytes is not None
