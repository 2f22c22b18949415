"""Rollback and withdrawal: only what trusted keys signed counts, and a killed command is finished by the same one."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from datetime import timedelta
from pathlib import Path

import pytest

from support.memory_registry import MemoryRegistry
from support.messages import exactly
from support.published_images import Call, Killed, Line, Mortal, put_image
from support.publisher import CPU, GPU, NOW, Machine, chain
from support.reports import GREEN
from support.signing import OURS, THEIRS
from tfimg.core.errors import NotInRegistry, PolicyViolation, TagConflict, UsageError, WithdrawnError
from tfimg.core.events import Event, Message
from tfimg.evidence.attach import attach
from tfimg.evidence.policy import Policy, TagPromise
from tfimg.evidence.promotions import Promotion, TagMove, make_predicate_statement, read_image_statements
from tfimg.evidence.results import RunContext, make_test_result
from tfimg.evidence.statement import Subject
from tfimg.evidence.verify import verify
from tfimg.publish.retract import roll_back, withdraw
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.protocol import Registry

KEYS = [OURS.verifying_key]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "here")


def publish_builds(machine: Machine, registry: Registry, *ages: int) -> list[str]:
    """Publish builds of the image, each so many hours old; returns their digests."""
    digests = []
    for age in ages:
        machine.ages[CPU] = age
        (image,) = machine.publish(registry).images
        assert image.digest
        digests.append(image.digest)
    return digests


def forge(registry: Registry, digest: str, previous: str, *, tag: str = "2.15") -> None:
    """Attach a promotion that an attacker signed, with push rights and another key."""
    promotion = Promotion(
        repository=registry.repository, tags=(TagMove(tag=tag, previous=previous),), time=NOW + timedelta(days=1),
        publisher="me", reason="publish", run="x", tfimg="0.0",
    )  # fmt: skip
    subject = Subject(name=registry.repository, digest=digest)
    attach(registry, digest, [make_predicate_statement(subject, promotion)], key=THEIRS)


def proven_level(registry: Registry, reference: str) -> str:
    return verify(registry, reference, KEYS, Policy(), now=NOW).digest


def test_a_rollback_promotes_the_image_before_and_withdraws_the_present_one(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    machine.rollback(registry)
    assert (registry.named["2.15"], registry.named["2.15.1"]) == (old, new)
    assert chain(registry) == [(old, True), (new, True), (old, True)]
    assert proven_level(registry, "2.15") == old
    assert proven_level(registry, "2.15.1") == new, "it is withdrawn for one tag"
    registry.put("2.15", registry.manifests[new])
    with pytest.raises(WithdrawnError, match=rf"was withdrawn as 2\.15 .* by me: rolled back to {old}"):
        proven_level(registry, "2.15")


def test_a_forged_history_does_not_steer_a_rollback(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    evil = Machine(machine.folder.parent / "evil", key=THEIRS)
    (image,) = evil.publish(registry, "2.15.1-cpu-py3.10").images
    assert image.digest
    forge(registry, new, image.digest)
    assert machine.rollback(registry).moves[0].after == old
    assert registry.named["2.15"] == old


def test_forged_statements_do_not_block_publishing_or_rollback(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 1)
    forge(registry, new, new)
    forge(registry, old, f"sha256:{'0' * 64}")
    machine.rollback(registry)
    assert registry.named["2.15"] == old
    (newer,) = publish_builds(machine, registry, 0)
    assert registry.named["2.15"] == newer


def test_what_was_rolled_back_is_promoted_again_only_when_it_is_reinstated(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    machine.rollback(registry)
    publish_builds(machine, registry, 0)
    assert registry.named["2.15"] == old
    says = (
        rf"^{registry.repository}@{new} was withdrawn as 2\.15 at \S+ by me: rolled back to {old}\. Name another "
        r"image, or cancel the withdrawal with --reinstate\.$"
    )
    with pytest.raises(WithdrawnError, match=says):
        machine.rollback(registry, to=new[:19])
    machine.publish(registry, reinstate=True)
    assert registry.named["2.15"] == proven_level(registry, "2.15") == new
    machine.rollback(registry)
    machine.rollback(registry, to=new, reinstate=True)
    assert registry.named["2.15"] == proven_level(registry, "2.15") == new
    assert [digest for digest, _ in chain(registry)] == [new, old, new, old, new, old]


def test_each_further_rollback_goes_one_image_back_and_never_to_a_withdrawn_one(machine: Machine) -> None:
    registry = MemoryRegistry()
    first, second, _ = publish_builds(machine, registry, 9, 5, 0)
    for expected in (second, first):
        machine.rollback(registry)
        assert registry.named["2.15"] == expected
    third = registry.named["2.15.1"]
    says = (
        f"{registry.repository}:2.15 has no earlier image to return to: {second} was withdrawn; {third} was withdrawn. "
        "Publish another image under the tag, or name one with --to DIGEST."
    )
    with pytest.raises(PolicyViolation, match=exactly(says)):
        machine.rollback(registry)


def test_a_rollback_demands_the_level_that_the_tag_promises(machine: Machine) -> None:
    registry = MemoryRegistry()
    machine.policy = Policy(promises=(TagPromise(tags="*-gpu", level="linked", reason="There is no GPU here."),))
    digests = []
    for age in (5, 0):
        machine.ages[GPU] = age
        digests.append(machine.publish(registry, GPU).images[0].digest)
    machine.policy = Policy()
    says = r"lacks the evidence that the tag promises \(\S+ has level linked, but level validated is required"
    with pytest.raises(PolicyViolation, match=says):
        machine.rollback(registry, "2.15-gpu")
    with pytest.raises(PolicyViolation, match="has level linked, but level validated is required"):
        machine.rollback(registry, "2.15-gpu", to=digests[0])
    assert registry.named["2.15-gpu"] == digests[1]


def test_a_rollback_without_an_earlier_image_is_an_error(machine: Machine) -> None:
    registry = MemoryRegistry()
    publish_builds(machine, registry, 0)
    (present,) = publish_builds(machine, registry, 0)
    says = (
        f"No signed promotion says what {registry.repository}:2.15 pointed to before {present}. Name an image with "
        "--to DIGEST; `tfimg history` lists the known ones."
    )
    with pytest.raises(UsageError, match=exactly(says)):
        machine.rollback(registry)
    with pytest.raises(NotInRegistry):
        machine.rollback(registry, "9.99")
    for to in ("ff", present):
        says = (
            f"--to {to}: no image matches in the signed history of 2.15, besides the present image. `tfimg history "
            f"{registry.repository} 2.15` lists them; name the whole digest."
        )
        with pytest.raises(UsageError, match=exactly(says)):
            machine.rollback(registry, to=to)


def test_an_earlier_image_without_a_promotion_is_not_returned_to(machine: Machine) -> None:
    registry = MemoryRegistry()
    earlier = put_image(registry, CPU, age=5, tag="2.15").digest
    subject, ran = Subject(name=registry.repository, digest=earlier), RunContext(host="h", engine="e", version="0")
    attach(registry, earlier, [make_test_result(GREEN, subject=subject, ran=ran)], key=OURS)
    publish_builds(machine, registry, 0)
    message = (
        f"{registry.repository}:2.15 has no earlier image to return to: {earlier} has no signed promotion for this "
        "tag. Publish another image under the tag, or name one with --to DIGEST."
    )
    with pytest.raises(PolicyViolation, match=exactly(message)):
        machine.rollback(registry)


def test_a_digest_that_several_images_have_in_common_is_an_error(machine: Machine) -> None:
    registry = MemoryRegistry()
    publish_builds(machine, registry, 9, 5, 0)
    message = (
        "--to sha256:: 2 images match in the signed history of 2.15, besides the present image. `tfimg history "
        f"{registry.repository} 2.15` lists them; name the whole digest."
    )
    with pytest.raises(UsageError, match=exactly(message)):
        machine.rollback(registry, to="sha256:")


def test_the_events_name_the_killed_run_that_is_finished(machine: Machine) -> None:
    registry, events = MemoryRegistry(), list[Event]()
    _, new = publish_builds(machine, registry, 5, 0)
    run = Mortal(registry, 5, "note")  # before the tag moves
    machine.on_note = run.note
    with suppress(Killed):
        machine.rollback(run.line)
    machine.on_note = lambda: None
    withdraw(machine.repository(registry), new, tags=("1.0",), reason="it leaks", on_event=events.append)
    roll_back(machine.repository(registry), "2.15", on_event=events.append)
    first, second = [event.text for event in events if isinstance(event, Message)]
    assert first == "Not finished, because it was killed: rollback 2.15. Run it again."
    assert re.fullmatch(r"Finishing the run [0-9a-f]{8}, which was killed\.", second)


def test_a_killed_withdrawal_of_one_tag_is_not_that_of_another(machine: Machine) -> None:
    registry, events = MemoryRegistry(), list[Event]()
    old, new = publish_builds(machine, registry, 5, 0)
    kill_at(("put", "2.15"), lambda line: machine.withdraw(line, new, "2.15"), registry)
    withdraw(machine.repository(registry), new, tags=("2.15.1",), reason="it leaks", on_event=events.append)
    assert events == [Message(text=f"Not finished, because it was killed: withdraw {new} 2.15. Run it again.")]
    assert (registry.named["2.15"], registry.named["2.15.1"]) == (new, old)


def test_a_retraction_leaves_a_killed_publication_to_the_next_one(machine: Machine) -> None:
    registry = MemoryRegistry()
    publish_builds(machine, registry, 5, 1)
    machine.ages[CPU] = 0
    with suppress(Killed), machine.session(registry) as session:
        raise Killed
    machine.rollback(registry)
    with machine.session(registry) as continued:
        assert continued.run.path == session.run.path


def test_a_digest_that_the_registry_does_not_have_is_not_withdrawn(machine: Machine) -> None:
    registry = MemoryRegistry()
    says = f"The registry has no {registry.repository}@sha256:{'0' * 64}. Check the name and the digest."
    with pytest.raises(NotInRegistry, match=exactly(says)):
        machine.withdraw(registry, f"sha256:{'0' * 64}")


def test_a_tag_that_an_attacker_moved_returns_to_a_digest_that_was_promoted_to_it(machine: Machine) -> None:
    registry = MemoryRegistry()
    (ours,) = publish_builds(machine, registry, 0)
    theirs = put_image(registry, "2.10.0-cpu-py3.7", tag="2.15").digest
    with pytest.raises(UsageError, match="--to DIGEST"):
        machine.rollback(registry)
    machine.rollback(registry, to=ours)
    assert registry.named["2.15"] == ours
    assert chain(registry) == [(ours, True), (theirs, False)]


def test_a_withdrawal_moves_tags_back_and_everyone_refuses_the_digest(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    registry.put("mine", registry.manifests[new])
    done = machine.withdraw(registry, new, reason="it leaks\x1b[2J a token")
    assert {tag: registry.named[tag] for tag in ("2.15", "2.15.1", CPU)} == dict.fromkeys(("2.15", "2.15.1", CPU), old)
    assert done.images[0].unmoved.keys() == {make_build_tag(CPU, new), "mine"}, (
        "a tag that was moved without tfimg is named"
    )
    for reference in (new, make_build_tag(CPU, new)):
        with pytest.raises(WithdrawnError, match=r"was withdrawn at \S+ by me: it leaks a token") as caught:
            proven_level(registry, reference)
        assert f"{registry.repository}@{old}" in caught.value.next_step
    assert proven_level(registry, "2.15") == old
    assert len(read_image_statements(registry, old, KEYS).promotions) == 2, (
        "one promotion for all tags that return to it"
    )


def test_a_withdrawn_digest_is_published_only_when_it_is_reinstated(machine: Machine) -> None:
    registry = MemoryRegistry()
    _, new = publish_builds(machine, registry, 5, 0)
    machine.withdraw(registry, new)
    (image,) = machine.publish(registry).images
    assert isinstance(image.failure, WithdrawnError)
    assert registry.named["2.15"] != new
    (image,) = machine.publish(registry, reinstate=True).images
    assert image.failure is None
    assert proven_level(registry, "2.15") == proven_level(registry, new) == new


def test_an_image_without_an_earlier_one_keeps_its_tags_which_are_refused(machine: Machine) -> None:
    registry = MemoryRegistry()
    (only,) = publish_builds(machine, registry, 0)
    done = machine.withdraw(registry, only)
    assert done.images[0].unmoved.keys() == {make_build_tag(CPU, only), CPU, "2.15.1", "2.15"}
    assert registry.named["2.15"] == only
    with pytest.raises(WithdrawnError):
        proven_level(registry, "2.15")
    assert machine.withdraw(registry, only).images[0].withdrawal is None, "it was withdrawn already"
    assert len(read_image_statements(registry, only, KEYS).withdrawals) == 1


def test_an_image_is_withdrawn_for_some_tags(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    machine.withdraw(registry, new, "2.15.1")
    assert (registry.named["2.15.1"], registry.named["2.15"]) == (old, new)
    assert proven_level(registry, "2.15") == proven_level(registry, new) == new


def test_every_tag_of_a_withdrawal_is_considered(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    registry.put("latest", registry.manifests[new])
    done = machine.withdraw(registry, new, "1.0", "2.15", make_build_tag(CPU, new), "latest")
    assert registry.named["2.15"] == old
    assert done.images[0].unmoved == {
        make_build_tag(CPU, new): "the tag of one build is never moved",
        "latest": f"No signed promotion says what {registry.repository}:latest pointed to before {new}.",
    }


def test_a_retraction_whose_tag_was_moved_meanwhile_stops_and_is_decided_again(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    run = Mortal(registry, 5, "note")  # before the tag moves
    machine.on_note = run.note
    with suppress(Killed):
        machine.rollback(run.line)
    machine.on_note = lambda: None
    theirs = put_image(registry, "2.16.1-cpu-py3.11", tag="2.15")
    with pytest.raises(TagConflict, match=theirs.digest):
        machine.rollback(registry)
    registry.put("2.15", registry.manifests[new])
    machine.rollback(registry)
    assert registry.named["2.15"] == old


ACTS: dict[str, Callable[[Machine, Registry, str], object]] = {
    "rollback": lambda machine, registry, _: machine.rollback(registry),
    "withdraw": lambda machine, registry, digest: machine.withdraw(registry, digest),
}


@pytest.mark.parametrize("when", ["after", "note"])
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_killed_at_any_step_the_same_command_goes_on_and_signs_nothing_twice(
    memory_folder: Path, act: Callable[[Machine, Registry, str], object], when: str
) -> None:
    earlier, first = MemoryRegistry(), Machine(memory_folder / "first")
    old, new = publish_builds(first, earlier, 5, 0)
    for point in range(1, 400):
        shared, machine = deepcopy(earlier), Machine(memory_folder / f"{point}", seconds=99)
        run = Mortal(shared, point, when)
        machine.on_note = run.note
        with suppress(Killed):
            act(machine, run.line, new)
        if not run.dead:
            assert point > 3
            break
        machine.on_note = lambda: None
        act(machine, shared, new)
        assert shared.named["2.15"] == proven_level(shared, "2.15") == old
        assert len(read_image_statements(shared, old, KEYS).promotions) == 2
        assert len(read_image_statements(shared, new, KEYS).withdrawals) == 1
        assert [digest for digest, _ in chain(shared)] == [old, new, old]


def kill_at(call: Call, act: Callable[[Registry], object], registry: MemoryRegistry) -> None:
    """Run a command that is killed directly before a call to the registry."""
    calls: list[Call] = []

    def before(current: Call) -> None:
        calls.append(current)
        if call in calls:
            raise Killed

    with suppress(Killed):
        act(Line(registry, before=before))
    assert call in calls


def test_a_killed_rollback_is_finished_by_the_same_command_and_named_by_another(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    kill_at(("put", "2.15.1"), lambda line: machine.rollback(line, "2.15.1"), registry)
    events: list[object] = []
    roll_back(machine.repository(registry, reinstate=True), "2.15", to=old, on_event=events.append)
    assert events == [Message(text="Not finished, because it was killed: rollback 2.15.1. Run it again.")]
    assert (registry.named["2.15"], registry.named["2.15.1"]) == (old, new)
    with pytest.raises(WithdrawnError):
        proven_level(registry, "2.15.1")
    machine.rollback(registry, "2.15.1")
    assert registry.named["2.15.1"] == proven_level(registry, "2.15.1") == old


def test_a_killed_withdrawal_also_moves_tags_that_were_moved_to_the_image_since(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    machine.rollback(registry, "2.15.1")
    kill_at(("put", "2.15"), lambda line: machine.withdraw(line, new), registry)
    machine.publish(registry, reinstate=True)
    assert registry.named["2.15.1"] == new
    machine.withdraw(registry, new)
    assert {registry.named[tag] for tag in ("2.15", "2.15.1", CPU)} == {old}


def test_a_killed_rollback_does_not_return_to_an_image_that_was_withdrawn_since(machine: Machine) -> None:
    registry = MemoryRegistry()
    oldest, old, _ = publish_builds(machine, registry, 9, 5, 0)
    kill_at(("put", "2.15"), machine.rollback, registry)
    machine.withdraw(registry, old)
    machine.rollback(registry)
    assert registry.named["2.15"] == proven_level(registry, "2.15") == oldest


def test_a_killed_rollback_withdraws_again_if_its_withdrawal_was_cancelled_since(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    kill_at(("put", "2.15"), machine.rollback, registry)
    machine.publish(registry, reinstate=True)
    assert proven_level(registry, "2.15") == new
    machine.rollback(registry)
    machine.publish(registry)
    assert registry.named["2.15"] == old


def test_a_killed_withdrawal_withdraws_again_if_it_was_cancelled_since(machine: Machine) -> None:
    registry = MemoryRegistry()
    (only,) = publish_builds(machine, registry, 0)

    def note() -> None:
        if read_image_statements(registry, only, KEYS).withdrawals:
            raise Killed

    machine.on_note = note
    with suppress(Killed):
        machine.withdraw(registry, only)
    machine.on_note = lambda: None
    machine.publish(registry, reinstate=True)
    assert proven_level(registry, "2.15") == only
    machine.withdraw(registry, only)
    with pytest.raises(WithdrawnError):
        proven_level(registry, "2.15")
