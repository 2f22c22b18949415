"""Publishing: the engine's images end in the registry with attestations, under the tags that they may have, once."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.memory_registry import MemoryRegistry
from support.messages import exactly
from support.published_images import EPOCH, Call, Killed, Line, Mortal, Rounds, at_once, put_image, registry_gone
from support.publisher import CPU, GPU, NOW, Machine, MemorySteps, chain, public_tags
from support.reports import RED
from support.signing import OURS
from tfimg.attestations.envelopes import BUNDLE_MEDIA_TYPE
from tfimg.attestations.policy import Policy, TagPromise
from tfimg.attestations.promotions import Withdrawal, read_image_statements
from tfimg.attestations.verify import verify
from tfimg.core.errors import (
    NetworkError,
    PublicationIncomplete,
    SecretFound,
    TagConflict,
    TamperedError,
    ValidationFailed,
)
from tfimg.core.events import Event, InfoEvent, OnEvent
from tfimg.core.levels import Level
from tfimg.publish.publisher import Publication, PublishResult, TagDecider, plan_job, promote, publish_jobs
from tfimg.publish.send import PublishJob, SentImage, send
from tfimg.publish.tags import Release
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.documents import OCI_INDEX, Manifest


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "here")


def verdicts(publication: Publication, identifier: str) -> dict[str, str]:
    (image,) = [one for one in publication.images if one.identifier == identifier]
    return {decision.tag: decision.verdict for decision in image.decisions}


def test_an_image_is_searched_pushed_validated_vouched_for_and_then_named(machine: Machine) -> None:
    registry = MemoryRegistry()
    (image,) = machine.publish(registry).images
    assert [what for what, _ in machine.done] == ["scan", "push", "validate", "attach"]
    assert (image.status, image.level, image.failure) == ("published", "validated", None)
    assert image.digest
    own = make_build_tag(CPU, image.digest)
    assert public_tags(registry.named) == dict.fromkeys((own, CPU, "2.15.1", "2.15"), image.digest), (
        "no candidate is left"
    )
    assert moved_tags(registry, image.digest) == [own, CPU, "2.15.1", "2.15"], "one promotion names all"


def test_what_is_there_with_its_attestations_are_not_sent_again(machine: Machine) -> None:
    registry = MemoryRegistry()
    machine.publish(registry)
    sent = list(registry.sent)
    machine.done.clear()
    (image,) = machine.publish(registry).images
    assert (image.status, machine.done, registry.sent) == ("unchanged", [], sent)


def test_an_image_is_new_when_this_run_pushed_it(machine: Machine) -> None:
    registry, job = MemoryRegistry(), machine.job(CPU)
    release = Release(identifier=CPU, tensorflow="2.15.1", created=EPOCH)
    expected = SentImage(job=job, digest=job.digest, release=release, level=Level.VALIDATED, is_new=True, reused=False)
    session = machine.session(registry)
    assert send(job, session) == expected
    promote([expected], session)
    assert send(job, session) == replace(expected, is_new=False, reused=True)
    assert send(job, replace(session, revalidate=True)) == replace(expected, is_new=False)


def test_a_plan_of_what_is_there_names_its_digest_and_compares_its_time(machine: Machine) -> None:
    registry = MemoryRegistry()
    machine.ages[CPU] = 5
    digest = machine.publish(registry).images[0].digest
    newer = put_image(registry, "2.15.1-cpu-py3.10", tag="2.15")
    job = machine.job(CPU)
    config = machine.engine[job.name].document["config"]["digest"]
    for known in (job, replace(job, digest=config)):  # an engine may name it by its configuration
        planned = plan_job(known, TagDecider(registry=registry, trusted=(), policy=Policy()))
        assert (planned.status, planned.digest, planned.level) == ("unchanged", digest, "validated")
        why = {decision.tag: (decision.verdict, decision.why, decision.before) for decision in planned.decisions}
        assert why["2.15"] == ("refuse", "it points to a newer build, of 2026-03-01T00:00:00+00:00", newer.digest)
        assert why.keys() == {make_build_tag(CPU, digest or ""), CPU, "2.15.1", "2.15"}
    del registry.named[CPU]
    planned = plan_job(job, TagDecider(registry=registry, trusted=(), policy=Policy()))
    assert (planned.status, planned.digest) == ("planned", digest), "it is there by its digest"
    assert {one.tag: one.verdict for one in planned.decisions}["2.15"] == "refuse", "its time is known there too"


def test_an_attested_promotion_keeps_what_the_tag_pointed_to_before(machine: Machine) -> None:
    registry = MemoryRegistry()
    machine.ages[CPU] = 5
    old = machine.publish(registry).images[0].digest
    machine.ages[CPU] = 0
    new = machine.publish(registry).images[0].digest
    assert new
    repository = machine.repository(registry)
    withdrawal = Withdrawal(
        repository=registry.repository, tags=None, reason="x", replacement=None, time=machine.now(), publisher="me"
    )
    repository.attach(new, withdrawal)
    publication = machine.publish(registry, reinstate=True)
    assert set(verdicts(publication, CPU).values()) == {"attest"}
    assert publication.images[0].status == "published"
    assert chain(registry) == [(new, True), (old, True)]


def test_what_an_engine_calls_by_its_configuration_is_known_too(machine: Machine) -> None:
    registry = MemoryRegistry()
    job = machine.job(CPU)
    config = machine.engine[job.name].document["config"]["digest"]
    for _ in range(2):
        publish_jobs([replace(job, digest=config)], machine.session(registry))
    assert [what for what, _ in machine.done].count("push") == 1


def test_a_gpu_image_that_no_gpu_has_seen_has_its_exact_tags_and_no_alias(machine: Machine) -> None:
    registry = MemoryRegistry()
    publication = machine.publish(registry, CPU, GPU)
    found = verdicts(publication, GPU)
    assert found == {
        make_build_tag(GPU, publication.images[1].digest or ""): "move", GPU: "move", "2.15.1-gpu": "refuse",
        "2.15-gpu": "refuse",
    }  # fmt: skip
    assert publication.images[1].level == "linked"
    assert "2.15-gpu" not in public_tags(registry.named)
    assert public_tags(registry.named)["2.15"] == publication.images[0].digest


def test_a_policy_may_let_an_alias_promise_less_in_writing(machine: Machine) -> None:
    registry = MemoryRegistry()
    machine.policy = Policy(promises=(TagPromise(tags="*-gpu", level=Level.LINKED, reason="nobody has a GPU"),))
    machine.publish(registry, GPU)
    assert "2.15-gpu" in public_tags(registry.named)


def test_an_image_that_fails_has_no_tag_and_the_others_have_theirs(machine: Machine) -> None:
    registry = MemoryRegistry()
    machine.reports[CPU] = RED
    publication = machine.publish(registry, CPU, "2.16.1-cpu-py3.11")
    assert [image.status for image in publication.images] == ["failed", "published"]
    assert isinstance(publication.images[0].failure, ValidationFailed)
    with pytest.raises(ValidationFailed):
        publication.raise_for_failures()
    machine.reports[GPU] = RED
    says = (
        f"2 of 3 images were not published:\n  {CPU}: A check failed.\n  {GPU}: A check failed.\n"
        "Run the same command again for these."
    )
    with pytest.raises(PublicationIncomplete, match=exactly(says)):
        machine.publish(registry, CPU, GPU, "2.16.1-cpu-py3.11").raise_for_failures()
    assert {tag.partition("-")[0] for tag in public_tags(registry.named)} == {"2.16.1"}


def test_a_program_reads_what_became_of_each_image(machine: Machine) -> None:
    registry = MemoryRegistry()
    machine.reports[CPU] = RED
    red, green = (image.to_json() for image in machine.publish(registry, CPU, GPU).images)
    assert red == {
        "identifier": CPU, "status": "failed", "digest": None, "level": None, "reused": False, "tags": [],
        "error": "ValidationFailed", "exit_code": ValidationFailed.exit_code, "reason": "A check failed. Look.",
    }  # fmt: skip
    digest = registry.named[GPU]
    assert green == {
        "identifier": GPU, "status": "published", "digest": digest, "level": "linked", "reused": False,
        "tags": green["tags"], "error": None, "exit_code": 0, "reason": None,
    }  # fmt: skip
    moves = [(tag["tag"], tag["kind"], tag["verdict"]) for tag in green["tags"]]
    assert moves == [
        (make_build_tag(GPU, digest), "build", "move"), (GPU, "identifier", "move"),
        ("2.15.1-gpu", "alias", "refuse"), ("2.15-gpu", "alias", "refuse"),
    ]  # fmt: skip
    assert all(set(tag) == {"tag", "kind", "verdict", "why", "before", "cancels"} for tag in green["tags"])


def test_what_another_program_has_pushed_is_searched_before_it_is_proven(machine: Machine) -> None:
    registry = MemoryRegistry()
    put_image(registry, CPU, tag=CPU)
    machine.leaks.add(CPU)
    (image,) = machine.publish(registry).images
    assert isinstance(image.failure, SecretFound)
    assert machine.done == [("scan", CPU)]
    machine.leaks.clear()
    machine.publish(registry)
    assert [what for what, _ in machine.done] == ["scan", "scan", "validate", "attach"]


def test_a_rebuild_replaces_what_was_there_and_the_old_digest_keeps_its_own_tag(machine: Machine) -> None:
    registry = MemoryRegistry()
    machine.ages[CPU] = 5
    old = machine.publish(registry).images[0].digest
    machine.ages[CPU] = 0
    new = machine.publish(registry).images[0].digest
    assert old
    assert new != old
    assert public_tags(registry.named)[make_build_tag(CPU, old)] == old
    assert public_tags(registry.named)["2.15"] == new
    machine.ages[CPU] = 5
    again = machine.publish(registry)
    assert verdicts(again, CPU)["2.15"] == "refuse"
    assert public_tags(registry.named)["2.15"] == new


def test_a_plan_says_the_same_before_as_what_is_done_after(machine: Machine) -> None:
    registry = MemoryRegistry()
    jobs = [machine.job(identifier) for identifier in (CPU, GPU)]
    decider = TagDecider(registry=registry, trusted=machine.trusted, policy=Policy())
    before = [plan_job(job, decider) for job in jobs]
    assert registry.named == {}
    done = machine.publish(registry, CPU, GPU).images
    for expected, image in zip(before, done, strict=True):
        told = {decision.tag: (decision.verdict, decision.why) for decision in image.decisions}
        foretold = {decision.tag: (decision.verdict, decision.why) for decision in expected.decisions}
        assert foretold.items() <= told.items()
        assert len(told) - len(foretold) == 1, "a build's own tag has its digest, which is not known before"


@pytest.mark.parametrize("theirs", [None, "2.16.1-cpu-py3.11"])
@pytest.mark.parametrize("tag", ["2.15", CPU])
def test_every_tag_is_read_back_after_the_last_one_was_moved(machine: Machine, tag: str, theirs: str | None) -> None:
    shared = MemoryRegistry()
    line = Line(shared)

    def change(call: Call) -> None:
        if call == ("find", tag) and ("put", "2.15") in line.calls:
            if theirs:
                put_image(shared, theirs, tag=tag)
            else:
                del shared.named[tag]

    line.before = change
    missing = (
        f"The tag {tag} is missing from {shared.repository} after it was published. Another program may delete tags "
        "there; run the same command again."
    )
    says = rf"^{tag} points to sha256:" if theirs else exactly(missing)
    with pytest.raises(TagConflict if theirs else PublicationIncomplete, match=says):
        machine.publish(line)


def test_a_tag_that_need_not_be_moved_is_read_back_too(machine: Machine) -> None:
    shared = MemoryRegistry()
    machine.publish(shared)
    line = Line(shared)

    def remove(call: Call) -> None:
        if call == ("find", "2.15") and call in line.calls:
            shared.named.pop("2.15")

    line.before = remove
    with pytest.raises(PublicationIncomplete, match=r"^The tag 2\.15 is missing "):
        machine.publish(line)


def test_an_image_that_was_pushed_and_has_no_tag_is_published(machine: Machine) -> None:
    machine.policy = Policy(promises=(TagPromise(tags="*", level=Level.VALIDATED, reason="all are tested"),))
    (image,) = machine.publish(MemoryRegistry(), GPU).images
    assert {decision.verdict for decision in image.decisions} == {"refuse"}
    assert image.status == "published"


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step_and_run_again_everything_is_there_once(memory_folder: Path, when: str) -> None:
    earlier, first = MemoryRegistry(), Machine(memory_folder / "first", ages={CPU: 99})
    first.publish(earlier)
    old = earlier.manifests[earlier.named["2.15"]]
    for point in range(1, 400):
        shared, machine = deepcopy(earlier), Machine(memory_folder / f"{point}", seconds=9)
        run = machine.run = Mortal(shared, point, when)
        with suppress(Killed):
            machine.publish(run.line, CPU, GPU)
        if not run.dead:
            assert point > 50
            break
        attestations_of_new(shared, machine, old)
        machine.run = None
        images = machine.publish(shared, CPU, GPU).images
        assert [image.failure for image in images] == [None, None]
        for image in images:
            assert_all_attestations(shared, image.digest)
        found = public_tags(shared.named)
        assert not [tag for tag in found if tag.startswith("candidate-")]
        assert machine.candidates == set()
        assert found["2.15"] == found["2.15.1"] == images[0].digest
        assert [what for what, _ in machine.done].count("push") <= 3
        for image in images:
            moves = moved_tags(shared, image.digest)
            assert sorted(moves) == sorted(set(moves)), "no promotion is signed twice"
        assert [digest for digest, _ in chain(shared)] == [images[0].digest, old.digest]


def moved_tags(registry: MemoryRegistry, digest: str | None) -> list[str]:
    """Return the tags of all promotions of a digest."""
    assert digest
    found = read_image_statements(registry, digest, [OURS.verifying_key]).promotions
    return [move.tag for one in found for move in one.predicate.tags]


def assert_all_attestations(shared: MemoryRegistry, digest: str | None) -> None:
    """A test result and a promotion refer to the image."""
    assert digest
    assert [one.artifact_type for one in shared.list_referrers(digest)] == [BUNDLE_MEDIA_TYPE] * 2


def attestations_of_new(shared: MemoryRegistry, machine: Machine, old: Manifest) -> None:
    """No tag that people see leads to a new image without attestations."""
    for tag, digest in public_tags(shared.named).items():
        if digest != old.digest and not tag.startswith("candidate-"):
            machine.prove(shared, digest, "linked")


def test_a_registry_that_goes_away_midway_ends_the_run_and_the_next_one_goes_on(machine: Machine) -> None:
    shared = MemoryRegistry()

    def leave(call: Call) -> None:
        if call == ("put", "2.15"):
            raise registry_gone()

    with pytest.raises(NetworkError):
        machine.publish(Line(shared, before=leave))
    assert "2.15.1" not in public_tags(shared.named), "all or none"
    machine.done.clear()
    machine.publish(shared)
    assert machine.done == [], "nothing is sent or validated twice"
    assert {"2.15", "2.15.1"} <= public_tags(shared.named).keys()


def test_what_an_earlier_run_pushed_is_not_pushed_again(machine: Machine) -> None:
    shared, digest = MemoryRegistry(), machine.job(CPU).digest

    def leave(call: Call) -> None:
        if call == ("find", digest):  # to validate it
            raise registry_gone()

    with pytest.raises(NetworkError):
        machine.publish(Line(shared, before=leave))
    assert [tag.partition("-")[0] for tag in shared.named] == ["candidate"]
    machine.done.clear()
    (image,) = machine.publish(shared).images
    assert [what for what, _ in machine.done] == ["scan", "validate", "attach"]
    assert image.status == "published"
    machine.ages[CPU] = -1
    machine.publish(shared)
    assert ("push", CPU) in machine.done, "another build"


def test_an_image_whose_exact_tag_another_publisher_moves_fails_alone(machine: Machine) -> None:
    shared, other = MemoryRegistry(), "2.16.1-cpu-py3.11"

    def move(call: Call) -> None:
        if call == ("put", CPU):
            put_image(shared, "2.15.1-cpu-py3.10", tag=CPU)

    failed, published = machine.publish(Line(shared, after=move), CPU, other).images
    assert isinstance(failed.failure, TagConflict)
    assert failed == PublishResult(
        identifier=CPU, status="failed", digest=machine.job(CPU).digest, level=Level.VALIDATED, failure=failed.failure
    )
    assert (published.identifier, published.status, published.digest) == (other, "published", shared.named[other])
    assert "2.15" not in shared.named


def test_an_alias_that_another_publisher_moves_at_the_same_time_is_kept(machine: Machine) -> None:
    shared = MemoryRegistry()
    machine.ages[CPU] = 9
    machine.publish(shared)
    old = public_tags(shared.named)["2.15"]
    theirs = put_image(shared, "2.16.1-cpu-py3.11")
    machine.ages[CPU] = 0

    def move(call: Call) -> None:
        if call == ("put", "2.15"):
            shared.put("2.15", theirs)

    with pytest.raises(TagConflict):
        machine.publish(Line(shared, after=move))
    assert public_tags(shared.named)["2.15"] == theirs.digest
    assert public_tags(shared.named)["2.15.1"] == old


def test_candidates_that_the_registry_does_not_delete_are_named(machine: Machine) -> None:
    registry = MemoryRegistry(deletes=False)
    publication = machine.publish(registry)
    (left,) = publication.candidates
    assert left.startswith("candidate-")
    assert registry.named[left] == registry.named["2.15"] == publication.images[0].digest
    registry.deletes = True
    (image,) = machine.publish(registry).images
    assert image.status == "unchanged"
    assert machine.publish(registry).candidates == ()


def test_every_level_of_a_publication_can_be_required(machine: Machine) -> None:
    registry = MemoryRegistry()
    digest = machine.publish(registry).images[0].digest
    assert digest
    assert {machine.prove(registry, digest, level) for level in Level} == {"validated"}


def test_an_invalid_index_under_a_tag_is_named(machine: Machine) -> None:
    registry = MemoryRegistry()
    index = Manifest(media_type=OCI_INDEX, content=b'{"manifests": 7}')
    registry.put("2.15", index)
    says = (
        f"{registry.repository}@{index.digest} is malformed: manifests: input should be a valid tuple. Do not use the "
        "image; if you have published it, push it again."
    )
    with pytest.raises(TamperedError, match=exactly(says)):
        plan_job(machine.job(CPU), TagDecider(registry=registry, trusted=(), policy=Policy()))


def test_repositories_that_look_alike_have_locks_of_their_own(tmp_path: Path) -> None:
    names = ["host/a/b", "host/a_b", "host:1/a", "host_1/a", "host/a.b", "host/a-b"]
    folders = {Machine(tmp_path).repository(MemoryRegistry(repository=name)).lock_file("2.15").parent for name in names}
    assert len(folders) == len(names)
    assert {folder.parent for folder in folders} == {tmp_path / "publish"}


def test_a_candidate_whose_digest_is_not_the_one_that_the_engine_pushed_gets_no_tag(machine: Machine) -> None:
    registry = MemoryRegistry()

    class OtherSteps(MemorySteps):
        def push(self, job: PublishJob, candidate: str, _: OnEvent) -> str:
            put_image(registry, job.identifier, age=99, tag=candidate)
            return job.digest

    says = (
        rf"^The engine pushed candidate-\w+-{CPU} to {registry.repository} as sha256:\w+, but the registry does not "
        r"have it\. Run the command again; if it fails again, check the proxies between engine and registry\.$"
    )
    session = replace(machine.session(registry), steps=OtherSteps(machine, registry))
    with pytest.raises(PublicationIncomplete, match=says):
        publish_jobs([machine.job(CPU)], session)
    assert machine.done == [("scan", CPU)], "nothing is validated or attached"
    assert [tag for tag in registry.named if not tag.startswith("candidate-")] == []


def test_the_next_run_removes_what_killed_runs_of_this_machine_left(machine: Machine) -> None:
    """Also of another image or build; another machine's candidates and those of a running process stay."""
    registry, other = MemoryRegistry(), "2.16.1-cpu-py3.11"
    prefix = machine.repository(registry).candidate_prefix
    elsewhere = Machine(machine.folder.parent / "elsewhere").repository(registry)
    put_image(registry, other, tag=f"{prefix}{other}")
    put_image(registry, other, tag=f"{elsewhere.candidate_prefix}{other}")
    put_image(registry, GPU, tag=f"{prefix}{GPU}")
    machine.candidates |= {f"{prefix}{name}" for name in (other, GPU, CPU)}
    with machine.repository(registry).lock_tags([f"{prefix}{GPU}"]):
        machine.publish(registry)
    kept = {tag for tag in registry.named if tag.startswith("candidate-")}
    assert kept == {f"{elsewhere.candidate_prefix}{other}", f"{prefix}{GPU}"}
    assert machine.candidates == {f"{prefix}{GPU}"}
    machine.publish(registry)
    assert {tag for tag in registry.named if tag.startswith("candidate-")} == {f"{elsewhere.candidate_prefix}{other}"}
    assert machine.candidates == set()


def test_candidates_are_of_one_machine_and_repository(tmp_path: Path) -> None:
    def prefix(folder: str = "a", repository: str = "h/a", publisher: str = "me") -> str:
        registry = MemoryRegistry(repository=repository)
        return replace(Machine(tmp_path / folder).repository(registry), publisher=publisher).candidate_prefix

    prefixes = [prefix(), prefix(folder="b"), prefix(repository="h/b"), prefix(publisher="other")]
    assert len(set(prefixes)) == 4
    assert prefix() == prefixes[0], "the next run knows it"
    assert all(re.fullmatch("candidate-[0-9a-f]{8}-", one) for one in prefixes)


def test_a_process_waits_for_another_that_sends_the_same_image(machine: Machine) -> None:
    registry, events = MemoryRegistry(), list[Event]()
    candidate = f"{machine.repository(registry).candidate_prefix}{CPU}"
    with ExitStack() as stack:
        stack.enter_context(machine.repository(registry).lock_tags([candidate]))

        def on_event(event: Event) -> None:
            if not events:
                assert machine.done == []
                stack.close()
            events.append(event)

        publish_jobs([machine.job(CPU)], replace(machine.session(registry), on_event=on_event))
    assert events[0] == InfoEvent(text=f"Waiting for another process that writes to {registry.repository}.")
    assert "2.15" in registry.named


def test_what_an_attacker_labels_as_a_newer_release_does_not_block_a_tag_for_good(machine: Machine) -> None:
    """Labels count for nothing: the tag has no test result of a trusted key, and that is what is told."""
    registry = MemoryRegistry()
    machine.ages[CPU] = 5
    machine.publish(registry)
    forged = put_image(registry, "9.9.9-cpu-py3.11", tag="2.15")
    machine.ages[CPU] = 0
    (image,) = machine.publish(registry).images
    (decision,) = [one for one in image.decisions if one.tag == "2.15"]
    assert decision.verdict == "refuse"
    assert f"it points to {forged.digest}, which has no test result of a trusted key" in decision.why
    assert registry.named["2.15.1"] == image.digest


def test_any_publisher_completes_a_promotion_that_was_attached(memory_folder: Path) -> None:
    """Killed before it moved the aliases; another machine with the key publishes the same image."""
    registry = MemoryRegistry()

    def stop(call: Call) -> None:
        if call == ("put", "2.15.1"):
            raise Killed

    with suppress(Killed):
        Machine(memory_folder / "one").publish(Line(registry, before=stop))
    assert CPU in registry.named
    assert "2.15" not in registry.named
    (image,) = Machine(memory_folder / "two", seconds=9).publish(registry).images
    assert registry.named["2.15"] == registry.named["2.15.1"] == image.digest
    assert len(read_image_statements(registry, image.digest or "", [OURS.verifying_key]).promotions) == 1


def test_an_image_that_was_tagged_without_a_promotion_is_attested(machine: Machine) -> None:
    registry = MemoryRegistry()
    (image,) = machine.publish(registry).images
    assert image.digest
    registry.manifests = {
        digest: one for digest, one in registry.manifests.items() if b"urn:tfimg:promotion" not in one.content
    }
    again = machine.publish(registry)
    assert set(verdicts(again, CPU).values()) == {"attest"}
    assert set(verdicts(machine.publish(registry), CPU).values()) == {"stay"}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(st.integers(min_value=0, max_value=1), max_size=150))
def test_two_publishers_at_once_end_or_stop_with_a_conflict_and_the_next_run_settles_it(
    memory_folder: Path, turns: Sequence[int]
) -> None:
    """Their calls overlap in every order that is drawn. Whoever ends without a conflict had all of its tags."""
    folder = Path(tempfile.mkdtemp(dir=memory_folder))
    registry, machines = MemoryRegistry(), [Machine(folder / f"{number}") for number in range(2)]
    rounds, failed = Rounds(turns, 2), list[BaseException]()

    def publisher(number: int) -> None:
        machines[number].ages[CPU] = number
        try:
            machines[number].publish(Line(registry, before=lambda _: rounds.wait(number)))
        except TagConflict:
            pass
        except BaseException as error:
            failed.append(error)
        finally:
            rounds.leave(number)

    at_once(publisher, 2)
    assert failed == []
    for tag, digest in public_tags(registry.named).items():
        machines[0].prove(registry, digest, "validated")
        if not tag.startswith("candidate-"):
            verify(registry, tag, [OURS.verifying_key], Policy(), now=NOW)
    machines[0].seconds = 99
    images = machines[0].publish(registry).images
    found = {registry.named[tag] for tag in (CPU, "2.15.1", "2.15")}
    assert found == {images[0].digest}, "the newer build has all tags in the end"


def test_a_promotion_that_the_registry_loses_moves_no_tag(machine: Machine) -> None:
    shared = MemoryRegistry()

    def lose(call: Call) -> None:
        if call[0] == "referrers":
            lost = [one for one in shared.manifests.values() if b"urn:tfimg:promotion" in one.content]
            for manifest in lost:
                del shared.manifests[manifest.digest]
            shared.named = {tag: one for tag, one in shared.named.items() if one in shared.manifests}

    says = (
        rf"^A statement about the tags of {shared.repository}@sha256:\w+ was attached, but the registry does not "
        r"return it\. Run the same command again; if it fails again, look for what deletes referrers there\.$"
    )
    with pytest.raises(PublicationIncomplete, match=says):
        machine.publish(Line(shared, before=lose))
    assert {tag for tag in public_tags(shared.named) if not tag.startswith("candidate-")} == set()
