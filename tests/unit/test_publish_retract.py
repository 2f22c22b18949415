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
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import Subject
from tfimg.attestations.policy import Policy, TagPromise
from tfimg.attestations.predicates import RunContext, make_test_result
from tfimg.attestations.promotions import Promotion, TagMove, make_predicate_statement, read_image_statements
from tfimg.attestations.verify import verify
from tfimg.core.errors import NotInRegistry, PolicyViolation, UsageError, WithdrawnError
from tfimg.core.levels import Level
from tfimg.publish.retract import RetractedImage, list_earlier
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.documents import Registry

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
        publisher="me", reason="publish", tfimg="0.0",
    )  # fmt: skip
    subject = Subject(name=registry.repository, digest=digest)
    attach(registry, digest, [make_predicate_statement(subject, promotion)], key=THEIRS)


def proven_level(registry: Registry, reference: str) -> str:
    return verify(registry, reference, KEYS, Policy(), now=NOW).digest


def test_a_rollback_promotes_the_image_before_and_withdraws_the_present_one(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    machine.rollback(registry, old)
    assert (registry.named["2.15"], registry.named["2.15.1"]) == (old, new)
    assert chain(registry) == [(old, True), (new, True), (old, True)]
    assert proven_level(registry, "2.15") == old
    assert proven_level(registry, "2.15.1") == new, "it is withdrawn for one tag"
    registry.put("2.15", registry.manifests[new])
    with pytest.raises(WithdrawnError, match=rf"was withdrawn as 2\.15 .* by me: rolled back to {old}"):
        proven_level(registry, "2.15")


def test_a_forged_history_lists_no_image(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    evil = Machine(machine.folder.parent / "evil", key=THEIRS)
    (image,) = evil.publish(registry, "2.15.1-cpu-py3.10").images
    assert image.digest
    forge(registry, new, image.digest)
    assert [one.digest for one in list_earlier(machine.repository(registry), "2.15", new)] == [old]
    with pytest.raises(UsageError, match="no image matches"):
        machine.rollback(registry, image.digest)


def test_forged_statements_do_not_block_publishing_or_rollback(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 1)
    forge(registry, new, new)
    forge(registry, old, f"sha256:{'0' * 64}")
    machine.rollback(registry, old)
    assert registry.named["2.15"] == old
    (newer,) = publish_builds(machine, registry, 0)
    assert registry.named["2.15"] == newer


def test_what_was_rolled_back_is_promoted_again_only_when_it_is_reinstated(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    machine.rollback(registry, old)
    publish_builds(machine, registry, 0)
    assert registry.named["2.15"] == old
    says = (
        rf"^{registry.repository}@{new} was withdrawn as 2\.15 at \S+ by me: rolled back to {old}\. Name another "
        r"image, or cancel the withdrawal with --reinstate\.$"
    )
    with pytest.raises(WithdrawnError, match=says):
        machine.rollback(registry, new[:19])
    machine.publish(registry, reinstate=True)
    assert registry.named["2.15"] == proven_level(registry, "2.15") == new
    machine.rollback(registry, old)
    machine.rollback(registry, new, reinstate=True)
    assert registry.named["2.15"] == proven_level(registry, "2.15") == new
    assert [digest for digest, _ in chain(registry)] == [new, old, new, old, new, old]


def test_a_rollback_demands_the_level_that_the_tag_promises(machine: Machine) -> None:
    registry = MemoryRegistry()
    machine.policy = Policy(promises=(TagPromise(tags="*-gpu", level=Level.LINKED, reason="There is no GPU here."),))
    digests = []
    for age in (5, 0):
        machine.ages[GPU] = age
        digests.append(machine.publish(registry, GPU).images[0].digest)
    machine.policy = Policy()
    with pytest.raises(PolicyViolation, match="has level linked, but level validated is required"):
        machine.rollback(registry, str(digests[0]), tag="2.15-gpu")
    (earlier,) = list_earlier(machine.repository(registry), "2.15-gpu", str(digests[1]))
    says = r"lacks the attestations that the tag promises \(\S+ has level linked, but level validated is required: .+\)"
    assert re.fullmatch(says, str(earlier.objection))
    assert registry.named["2.15-gpu"] == digests[1]


@pytest.mark.parametrize(("to", "matches"), [("sha256:", "3 images match"), ("ff", "no image matches")])
def test_what_names_no_image_of_the_history_or_several_is_an_error(machine: Machine, to: str, matches: str) -> None:
    registry = MemoryRegistry()
    publish_builds(machine, registry, 9, 5, 0)
    message = (
        f"--to {to}: {matches} in the signed history of 2.15. `tfimg history {registry.repository} 2.15` lists them; "
        "name the whole digest."
    )
    with pytest.raises(UsageError, match=exactly(message)):
        machine.rollback(registry, to)
    with pytest.raises(NotInRegistry):
        machine.rollback(registry, to, tag="9.99")


def test_earlier_images_are_listed_newest_first_with_what_speaks_against_them(machine: Machine) -> None:
    registry = MemoryRegistry()
    gap = put_image(registry, CPU, age=99, tag="2.15").digest
    subject, ran = Subject(name=registry.repository, digest=gap), RunContext(host="h", engine="e", version="0")
    attach(registry, gap, [make_test_result(GREEN, subject=subject, ran=ran)], key=OURS)
    first, second, third = publish_builds(machine, registry, 9, 5, 0)
    repository = machine.repository(registry)
    machine.withdraw(registry, second)
    machine.rollback(registry, first)
    earlier = [*list_earlier(repository, "2.15", first)]
    assert [(one.digest, one.objection) for one in earlier] == [
        (third, "was withdrawn"), (second, "was withdrawn"), (gap, "has no signed promotion for this tag"),
    ]  # fmt: skip
    newest, before, unsigned = (one.promoted for one in earlier)
    assert newest is not None
    assert before is not None
    assert newest > before
    assert unsigned is None
    assert [(one.digest, one.objection) for one in list_earlier(repository, "2.15.1", third)] == [
        (second, "was withdrawn"), (first, None),
    ]  # fmt: skip


def test_a_digest_that_the_registry_does_not_have_is_not_withdrawn(machine: Machine) -> None:
    registry = MemoryRegistry()
    says = f"The registry has no {registry.repository}@sha256:{'0' * 64}. Check the name and the digest."
    with pytest.raises(NotInRegistry, match=exactly(says)):
        machine.withdraw(registry, f"sha256:{'0' * 64}")


def test_a_tag_that_an_attacker_moved_returns_to_a_digest_that_was_promoted_to_it(machine: Machine) -> None:
    registry = MemoryRegistry()
    (ours,) = publish_builds(machine, registry, 0)
    theirs = put_image(registry, "2.10.0-cpu-py3.7", tag="2.15").digest
    assert [*list_earlier(machine.repository(registry), "2.15", theirs)][1:] == []
    with pytest.raises(UsageError, match="no image matches"):
        machine.rollback(registry, theirs)
    machine.rollback(registry, ours)
    assert registry.named["2.15"] == ours
    assert chain(registry) == [(ours, True), (theirs, False)]


def test_a_withdrawal_moves_tags_back_and_everyone_refuses_the_digest(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    registry.put("mine", registry.manifests[new])
    (done,) = machine.withdraw(registry, new, reason="it leaks\x1b[2J a token")
    assert {tag: registry.named[tag] for tag in ("2.15", "2.15.1", CPU)} == dict.fromkeys(("2.15", "2.15.1", CPU), old)
    assert done.unmoved.keys() == {make_build_tag(CPU, new), "mine"}, "a tag that was moved without tfimg is named"
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
    (done,) = machine.withdraw(registry, only)
    assert done.unmoved.keys() == {make_build_tag(CPU, only), CPU, "2.15.1", "2.15"}
    assert registry.named["2.15"] == only
    with pytest.raises(WithdrawnError):
        proven_level(registry, "2.15")
    assert machine.withdraw(registry, only)[0].withdrawal is None, "it was withdrawn already"
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
    (done,) = machine.withdraw(registry, new, "1.0", "2.15", make_build_tag(CPU, new), "latest")
    assert registry.named["2.15"] == old
    assert done.unmoved == {
        make_build_tag(CPU, new): "the tag of one build is never moved",
        "latest": "no signed promotion says what it pointed to before",
    }


ACTS: dict[str, Callable[[Machine, Registry, str, str], tuple[RetractedImage, ...]]] = {
    "rollback": lambda machine, registry, old, _: machine.rollback(registry, old),
    "withdraw": lambda machine, registry, _, new: machine.withdraw(registry, new),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_killed_at_any_step_the_same_command_goes_on_and_signs_nothing_twice(
    memory_folder: Path, act: Callable[[Machine, Registry, str, str], tuple[RetractedImage, ...]]
) -> None:
    earlier, first = MemoryRegistry(), Machine(memory_folder / "first")
    old, new = publish_builds(first, earlier, 5, 0)
    for point in range(1, 400):
        shared, machine = deepcopy(earlier), Machine(memory_folder / f"{point}", seconds=99)
        run = Mortal(shared, point, "after")
        with suppress(Killed):
            act(machine, run.line, old, new)
        if not run.dead:
            assert point > 40
            break
        if shared.named["2.15"] == old:
            assert proven_level(shared, "2.15") == old, "a tag moves when all is signed"
        act(machine, shared, old, new)
        assert shared.named["2.15"] == proven_level(shared, "2.15") == old
        assert len(read_image_statements(shared, old, KEYS).promotions) == 2
        (withdrawal,) = read_image_statements(shared, new, KEYS).withdrawals
        assert withdrawal.predicate.replacement == old
        assert [digest for digest, _ in chain(shared)] == [old, new, old]
        sent = list(shared.sent)
        act(machine, shared, old, new)
        assert shared.sent == sent, "once more changes nothing"


def test_a_rollback_that_is_done_says_so(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, _ = publish_builds(machine, registry, 5, 0)
    machine.rollback(registry, old)
    assert machine.rollback(registry, old) == (
        RetractedImage(digest=old, unmoved={"2.15": "it already points to this image"}),
    )


def test_a_withdrawn_image_that_a_tag_points_to_is_reinstated_by_publishing(machine: Machine) -> None:
    registry = MemoryRegistry()
    (only,) = publish_builds(machine, registry, 0)
    machine.withdraw(registry, only)
    with pytest.raises(WithdrawnError, match="or cancel the withdrawal with `tfimg publish --reinstate`"):
        machine.rollback(registry, only, reinstate=True)


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


def test_a_killed_rollback_is_refused_by_users_until_it_is_finished(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    kill_at(("put", "2.15"), lambda line: machine.rollback(line, old), registry)
    assert registry.named["2.15"] == new
    with pytest.raises(WithdrawnError):
        proven_level(registry, "2.15")


def test_a_withdrawal_of_one_tag_leaves_a_killed_one_of_another_open(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    kill_at(("put", "2.15"), lambda line: machine.withdraw(line, new, "2.15"), registry)
    machine.withdraw(registry, new, "2.15.1")
    assert (registry.named["2.15"], registry.named["2.15.1"]) == (new, old)


def test_a_killed_withdrawal_also_moves_tags_that_were_moved_to_the_image_since(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    machine.rollback(registry, old, tag="2.15.1")
    kill_at(("put", "2.15"), lambda line: machine.withdraw(line, new), registry)
    machine.publish(registry, reinstate=True)
    assert registry.named["2.15.1"] == new
    machine.withdraw(registry, new)
    assert {registry.named[tag] for tag in ("2.15", "2.15.1", CPU)} == {old}


def test_a_killed_rollback_does_not_return_to_an_image_that_was_withdrawn_since(machine: Machine) -> None:
    registry = MemoryRegistry()
    _, old, new = publish_builds(machine, registry, 9, 5, 0)
    kill_at(("put", "2.15"), lambda line: machine.rollback(line, old), registry)
    machine.withdraw(registry, old)
    with pytest.raises(WithdrawnError):
        machine.rollback(registry, old)
    assert registry.named["2.15"] == new


def test_a_killed_rollback_withdraws_again_if_its_withdrawal_was_cancelled_since(machine: Machine) -> None:
    registry = MemoryRegistry()
    old, new = publish_builds(machine, registry, 5, 0)
    kill_at(("put", "2.15"), lambda line: machine.rollback(line, old), registry)
    machine.publish(registry, reinstate=True)
    assert proven_level(registry, "2.15") == new
    machine.rollback(registry, old)
    machine.publish(registry)
    assert registry.named["2.15"] == old
