"""A program publishes, rolls back and reads the history without the command line."""

from __future__ import annotations

from pathlib import Path

from support.environment import TestEnvironment
from support.pushing_engine import PushingEngine
from support.signing import OURS
from tfimg.core.events import Event, Note, StepEvent
from tfimg.core.paths import Workspace
from tfimg.evidence.policy import Policy
from tfimg.evidence.verify import verify
from tfimg.project.project import Project
from tfimg.publish.history import tag_history
from tfimg.publish.publisher import Publisher
from tfimg.publish.repository import SignedRepository
from tfimg.publish.retract import roll_back

CPU, ARM = "2.15.1-cpu-py3.11", "2.15.1-cpu-py3.11-arm64"


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


def test_both_platforms_get_an_index_of_which_each_image_has_its_own_evidence(
    workspace: Workspace, tmp_path: Path
) -> None:
    engine, notes = PushingEngine(workspace), list[Event]()
    engine.emulates = True
    project = Project(services=TestEnvironment(environ={"TFIMG_STATE": str(tmp_path)}, docker=engine))
    repository = SignedRepository(registry=engine.registry, key=OURS, state=tmp_path)
    publisher = Publisher(project=project, engine=engine, report_missing=False)
    specs, registry = [project.spec(CPU), project.spec(ARM)], engine.registry
    amd64 = engine.has(CPU, age=5)
    publisher.publish(specs, repository).raise_for_failures()
    assert not [tag for tag in registry.list_tags() if "multi" in tag], "one platform alone needs none"
    arm64 = engine.has(ARM)
    publisher.publish(specs, repository, on_event=notes.append).raise_for_failures()
    index = registry.find(f"{CPU}-multi")
    assert index is not None
    assert [(one.platform.architecture, one.digest) for one in index.index.manifests] == [
        ("amd64", amd64), ("arm64", arm64),
    ]  # fmt: skip
    assert {tag for tag in registry.list_tags() if "multi" in tag} == {
        f"{CPU}-multi", "2.15.1-multi", "2.15-multi", "2.15-py3.11-multi",
    }  # fmt: skip
    assert Note(text="2.15.1-multi is the index of linux/arm64 and linux/amd64") in notes
    levels = {
        platform: verify(registry, digest, repository.trusted, Policy(), now=repository.now(), tag=tag).outcome
        for platform, digest, tag in (("amd64", amd64, "2.15.1"), ("arm64", arm64, "2.15.1-arm64"))
    }
    assert {platform: outcome.proven_level for platform, outcome in levels.items()} == {
        "amd64": "validated", "arm64": "linked",
    }  # fmt: skip
    assert list(registry.list_referrers(index.digest)) == [], "it has no evidence of its own"


def test_an_index_follows_its_tags(workspace: Workspace, tmp_path: Path) -> None:
    engine = PushingEngine(workspace)
    engine.emulates = True
    project = Project(services=TestEnvironment(environ={"TFIMG_STATE": str(tmp_path)}, docker=engine))
    repository = SignedRepository(registry=engine.registry, key=OURS, state=tmp_path)
    publisher = Publisher(project=project, engine=engine, report_missing=False)
    arm64, builds = engine.has(ARM), []
    for age in (5, 0):
        builds.append(engine.has(CPU, age=age))
        publisher.publish([project.spec(CPU), project.spec(ARM)], repository).raise_for_failures()
        found = engine.registry.find("2.15-multi")
        assert found is not None
        assert [one.digest for one in found.index.manifests] == [builds[-1], arm64]
    roll_back(repository, "2.15", reason="wrong")
    found = engine.registry.find("2.15-multi")
    assert found is not None
    assert [one.digest for one in found.index.manifests] == [builds[0], arm64]
