"""The candidate of a single build: the next build removes that of a killed one, and none of a build that lives."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.memory_engine import FakeEngine, stored_image
from tfimg.build.single import open_candidate
from tfimg.core.errors import EngineError, EngineUnavailable
from tfimg.core.events import Event, Message, ignore

KILLED = """\
import sys, time
from pathlib import Path
from support.memory_engine import FakeEngine
from tfimg.build.single import open_candidate
from tfimg.core.events import ignore

with open_candidate(Path(sys.argv[1]), "2.15.1-cpu-py3.11", FakeEngine(), sys.argv[2], ignore) as name:
    print(name, flush=True)
    time.sleep(60)
"""


def start_build(state: Path, host: str = "here") -> tuple[subprocess.Popen[str], str]:
    """Start a process that has a candidate; return it and the candidate's name."""
    environ = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", KILLED, str(state), host]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def kill(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate()


def build(state: Path, engine: FakeEngine, host: str = "here") -> list[Event]:
    """Build as far as the candidate; return the events."""
    events: list[Event] = []
    with open_candidate(state, "2.15.1-cpu-py3.11", engine, host, events.append) as name:
        engine.names[name] = stored_image()
        engine.remove(name)
    return events


def test_a_candidate_of_a_killed_build_is_removed_and_one_of_a_living_build_stays(tmp_path: Path) -> None:
    (dead, stale), (alive, used) = start_build(tmp_path), start_build(tmp_path)
    try:
        kill(dead)
        foreign = "tfimg/candidate:of-another-user"
        engine = FakeEngine(names={name: stored_image() for name in (stale, used, foreign)})
        assert build(tmp_path, engine) == [Message(text=f"Removed what a killed build left behind: {stale}")]
        assert set(engine.names) == {used, foreign}
        assert build(tmp_path, engine) == []
    finally:
        kill(alive)
    assert [type(event) for event in build(tmp_path, engine)] == [Message]
    assert set(engine.names) == {foreign}


def test_a_candidate_in_another_engine_waits_for_that_engine(tmp_path: Path) -> None:
    child, stale = start_build(tmp_path, "far")
    kill(child)
    near, far = FakeEngine(), FakeEngine(names={stale: stored_image()})
    assert build(tmp_path, near) == []
    assert build(tmp_path, near) == []
    assert len(build(tmp_path, far, "far")) == 1
    assert far.names == {}


class Refusing(FakeEngine):
    """An engine that removes nothing."""

    def remove_with_containers(self, name: str) -> None:  # noqa: ARG002
        raise EngineError("No.", next_step="")


def test_what_cannot_be_removed_is_tried_again(tmp_path: Path) -> None:
    child, stale = start_build(tmp_path)
    kill(child)
    assert build(tmp_path, Refusing(names={stale: stored_image()})) == []
    assert len(build(tmp_path, FakeEngine(names={stale: stored_image()}))) == 1


class Lost(FakeEngine):
    """An engine that is lost during the build."""

    def find_digest(self, name: str) -> str | None:  # noqa: ARG002
        raise EngineUnavailable("gone", next_step="")


def test_a_candidate_that_a_lost_engine_keeps_is_removed_later(tmp_path: Path) -> None:
    with open_candidate(tmp_path, "x", Lost(), "here", ignore) as name:
        pass
    engine = FakeEngine(names={name: stored_image()})
    assert len(build(tmp_path, engine)) == 1
    assert engine.names == {}


def test_finished_builds_leave_no_journals(tmp_path: Path) -> None:
    for _ in range(3):
        build(tmp_path, FakeEngine())
        with pytest.raises(ZeroDivisionError), open_candidate(tmp_path, "x", FakeEngine(), "here", ignore):
            raise ZeroDivisionError
    assert len([*(tmp_path / "builds").glob("*.jsonl")]) == 1, "the last one's, which the next build removes"
