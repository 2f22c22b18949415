"""`tfimg clean`: what tfimg keeps is shown and removed, and nothing else."""

import fcntl
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.memory_engine import HOST, FakeEngine, stored_image, toolkit
from tfimg.core.errors import EngineError
from tfimg.engine.machine import PrivateEngine

BUILT = "2.15.1-cpu-py3.11"
NAMES = {
    "tfimg/tensorflow:2.15.1-cpu-py3.11": BUILT,
    "tfimg/tensorflow:2.15": BUILT,
    "tfimg/base:bookworm-py3.11": None,
    # Without a report: another user may have built it.
    "tfimg/tensorflow:2.15.1-cuda12.2-py3.11": "2.15.1-cuda12.2-py3.11",
    # Of the user: another repository, a tag and a label that contradict each other, no label, another's candidate.
    "my-training:latest": BUILT,
    "tfimg/tensorflow:mine": BUILT,
    "tfimg/tensorflow:2.16": BUILT,
    "tfimg/tensorflow:2.15.0": None,
    "tfimg/candidate:2.15.1-cpu-py3.11-00000000": BUILT,
    "python:3.11": None,
    # Without a tag: earlier builds, an image `FROM` one of tfimg's, an image that was pulled by its digest.
    "sha256:earlier": BUILT,
    "sha256:same-content": BUILT,
    "sha256:derived": BUILT,
    "registry.example/tensorflow@sha256:pulled": BUILT,
}
TAGGED = {"tfimg/tensorflow:2.15.1-cpu-py3.11", "tfimg/tensorflow:2.15"}
EARLIER = {"sha256:earlier", "sha256:same-content"}
OURS = {*TAGGED, *EARLIER}
SHARED = {"tfimg/base:bookworm-py3.11", "tfimg/tensorflow:2.15.1-cuda12.2-py3.11"}


def digest_of(name: str) -> str:
    return "sha256:1" if name in TAGGED else name[name.find("sha256:") :] if "sha256:" in name else f"sha256:2{name}"


@pytest.fixture
def engine() -> FakeEngine:
    names = {name: stored_image(digest_of(name), identifier=label, content=name) for name, label in NAMES.items()}
    for name in ("sha256:same-content", *TAGGED):
        names[name] = replace(names[name], content="the same")
    return FakeEngine(names=names)


@pytest.fixture
def environment(engine: FakeEngine) -> TestEnvironment:
    return TestEnvironment(docker=engine)


@pytest.fixture
def state(tfimg: CliRunner) -> Path:
    """A state folder with layers of two names for one file, and a file of the user."""
    layers = tfimg.state / "layers"
    layers.mkdir(parents=True)
    (layers / "one").write_bytes(b"x" * 3_000_000)
    (layers / "two").hardlink_to(layers / "one")
    (tfimg.state / "notes.txt").write_text("mine")
    (tfimg.state / "reports").mkdir()
    (tfimg.state / "reports/one.json").write_text('{"digest": "sha256:1"}')
    (tfimg.state / "reports/two.json").write_text("[" * 9000)
    (tfimg.state / "reports/three.json").write_text('{"digest": "sha256:earlier"}')
    (tfimg.state / "reports/four.json").write_text('{"digest": "sha256:pulled"}')
    return tfimg.state


def test_a_dry_run_shows_parts_with_sizes_and_removes_nothing(
    tfimg: CliRunner, state: Path, engine: FakeEngine
) -> None:
    found = {one["name"]: one for one in tfimg("clean", "--dry-run", "--json").succeeded().json}
    assert {*found} == OURS | SHARED | {"build cache", "layers", "reports", "cache"}
    assert {name for name, one in found.items() if one["why"]} == SHARED | {"build cache"}
    assert {found[name]["content"] for name in EARLIER} == {f"earlier build of image {BUILT}"}
    assert 3_000_000 <= found["layers"]["bytes"] < 3_100_000  # the file counts once
    assert "docker builder prune" in found["build cache"]["why"]
    assert engine.names.keys() == NAMES.keys()
    assert (state / "layers/two").exists()
    assert "layers 3 MB layers of wheels" in " ".join(tfimg("clean", "--dry-run").succeeded().stdout.split())


def test_it_removes_what_is_tfimgs_and_nothing_of_others(tfimg: CliRunner, state: Path, engine: FakeEngine) -> None:
    ended = tfimg("clean", "--yes", "--json").succeeded().json
    assert {one["name"] for one in ended if not one["removed"]} == SHARED | {"build cache"}
    assert {one["name"] for one in ended if one["removed"]} == OURS | {"layers", "reports", "cache"}
    assert engine.names.keys() == NAMES.keys() - OURS
    assert engine.cache_bytes
    assert [file.name for file in state.iterdir()] == ["notes.txt"]


def test_parts_are_chosen(tfimg: CliRunner, state: Path, engine: FakeEngine) -> None:
    (state / "wheels").mkdir()
    shown = " ".join(tfimg("clean", "wheels", "--yes").succeeded().stdout.split())
    assert "removed: downloaded custom wheels" in shown
    assert (state / "layers").exists()
    assert engine.names.keys() == NAMES.keys()
    assert "no part 'wheel'" in tfimg("clean", "wheel", "--yes").refusal(2)
    assert "--dry-run and --yes" in tfimg("clean").refusal(2)


def test_it_refuses_while_a_build_holds_a_lock(tfimg: CliRunner, state: Path, engine: FakeEngine) -> None:
    lock = state / "candidates" / "0" / "2.15.1-cpu-py3.11-12345678"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert str(lock) in tfimg("clean", "--yes").refusal(1)
    assert (state / "layers").exists()
    assert engine.names.keys() == NAMES.keys()


def test_the_candidate_of_a_killed_build_is_removed_with_its_lock(
    tfimg: CliRunner, state: Path, engine: FakeEngine
) -> None:
    lock = state / "candidates" / hashlib.sha256(HOST.encode()).hexdigest()[:16] / "2.15.1-cpu-py3.11-00000000"
    lock.parent.mkdir(parents=True)
    lock.touch()
    tfimg("clean", "--yes").succeeded()
    assert "tfimg/candidate:2.15.1-cpu-py3.11-00000000" not in engine.names
    assert not (state / "candidates").exists()


def test_the_build_cache_of_a_private_engine_is_tfimgs(tfimg: CliRunner, state: Path, engine: FakeEngine) -> None:
    engine.device_support = toolkit(host=PrivateEngine(state).host)
    assert {one["why"] for one in tfimg("clean", "images", "--yes", "--json").succeeded().json} == {None}
    assert engine.names.keys() == NAMES.keys() - OURS - SHARED
    assert engine.cache_bytes == 0
    assert (state / "layers").exists()


def test_a_private_engine_that_runs_stays_with_the_next_step(
    tfimg: CliRunner, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = PrivateEngine(state).folder
    folder.mkdir()
    monkeypatch.setattr(PrivateEngine, "pid", lambda _engine: 1)
    (stayed,) = tfimg("clean", "engine", "--yes", "--json").succeeded().json
    assert "engine down" in stayed["why"]
    assert not stayed["removed"]
    assert folder.exists()
    monkeypatch.setattr(PrivateEngine, "pid", lambda _engine: None)
    tfimg("clean", "engine", "--yes").succeeded()
    assert not folder.exists()


def test_an_image_that_a_container_uses_stays_with_the_engines_reason(
    tfimg: CliRunner, state: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise EngineError(f"conflict: {name} is in use", next_step="")

    monkeypatch.setattr(engine, "remove", refuse)
    stayed = {one["name"]: one["why"] for one in tfimg("clean", "images", "--yes", "--json").succeeded().json}
    assert stayed.keys() >= OURS
    assert "is in use" in stayed["tfimg/tensorflow:2.15"]


def test_a_link_in_place_of_a_part_is_removed_and_its_target_stays(
    tfimg: CliRunner, state: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (state / "wheels").symlink_to(tmp_path / "data")
    tfimg("clean", "wheels", "--yes").succeeded()
    assert (tmp_path / "data").exists()
    assert not (state / "wheels").is_symlink()
