"""Sending an image from an engine: stages as events, what the engine receives and validates."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.manifests import Slept
from support.messages import exactly
from support.published_images import EPOCH
from support.pushing_engine import PushingEngine
from support.signing import OURS
from support.suite_events import done_event, end, make_output, start, suite
from support.world import World
from tfimg.attestations.attach import collect_envelopes, verify_signatures
from tfimg.attestations.envelopes import PROVENANCE, format_time
from tfimg.core.errors import ImageMissing, Interrupted, NetworkError, ResolutionError, TamperedError, ValidationFailed
from tfimg.core.events import Event, InfoEvent, ProgressEvent, StepEvent, WarningEvent, ignore
from tfimg.core.levels import Level
from tfimg.core.paths import Workspace
from tfimg.core.retry import ATTEMPTS, RetryPolicy
from tfimg.project.validator import Validator
from tfimg.publish.send import EngineSteps, PublishJob, stage

PROGRESS = ProgressEvent(step="", what="layer", current=1, total=2)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (Interrupted("It was interrupted.", next_step=""), "interrupted"),
        (NetworkError("The registry is gone.", next_step="Try again."), "failed"),
        (SystemExit(), "failed"),
    ],
)
def test_a_stage_reports_how_it_ended(error: BaseException, state: str) -> None:
    events: list[Event] = []
    with pytest.raises(type(error)), stage(events.append, "push"):
        raise error
    assert [(event.step, event.state) for event in events if isinstance(event, StepEvent)] == [
        ("push", "started"), ("push", state),
    ]  # fmt: skip


def test_a_stage_reports_progress_at_most_once_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    for interval, count in ((30.0, 1), (0.0, 2)):
        monkeypatch.setattr("tfimg.publish.send.MIN_INTERVAL", interval)
        events: list[Event] = []
        with stage(events.append, "push") as on_event:
            for event in (PROGRESS, InfoEvent(text="one"), PROGRESS, InfoEvent(text="two")):
                on_event(event)
        assert [event.step for event in events if isinstance(event, ProgressEvent)] == ["push"] * count
        assert [event.text for event in events if isinstance(event, InfoEvent)] == ["one", "two"]
        assert [event.state for event in events if isinstance(event, StepEvent)] == ["started", "done"]


CPU = "2.15.1-cpu-py3.11"
NAME = f"tfimg/tensorflow:{CPU}"
OTHER = f"sha256:{'2' * 64}"


class ForgettingEngine(PushingEngine):
    """Loses every image that it pulls."""

    def pull(self, name: str, on_event: Callable[[ProgressEvent], None]) -> str:
        digest = super().pull(name, on_event)
        del self.names[name]
        return digest


class ChangedEngine(PushingEngine):
    """Receives another image than it sent."""

    def pull(self, name: str, on_event: Callable[[ProgressEvent], None]) -> str:
        digest = super().pull(name, on_event)
        self.names[name] = replace(self.names[name], digest=OTHER)
        return digest


def push_and_validate(world: World, sleep: Callable[[float], object] = lambda _: None, **labels: str) -> str:
    """Push an image of the engine, validate it by its digest in the registry and attach its attestations."""
    engine = world.engine
    engine.has(CPU)
    engine.names[NAME] = replace(engine.names[NAME], labels={**engine.names[NAME].labels, **labels})
    (image,) = engine.list_images()
    steps = EngineSteps(
        validator=Validator(project=world.project, engine=engine),
        repository=world.repository(),
        specs={CPU: world.project.spec(CPU)},
        images={CPU: image},
        retries=RetryPolicy(sleep=sleep),
    )
    job = PublishJob(
        identifier=CPU, tensorflow="2.15.1", name=NAME, digest=image.digest, aliases=(), level=Level.VALIDATED
    )
    digest = steps.push(job, "candidate", ignore)
    report, _ = steps.validate(job, digest, "candidate", ignore)
    steps.attach_attestations(job, digest, report)
    return digest


def pushed_image(engine: PushingEngine) -> tuple[str, str]:
    """Return the name of the pushed image by its digest, and its digest in the engine."""
    (candidate,) = engine.registry.manifests.values()
    return f"{engine.registry.repository}@{candidate.digest}", candidate.document["config"]["digest"]


def test_an_image_is_validated_under_a_temporary_name(world: World) -> None:
    push_and_validate(world)
    (suite_run,) = [request for request in world.engine.ran if "--contents-only" not in request.command]
    assert suite_run.image == "tfimg/candidate:candidate"
    assert set(world.engine.names) == {NAME}


def test_provenance_has_what_the_labels_of_the_image_name(world: World) -> None:
    base = "org.opencontainers.image.base"
    labels = {
        f"{base}.name": "docker.io/library/python:3.11", f"{base}.digest": f"sha256:{'ab' * 32}",
        "tfimg.recipe": f"sha256:{'cd' * 32}", "tfimg.version": "9.9", "org.opencontainers.image.revision": "c0ffee",
    }  # fmt: skip
    digest = push_and_validate(world, **labels)
    attestations = collect_envelopes(world.registry, digest)
    statements = verify_signatures(attestations, [OURS.verifying_key], image="x", digest=digest)
    (provenance,) = [one.predicate for one in statements if one.predicate_type == PROVENANCE]
    definition = provenance["buildDefinition"]
    assert [one for one in definition["resolvedDependencies"] if not one["name"].startswith("lock/")] == [
        {"name": "base", "uri": "docker.io/library/python:3.11", "digest": {"sha256": "ab" * 32}},
        {"name": "recipe", "digest": {"sha256": "cd" * 32}},
        {"name": "tfimg", "digest": {"gitCommit": "c0ffee"}},
    ]
    assert definition["internalParameters"] == {"engine": "Docker 26.1.5", "tfimg": "9.9"}
    assert provenance["runDetails"]["metadata"]["finishedOn"] == format_time(EPOCH)


def test_a_pulled_image_that_the_engine_loses_is_pulled_again(workspace: Workspace, tmp_path: Path) -> None:
    engine, slept = ForgettingEngine(workspace), Slept()
    world = World(tmp_path, workspace, engine=engine)
    with pytest.raises(ImageMissing) as caught:
        push_and_validate(world, slept)
    reference, _ = pushed_image(engine)
    assert str(caught.value) == f"{reference} was pulled, but the engine does not have it any more. Run it again."
    assert (engine.did.count("pull"), len(slept)) == (ATTEMPTS, ATTEMPTS - 1)


def test_another_image_than_the_one_that_was_pushed_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    engine, slept = ChangedEngine(workspace), Slept()
    world = World(tmp_path, workspace, engine=engine)
    with pytest.raises(TamperedError) as caught:
        push_and_validate(world, slept)
    reference, pushed = pushed_image(engine)
    assert str(caught.value) == (
        f"{reference} is {OTHER} in the engine, but {NAME}, which was pushed, is {pushed}. Find out what changes "
        "images between the engine and the registry."
    )
    assert slept == [], "it is not pulled again"
    assert set(engine.names) == {NAME}, "the names of the pulled image are removed"


def test_an_image_that_does_not_pass_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    output = make_output(suite("a"), start("a"), end("a", "failed", "1 is not 2"), done_event(1), status=1)
    with pytest.raises(ValidationFailed) as caught:
        push_and_validate(World(tmp_path, workspace, engine=PushingEngine(workspace, output)))
    assert str(caught.value) == (
        f"{CPU} was pulled by digest, and 1 of 1 checks did not pass. a failed: 1 is not 2. No tag points to it. "
        f"`tfimg validate {NAME} --report FILE` writes the whole report."
    )


def test_an_engine_without_the_images_is_an_error(world: World) -> None:
    message = (
        "The engine has none of these images under tfimg/tensorflow. Build them with `tfimg build`, or name the "
        "repository of their tags with --from."
    )
    with pytest.raises(ResolutionError, match=exactly(message)):
        world.publish(CPU)
    world.engine.has(CPU)
    world.engine.names[f"team/tf:{CPU}"] = world.engine.names.pop(NAME)
    message = (
        "The engine has none of these images under tfimg/tensorflow. It has some under team/tf: name one of these with "
        "--from."
    )
    with pytest.raises(ResolutionError, match=exactly(message)):
        world.publish(CPU)


@pytest.mark.parametrize(("count", "more"), [(1, ""), (10, ""), (12, " and 2 more")])
def test_images_that_are_not_built_are_reported(count: int, more: str, world: World) -> None:
    world.engine.has(CPU)
    missing = [spec.identifier for spec in world.project.specs if spec.identifier != CPU][:count]
    events: list[Event] = []
    world.publish(CPU, *missing, on_event=events.append)
    listed = ", ".join(missing[:10])
    assert [event for event in events if isinstance(event, WarningEvent)] == [
        WarningEvent(text=f"Not published, because not built here: {listed}{more}")
    ]
