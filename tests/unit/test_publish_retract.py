"""Rollback and withdrawal: only what trusted keys signed counts, and a killed command is finished by the same one."""

import re
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from datetime import timedelta
from pathlib import Path

import pytest

from support.memory_registry import MemoryRegistry
from support.messages import exactly
from support.published_images import Killed, Line, Mortal, put_image
from support.publisher import CPU, GPU, NOW, Machine
from support.reports import GREEN
from support.signing import OURS, THEIRS
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import Subject
from tfimg.attestations.policy import Policy, TagPromise
from tfimg.attestations.predicates import RunContext, make_test_result
from tfimg.attestations.promotions import Promotion, TagMove, make_predicate_statement
from tfimg.core.errors import NotInRegistry, PolicyViolation, UsageError, WithdrawnError
from tfimg.core.levels import Level
from tfimg.publish.retract import RetractedImage, list_earlier
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.documents import Registry


def forge(registry: Registry, digest: str, previous: str, *, tag: str = "2.15") -> None:
    """Attach a promotion that an attacker signed, with push rights and another key."""
    promotion = Promotion(
        repository=registry.repository, tags=(TagMove(tag=tag, previous=previous),), time=NOW + timedelta(days=1),
        publisher="me", reason="publish", tfimg="0.0",
    )  # fmt: skip
    subject = Subject(name=registry.repository, digest=digest)
    attach(registry, digest, [make_predicate_statement(subject, promotion)], key=THEIRS)


def test_a_rollback_promotes_the_image_before_and_withdraws_the_present_one(machine: Machine) -> None:
    old, new = machine.publish_builds(5, 0)
    machine.rollback(old)
    assert (machine.tags["2.15"], machine.tags["2.15.1"]) == (old, new)
    assert machine.chain() == [(old, True), (new, True), (old, True)]
    assert machine.verified("2.15") == old
    assert machine.verified("2.15.1") == new, "it is withdrawn for one tag"
    machine.registry.put("2.15", machine.registry.manifests[new])
    with pytest.raises(WithdrawnError, match=rf"was withdrawn as 2\.15 .* by me: rolled back to {old}"):
        machine.verified("2.15")


def test_a_rollback_names_the_other_tags_that_keep_the_image(machine: Machine) -> None:
    old, new = machine.publish_builds(5, 0)
    machine.registry.put("mine", machine.registry.manifests[new])
    machine.rollback(old, tag="2.15.1")
    (done,) = machine.rollback(old)
    assert [move.tag for move in done.moves] == ["2.15"]
    others = dict.fromkeys([CPU, "mine"], "only 2.15 was rolled back")
    assert done.unmoved == others, "neither what was moved, nor the tag of the build itself"


def test_a_forged_history_lists_no_image(machine: Machine, registry: MemoryRegistry) -> None:
    old, new = machine.publish_builds(5, 0)
    evil = Machine(machine.folder.parent / "evil", registry, key=THEIRS)
    (forged,) = evil.publish_builds(0, identifier="2.15.1-cpu-py3.10")
    forge(registry, new, forged)
    assert [one.digest for one in list_earlier(machine.repository(), "2.15", new)] == [old]
    with pytest.raises(UsageError, match="no image matches"):
        machine.rollback(forged)


def test_forged_statements_do_not_block_publishing_or_rollback(machine: Machine, registry: MemoryRegistry) -> None:
    old, new = machine.publish_builds(5, 1)
    forge(registry, new, new)
    forge(registry, old, f"sha256:{'0' * 64}")
    machine.rollback(old)
    assert machine.tags["2.15"] == old
    (newer,) = machine.publish_builds(0)
    assert machine.tags["2.15"] == newer


def test_what_was_rolled_back_is_promoted_again_only_when_it_is_reinstated(machine: Machine) -> None:
    old, new = machine.publish_builds(5, 0)
    machine.rollback(old)
    machine.publish_builds(0)
    assert machine.tags["2.15"] == old
    says = (
        rf"^\S+@{new} was withdrawn as 2\.15 at \S+ by me: rolled back to {old}\. Name another image, or cancel the "
        r"withdrawal with --reinstate\.$"
    )
    with pytest.raises(WithdrawnError, match=says):
        machine.rollback(new[:19])
    machine.publish(reinstate=True)
    assert machine.tags["2.15"] == machine.verified("2.15") == new
    machine.rollback(old)
    machine.rollback(new, reinstate=True)
    assert machine.tags["2.15"] == machine.verified("2.15") == new
    assert [digest for digest, _ in machine.chain()] == [new, old, new, old, new, old]


def test_a_rollback_demands_the_level_that_the_tag_promises(machine: Machine) -> None:
    machine.policy = Policy(promises=(TagPromise(tags="*-gpu", level=Level.LINKED, reason="There is no GPU here."),))
    old, new = machine.publish_builds(5, 0, identifier=GPU)
    machine.policy = Policy()
    with pytest.raises(PolicyViolation, match="has level linked, but level validated is required"):
        machine.rollback(old, tag="2.15-gpu")
    (earlier,) = list_earlier(machine.repository(), "2.15-gpu", new)
    says = r"lacks the attestations that the tag promises \(\S+ has level linked, but level validated is required: .+\)"
    assert re.fullmatch(says, str(earlier.objection))
    assert machine.tags["2.15-gpu"] == new


@pytest.mark.parametrize(("to", "matches"), [("sha256:", "3 images match"), ("ff", "no image matches")])
def test_what_names_no_image_of_the_history_or_several_is_an_error(machine: Machine, to: str, matches: str) -> None:
    machine.publish_builds(9, 5, 0)
    message = (
        f"--to {to}: {matches} in the signed history of 2.15. `tfimg history {machine.registry.repository} 2.15` lists "
        "them; name the whole digest."
    )
    with pytest.raises(UsageError, match=exactly(message)):
        machine.rollback(to)
    with pytest.raises(NotInRegistry):
        machine.rollback(to, tag="9.99")


def test_earlier_images_are_listed_newest_first_with_what_speaks_against_them(machine: Machine) -> None:
    gap = put_image(machine.registry, CPU, age=99, tag="2.15").digest
    subject, ran = Subject(name=machine.registry.repository, digest=gap), RunContext(host="h", engine="e", version="0")
    attach(machine.registry, gap, [make_test_result(GREEN, subject=subject, ran=ran)], key=OURS)
    first, second, third = machine.publish_builds(9, 5, 0)
    repository = machine.repository()
    machine.withdraw(second)
    machine.rollback(first)
    earlier = [*list_earlier(repository, "2.15", first)]
    assert [(one.digest, one.objection) for one in earlier] == [
        (third, "was withdrawn"), (second, "was withdrawn"), (gap, "has no signed promotion for this tag"),
    ]  # fmt: skip
    assert [one.promoted is None for one in earlier] == [False, False, True]
    assert earlier[0].promoted > earlier[1].promoted
    assert [(one.digest, one.objection) for one in list_earlier(repository, "2.15.1", third)] == [
        (second, "was withdrawn"), (first, None),
    ]  # fmt: skip


def test_a_digest_that_the_registry_does_not_have_is_not_withdrawn(machine: Machine, registry: MemoryRegistry) -> None:
    says = f"The registry has no {registry.repository}@sha256:{'0' * 64}. Check the name and the digest."
    with pytest.raises(NotInRegistry, match=exactly(says)):
        machine.withdraw(f"sha256:{'0' * 64}")


def test_a_tag_that_an_attacker_moved_returns_to_a_digest_that_was_promoted_to_it(machine: Machine) -> None:
    (ours,) = machine.publish_builds(0)
    theirs = put_image(machine.registry, "2.10.0-cpu-py3.7", tag="2.15").digest
    assert [*list_earlier(machine.repository(), "2.15", theirs)][1:] == []
    with pytest.raises(UsageError, match="no image matches"):
        machine.rollback(theirs)
    machine.rollback(ours)
    assert machine.tags["2.15"] == ours
    assert machine.chain() == [(ours, True), (theirs, False)]


def test_a_withdrawal_moves_tags_back_and_everyone_refuses_the_digest(machine: Machine) -> None:
    old, new = machine.publish_builds(5, 0)
    machine.registry.put("mine", machine.registry.manifests[new])
    (done,) = machine.withdraw(new, reason="it leaks\x1b[2J a token")
    assert {machine.tags[tag] for tag in ("2.15", "2.15.1", CPU)} == {old}
    assert done.unmoved.keys() == {make_build_tag(CPU, new), "mine"}, "a tag that was moved without tfimg is named"
    for reference in (new, make_build_tag(CPU, new)):
        with pytest.raises(WithdrawnError, match=r"was withdrawn at \S+ by me: it leaks a token") as caught:
            machine.verified(reference)
        assert f"{machine.registry.repository}@{old}" in caught.value.next_step
    assert machine.verified("2.15") == old
    assert len(machine.statements(old).promotions) == 2, "one promotion for all tags that return to it"


def test_a_tag_that_another_reason_keeps_from_a_reinstated_image_is_no_failure(machine: Machine) -> None:
    (image,) = machine.publish(GPU).images
    machine.withdraw(str(image.digest))
    (refused,) = machine.publish(GPU).images
    assert isinstance(refused.failure, WithdrawnError)
    (image,) = machine.publish(GPU, reinstate=True).images
    assert ({one.tag for one in image.decisions if one.verdict == "refuse"}, image.failure) == (
        {"2.15.1-gpu", "2.15-gpu"},
        None,
    )


def test_a_withdrawn_digest_is_published_only_when_it_is_reinstated(machine: Machine) -> None:
    _, new = machine.publish_builds(5, 0)
    machine.withdraw(new)
    (image,) = machine.publish().images
    assert isinstance(image.failure, WithdrawnError)
    assert machine.tags["2.15"] != new
    (image,) = machine.publish(reinstate=True).images
    assert image.failure is None
    assert machine.verified("2.15") == machine.verified(new) == new


def test_an_image_without_an_earlier_one_keeps_its_tags_which_are_refused(machine: Machine) -> None:
    (only,) = machine.publish_builds(0)
    (done,) = machine.withdraw(only)
    assert done.unmoved.keys() == {make_build_tag(CPU, only), CPU, "2.15.1", "2.15"}
    assert machine.tags["2.15"] == only
    with pytest.raises(WithdrawnError):
        machine.verified("2.15")
    assert machine.withdraw(only)[0].withdrawal is None, "it was withdrawn already"
    assert len(machine.statements(only).withdrawals) == 1


def test_every_tag_of_a_withdrawal_is_considered(machine: Machine, registry: MemoryRegistry) -> None:
    old, new = machine.publish_builds(5, 0)
    registry.put("latest", registry.manifests[new])
    (done,) = machine.withdraw(new, "1.0", "2.15", make_build_tag(CPU, new), "latest")
    assert machine.tags["2.15"] == old
    assert done.unmoved == {
        make_build_tag(CPU, new): "the tag of one build is never moved",
        "latest": "no signed promotion says what it pointed to before",
    }


Act = Callable[[Machine, Registry | None, str, str], object]
ACTS: dict[str, Act] = {
    "rollback": lambda machine, via, old, _: machine.rollback(old, via=via),
    "withdraw": lambda machine, via, _, new: machine.withdraw(new, via=via),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_killed_at_any_step_the_same_command_goes_on_and_signs_nothing_twice(memory_folder: Path, act: Act) -> None:
    first = Machine(memory_folder / "first")
    old, new = first.publish_builds(5, 0)
    for point in range(1, 400):
        machine = Machine(memory_folder / f"{point}", deepcopy(first.registry), seconds=99)
        run = Mortal(machine.registry, point, "after")
        with suppress(Killed):
            act(machine, run.line, old, new)
        if not run.dead:
            assert point > 40
            break
        if machine.tags["2.15"] == old:
            assert machine.verified("2.15") == old, "a tag moves when all is signed"
        act(machine, None, old, new)
        assert machine.tags["2.15"] == machine.verified("2.15") == old
        assert len(machine.statements(old).promotions) == 2
        (withdrawal,) = machine.statements(new).withdrawals
        assert withdrawal.predicate.replacement == old
        assert [digest for digest, _ in machine.chain()] == [old, new, old]
        sent = list(machine.registry.sent)
        act(machine, None, old, new)
        assert machine.registry.sent == sent, "once more changes nothing"


def test_a_rollback_that_is_done_says_so(machine: Machine) -> None:
    old, _ = machine.publish_builds(5, 0)
    machine.rollback(old)
    assert machine.rollback(old) == (RetractedImage(digest=old, unmoved={"2.15": "it already points to this image"}),)


def test_a_withdrawn_image_that_a_tag_points_to_is_reinstated_by_publishing(machine: Machine) -> None:
    (only,) = machine.publish_builds(0)
    machine.withdraw(only)
    with pytest.raises(WithdrawnError, match="or cancel the withdrawal with `tfimg publish --reinstate`"):
        machine.rollback(only, reinstate=True)


def kill(machine: Machine, act: Callable[[Registry], object]) -> None:
    """Run a command that is killed directly before it moves the tag 2.15."""
    line = Line(machine.registry, before=lambda call: stop() if call == ("put", "2.15") else None)

    def stop() -> None:
        line.before = lambda _: stop()
        raise Killed

    with pytest.raises(Killed):
        act(line)


def test_a_killed_rollback_is_refused_by_users_until_it_is_finished(machine: Machine) -> None:
    old, new = machine.publish_builds(5, 0)
    kill(machine, lambda line: machine.rollback(old, via=line))
    assert machine.tags["2.15"] == new
    with pytest.raises(WithdrawnError):
        machine.verified("2.15")


def test_a_withdrawal_of_one_tag_leaves_a_killed_one_of_another_open(machine: Machine) -> None:
    old, new = machine.publish_builds(5, 0)
    kill(machine, lambda line: machine.withdraw(new, "2.15", via=line))
    machine.withdraw(new, "2.15.1")
    assert (machine.tags["2.15"], machine.tags["2.15.1"]) == (new, old)


def test_a_killed_withdrawal_also_moves_tags_that_were_moved_to_the_image_since(machine: Machine) -> None:
    old, new = machine.publish_builds(5, 0)
    machine.rollback(old, tag="2.15.1")
    kill(machine, lambda line: machine.withdraw(new, via=line))
    machine.publish(reinstate=True)
    assert machine.tags["2.15.1"] == new
    machine.withdraw(new)
    assert {machine.tags[tag] for tag in ("2.15", "2.15.1", CPU)} == {old}


def test_a_killed_rollback_does_not_return_to_an_image_that_was_withdrawn_since(machine: Machine) -> None:
    _, old, new = machine.publish_builds(9, 5, 0)
    kill(machine, lambda line: machine.rollback(old, via=line))
    machine.withdraw(old)
    with pytest.raises(WithdrawnError):
        machine.rollback(old)
    assert machine.tags["2.15"] == new


def test_a_killed_rollback_withdraws_again_if_its_withdrawal_was_cancelled_since(machine: Machine) -> None:
    old, new = machine.publish_builds(5, 0)
    kill(machine, lambda line: machine.rollback(old, via=line))
    machine.publish(reinstate=True)
    assert machine.verified("2.15") == new
    machine.rollback(old)
    machine.publish()
    assert machine.tags["2.15"] == old


@pytest.mark.parametrize("pace", [0, -1], ids=["stands still", "goes back"])
@pytest.mark.parametrize("tags", [("2.15",), ()], ids=["tag", "whole"])
def test_a_withdrawal_that_follows_its_own_cancellation_counts(
    tmp_path: Path, pace: int, tags: tuple[str, ...]
) -> None:
    still = Machine(tmp_path / "here", pace=pace)
    old, new = still.publish_builds(2, 1)
    for _ in range(3):
        still.withdraw(new, *tags)
        still.registry.put("2.15", still.registry.manifests[new])  # as an attacker moves it
        with pytest.raises(WithdrawnError):
            still.verified("2.15")
        still.registry.put("2.15", still.registry.manifests[old])
        still.rollback(new, reinstate=True)
        assert still.verified("2.15") == new
