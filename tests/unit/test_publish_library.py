"""A program publishes, rolls back and reads the history without the command line."""

from __future__ import annotations

from pathlib import Path

from support.environment import TestEnvironment
from support.pushing_engine import PushingEngine
from support.signing import OURS
from tfimg.attestations.policy import Policy
from tfimg.attestations.verify import verify
from tfimg.core.events import Event, StepEvent
from tfimg.core.paths import Workspace
from tfimg.project.project import Project
from tfimg.publish.history import tag_history
from tfimg.publish.publisher import Publisher
from tfimg.publish.repository import SignedRepository
from tfimg.publish.retract import roll_back
from tfimg.recipe.tags import find_platform_tag

CPU, ARM = "2.15.1-cpu-py3.11", "2.15.1-cpu-py3.11-arm64"
TAGS = (CPU, "2.15.1", "2.15", "2.15-py3.11")


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
    roll_back(repository, "2.15", to=builds[:1], reason="wrong cuDNN")
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


def test_both_platforms_get_an_index_of_which_each_image_has_its_own_attestations(
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
    assert {found.digest for tag in TAGS if (found := registry.find(tag))} == {amd64}, "one platform alone: a manifest"
    arm64 = engine.has(ARM)
    publisher.publish(specs, repository, on_event=notes.append).raise_for_failures()
    for tag in TAGS:
        index = registry.find(tag)
        assert index is not None
        assert [(one.platform.architecture, one.digest) for one in index.index.manifests] == [
            ("amd64", amd64), ("arm64", arm64),
        ], tag  # fmt: skip
        assert list(registry.list_referrers(index.digest)) == [], "it has no attestations of its own"
        own = registry.find(find_platform_tag(tag, "linux/arm64"))
        assert own is not None
        assert own.digest == arm64
    levels = {
        platform: verify(registry, digest, repository.trusted, Policy(), now=repository.now(), tag=tag).outcome
        for platform, digest, tag in (("amd64", amd64, "2.15.1"), ("arm64", arm64, "2.15.1-arm64"))
    }
    assert {platform: outcome.proven_level for platform, outcome in levels.items()} == {
        "amd64": "validated", "arm64": "linked",
    }  # fmt: skip
    sent = len(registry.sent)
    again = publisher.publish(specs, repository)
    assert {image.status for image in again.images} == {"unchanged"}
    assert {decision.verdict for image in again.images for decision in image.decisions} == {"stay"}
    assert registry.sent[sent:] == [], "nothing is sent again"
