"""A program publishes, rolls back and reads the history without the command line."""

from __future__ import annotations

from pathlib import Path

from support.environment import TestEnvironment
from support.pushing_engine import PushingEngine
from support.signing import OURS
from tfimg.core.events import Event, StepEvent
from tfimg.core.paths import Workspace
from tfimg.project.project import Project
from tfimg.publish.history import tag_history
from tfimg.publish.publisher import Publisher
from tfimg.publish.repository import SignedRepository
from tfimg.publish.retract import roll_back

CPU = "2.15.1-cpu-py3.11"


def test_a_program_publishes_rolls_back_and_reads_the_history(workspace: Workspace, tmp_path: Path) -> None:
    engine, events = PushingEngine(workspace), list[Event]()
    project = Project(services=TestEnvironment(environ={"TFIMG_STATE": str(tmp_path)}, docker=engine))
    repository = SignedRepository(registry=engine.registry, key=OURS, state=tmp_path)
    publisher = Publisher(project=project, engine=engine)
    builds = []
    for age in (5, 0):
        builds.append(engine.has(CPU, age=age))
        publication = publisher.publish([project.spec(CPU)], repository, on_event=events.append)
        publication.raise_for_failures()
        assert [image.digest for image in publication.images] == builds[-1:]
    roll_back(repository, "2.15", reason="wrong cuDNN")
    history = tag_history(engine.registry, "2.15", repository.trusted, limit=9)
    old, new = builds
    assert [(entry.kind, entry.digest) for entry in history] == [
        ("promotion", old), ("withdrawal", new), ("promotion", new), ("promotion", old),
    ]  # fmt: skip
    again = SignedRepository(registry=engine.registry, key=OURS, state=tmp_path, reinstate=True)
    publisher.publish([project.spec(CPU)], again).raise_for_failures()
    history = tag_history(engine.registry, "2.15", repository.trusted, limit=9)
    assert [(entry.kind, entry.digest, entry.in_force) for entry in history] == [
        ("promotion", new, None), ("withdrawal", new, False), ("promotion", old, None), ("promotion", new, None),
        ("promotion", old, None),
    ]  # fmt: skip
    done = [event.step for event in events if isinstance(event, StepEvent) and event.state == "done"]
    assert f"{CPU}: validate by digest" in done
