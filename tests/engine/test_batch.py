"""Builds of many images on a real engine: small images, and the TensorFlow image that all tests share."""

import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from support.cli import CliResult, run_tfimg, start_tfimg
from support.docker_daemon import daemon, find_dockerd, image_tags
from support.small_workspace import make_workspace
from tfimg.core.errors import DiskSpaceError
from tfimg.engine.docker import DockerEngine
from tfimg.engine.interface import LocalImage
from tfimg.engine.machine import CANDIDATE, check_disk_space

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
        """The variables that point a run to this engine."""
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

    def candidates(self) -> Sequence[str]:
        """The names of unfinished images that these runs left in the engine."""
        return [name for image in self._images() for name in image.names if name.startswith(f"{CANDIDATE}:")]

    def containers(self) -> Sequence[str]:
        """The images of the containers that these runs left in the engine."""
        listed = self.engine.client.containers.list(all=True, ignore_removed=True)
        return [found.attrs["Config"]["Image"] for found in listed if found.labels.get("runs") == self.repository]

    def _images(self) -> Sequence[LocalImage]:
        return [image for image in self.engine.list_images() if image.labels.get("runs") == self.repository]

    def remove(self) -> None:
        """Remove every image that these runs made, and end the builds that outlived a killed run."""
        killed = [file.name.encode() for file in self.folder.glob("state/candidates/*/*")]
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                if any(name in command for name in killed):
                    os.kill(int(folder.name), signal.SIGKILL)
        for image in self._images():
            for name in image.names or (image.digest,):
                self.engine.remove_with_containers(name)


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
    """No image has been built."""
    with small_runs(engine, tmp_path) as prepared:
        yield prepared


@pytest.fixture(scope="module")
def finished(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """One run has built three images."""
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
    (named,) = engine.list_images(names=[name, f"{finished.repository}:absent"])
    assert (named, named.names) == (replace(image, names=named.names, by_digest=named.by_digest), (name,))


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
    assert (runs.candidates(), runs.containers()) == ([], [])
    runs.change()
    again = runs.build(SECOND, THIRD)
    assert again.code == 0, again.stderr


def test_after_a_kill_the_same_command_goes_on_with_what_was_not_done(runs: Runs) -> None:
    runs.change(hanging=(SECOND,), slow=(THIRD,))
    with runs.building(*THREE, events=BUILDING_AND_CHECKING) as child:
        other = runs.build(FIRST, SECOND)
        assert (other.code, other.statuses) == (12, {FIRST: "unchanged", SECOND: "failed"})
        assert f"{SECOND} is being built already, by process {child.pid}." in other.stderr
        child.kill()
        child.wait()
    assert runs.candidates() != []
    assert runs.containers() != []
    done = runs.build(FIRST)
    assert (done.code, done.statuses) == (0, {FIRST: "unchanged"}), done.stderr
    runs.change()
    # Not as JSON: this is about the text for people.
    again = run_tfimg("build", SECOND, THIRD, *runs.options, env=runs.environ)
    assert again.code == 0, again.stderr
    assert re.search(f"Removed what a killed build left behind: .*{SECOND}", again.stderr), again.stderr
    assert {f"{runs.repository}:{identifier}" for identifier in THREE} < set(image_tags(runs.engine))
    assert (runs.candidates(), runs.containers()) == ([], [])


def test_records_outlive_a_kill_and_its_images_and_a_build_that_is_the_same_agrees_with_them(runs: Runs) -> None:
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
    line = ["build", "--recorded", "3", "--base", "bootstrap", "--json"]
    compared = run_tfimg(*line, env=runs.environ)
    assert (compared.code, compared.statuses) == (0, dict.fromkeys(THREE, "built")), compared.stderr
    assert "only the level is compared" not in compared.stdout + compared.stderr, "their recipes are the same"
    assert {name for name in tags if runs.repository in name} <= set(image_tags(runs.engine))
    assert runs.candidates() == []


def test_the_commands_that_a_full_disk_is_answered_with_free_space(tmp_path: Path) -> None:
    """On another engine, whose cache and images no other test needs."""
    with daemon(tmp_path, find_dockerd(), "--storage-driver=vfs") as host:
        engine = DockerEngine(host=host, environ=os.environ)
        for text in ("one", "two"):
            old = _scratch(host, tmp_path, text)
        tags = ["tfimg-test/scratch:2", "tfimg-test/scratch:3"]
        engine.tag("tfimg-test/scratch:1", tags)
        assert _cache(host) != "0B"
        assert len(engine.list_images()) == 2, "one without a name"
        with pytest.raises(DiskSpaceError) as caught:
            check_disk_space(replace(engine.get_capabilities(), free_bytes=1), "cpu")
        cache, nameless, remove, listing = re.findall("`([^`]*)`", caught.value.next_step)
        _answer_yes(cache)
        assert _cache(host) == "0B"
        _answer_yes(nameless)
        assert [image.digest for image in engine.list_images()] == [old]
        assert "tfimg-test/scratch" in _answer_yes(listing)
        _answer_yes(remove.replace("NAME", " ".join(["tfimg-test/scratch:1", *tags])))
        assert engine.list_images() == []


def _answer_yes(command: str) -> str:
    """Run a command as it is printed, and answer its question."""
    done = subprocess.run(["sh", "-c", command], input="y\n", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _scratch(host: str, folder: Path, text: str) -> str:
    """Build a tiny image of a name, whichever image had it before; return its digest."""
    (folder / "Dockerfile").write_text(
        f"FROM scratch AS one\nCOPY Dockerfile /{text}\nFROM scratch\nCOPY --from=one / /\n"
    )
    line = ["docker", "--host", host, "buildx", "build", "--quiet", "--tag=tfimg-test/scratch:1", str(folder)]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()


def _cache(host: str) -> str:
    """How much build cache an engine has."""
    line = ["docker", "--host", host, "system", "df", "--format", "{{.Type}} {{.Size}}"]
    reported = subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(row.removeprefix("Build Cache ") for row in reported if row.startswith("Build Cache"))


def test_memory_and_free_space_are_those_of_the_machine(engine: DockerEngine) -> None:
    found = engine.get_capabilities()
    assert found.memory_bytes == pytest.approx(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), rel=0.01)
    assert engine.find_free_bytes() == pytest.approx(shutil.disk_usage(found.data_root).free, abs=10**9)
