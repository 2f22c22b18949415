"""Candidates: the next build removes that of a killed one, and none of a build that lives, whatever killed it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.memory_engine import FakeEngine, stored_image
from tfimg.core.errors import EngineError, EngineUnavailable
from tfimg.core.events import Event, InfoEvent, ignore
from tfimg.engine.machine import OUTLIVED_SECONDS, open_candidate

IDENTIFIER = "2.15.1-cpu-py3.11"

KILLED = """\
import subprocess, sys, time
from pathlib import Path
from support.memory_engine import FakeEngine
from tfimg.core.events import ignore
from tfimg.engine.machine import open_candidate

with open_candidate(Path(sys.argv[1]), "2.15.1-cpu-py3.11", FakeEngine(), sys.argv[2], ignore) as name:
    print(name, subprocess.Popen(["sleep", "60"], start_new_session=True, stdout=2).pid, flush=True)
    time.sleep(60)
"""


class Build:
    """A process that has a candidate, and has started another program."""

    def __init__(self, locks: Path, host: str = "here") -> None:
        environ = {"PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]}
        command = [sys.executable, "-c", KILLED, str(locks), host]
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
        assert self._child.stdout is not None
        self.name, started = self._child.stdout.readline().split()
        self._started = int(started)

    def kill(self) -> None:
        self._child.send_signal(signal.SIGKILL)
        self._child.wait()

    def end(self) -> None:
        self.kill()
        assert self._child.stdout is not None
        self._child.stdout.close()
        os.kill(self._started, signal.SIGKILL)


def build(locks: Path, engine: FakeEngine, host: str = "here") -> list[Event]:
    """Build as far as the candidate; return the events."""
    events: list[Event] = []
    with open_candidate(locks, IDENTIFIER, engine, host, events.append) as name:
        engine.names[name] = stored_image()
    assert name not in engine.names
    return events


def list_locks(locks: Path) -> list[str]:
    return [file.name for file in locks.glob("*/*")]


def test_a_candidate_of_a_killed_build_is_removed_and_one_of_a_living_build_stays(tmp_path: Path) -> None:
    """The program that the killed process has started lives on, as buildx does."""
    dead, alive = Build(tmp_path), Build(tmp_path)
    try:
        dead.kill()
        foreign = "tfimg/candidate:of-another-user"
        engine = FakeEngine(names={name: stored_image() for name in (dead.name, alive.name, foreign)})
        assert build(tmp_path, engine) == [InfoEvent(text=f"Removed what a killed build left behind: {dead.name}")]
        assert set(engine.names) == {alive.name, foreign}
        assert build(tmp_path, engine) == []
        alive.kill()
        assert [type(event) for event in build(tmp_path, engine)] == [InfoEvent]
        assert set(engine.names) == {foreign}
        assert list_locks(tmp_path) == []
    finally:
        dead.end()
        alive.end()


def test_a_candidate_in_another_engine_waits_for_that_engine(tmp_path: Path) -> None:
    killed = Build(tmp_path, "far")
    killed.end()
    near, far = FakeEngine(names={killed.name: stored_image()}), FakeEngine(names={killed.name: stored_image()})
    assert build(tmp_path, near) == []
    assert len(build(tmp_path, far, "far")) == 1
    assert (list(near.names), far.names) == ([killed.name], {})


def test_an_image_that_is_named_after_the_kill_is_removed_too(tmp_path: Path) -> None:
    killed, engine = Build(tmp_path), FakeEngine()
    killed.end()
    assert build(tmp_path, engine) == []
    engine.names[killed.name] = stored_image()
    assert len(build(tmp_path, engine)) == 1
    assert engine.names == {}


def test_a_killed_build_that_never_named_its_image_is_forgotten(tmp_path: Path) -> None:
    Build(tmp_path).end()
    (lock,) = tmp_path.glob("*/*")
    for age, left in ((OUTLIVED_SECONDS - 60, [lock]), (OUTLIVED_SECONDS + 60, [])):
        os.utime(lock, (time.time() - age,) * 2)
        assert build(tmp_path, FakeEngine()) == []
        assert [*tmp_path.glob("*/*")] == left


class Refusing(FakeEngine):
    """An engine that removes nothing that has containers."""

    def remove_with_containers(self, name: str) -> None:  # noqa: ARG002
        raise EngineError("No.", next_step="")


def test_what_cannot_be_removed_is_tried_again(tmp_path: Path) -> None:
    killed = Build(tmp_path)
    killed.end()
    assert build(tmp_path, Refusing(names={killed.name: stored_image()})) == []
    assert len(build(tmp_path, FakeEngine(names={killed.name: stored_image()}))) == 1


class Lost(FakeEngine):
    """An engine that is lost during the build."""

    def remove(self, name: str) -> None:  # noqa: ARG002
        raise EngineUnavailable("gone", next_step="")


def test_a_candidate_that_a_lost_engine_keeps_is_removed_later(tmp_path: Path) -> None:
    with open_candidate(tmp_path, "x", Lost(), "here", ignore) as name:
        pass
    engine = FakeEngine(names={name: stored_image()})
    assert len(build(tmp_path, engine)) == 1
    assert engine.names == {}


def test_builds_that_end_leave_no_locks(tmp_path: Path) -> None:
    engine = FakeEngine()
    build(tmp_path, engine)
    with pytest.raises(ZeroDivisionError), open_candidate(tmp_path, "x", engine, "here", ignore):
        raise ZeroDivisionError
    assert (list_locks(tmp_path), engine.names) == ([], {})
