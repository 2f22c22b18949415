"""Publishing: the engine's images end in the registry with attestations, under the tags that they may have, once."""

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
from support.published_images import (
    EPOCH,
    Call,
    Killed,
    Line,
    Mortal,
    Rounds,
    at,
    at_once,
    fail_at,
    put_image,
    registry_gone,
)
from support.publisher import CPU, GPU, Machine, MemorySteps
from support.reports import RED
from support.world import World
from tfimg.attestations.envelopes import BUNDLE_MEDIA_TYPE
from tfimg.attestations.policy import Policy, TagPromise
from tfimg.attestations.promotions import Withdrawal
from tfimg.attestations.verify import verify
from tfimg.core.errors import (
    NetworkError,
    PublicationIncomplete,
    RegistryError,
    SecretFound,
    TagConflict,
    TagImmutable,
    TamperedError,
    ValidationFailed,
)
from tfimg.core.events import Event, InfoEvent, OnEvent, StepEvent, WarningEvent
from tfimg.core.levels import Level
from tfimg.publish.history import tag_history
from tfimg.publish.publisher import Publication, PublishResult, TagDecider, plan_job, promote, publish_jobs
from tfimg.publish.retract import roll_back
from tfimg.publish.send import PublishJob, SentImage, send
from tfimg.publish.tags import PublishedRelease
from tfimg.recipe.tags import find_platform_tag, make_build_tag
from tfimg.registry.documents import OCI_INDEX, Manifest


def verdicts(publication: Publication, identifier: str) -> dict[str, str]:
    (image,) = [one for one in publication.images if one.identifier == identifier]
    return {decision.tag: decision.verdict for decision in image.decisions}


def test_an_image_is_searched_pushed_validated_vouched_for_and_then_named(machine: Machine) -> None:
    (image,) = machine.publish().images
    assert machine.steps == ["scan", "push", "validate", "attach"]
    assert (image.status, image.level, image.failure) == ("published", "validated", None)
    assert image.digest
    own = make_build_tag(CPU, image.digest)
    assert machine.tags == dict.fromkeys((own, CPU, "2.15.1", "2.15"), image.digest), "no candidate is left"
    assert machine.moved(image.digest) == [own, CPU, "2.15.1", "2.15"], "one promotion names all"


def test_an_image_is_new_when_this_run_pushed_it(machine: Machine) -> None:
    job = machine.job(CPU)
    release = PublishedRelease(identifier=CPU, tensorflow="2.15.1", created=EPOCH)
    expected = SentImage(job=job, digest=job.digest, release=release, level=Level.VALIDATED, is_new=True, reused=False)
    session = machine.session()
    assert send(job, session) == expected
    promote([expected], session)
    assert send(job, session) == replace(expected, is_new=False, reused=True)
    assert send(job, replace(session, revalidate=True)) == replace(expected, is_new=False)


def test_a_plan_of_what_is_there_names_its_digest_and_compares_its_time(machine: Machine) -> None:
    (digest,) = machine.publish_builds(5)
    newer = put_image(machine.registry, "2.15.1-cpu-py3.10", tag="2.15")
    job = machine.job(CPU)
    config = machine.engine[job.name].document["config"]["digest"]
    for known in (job, replace(job, digest=config)):  # an engine may name it by its configuration
        planned = machine.plan(known)
        assert (planned.status, planned.digest, planned.level) == ("unchanged", digest, "validated")
        why = {decision.tag: (decision.verdict, decision.why, decision.before) for decision in planned.decisions}
        assert why["2.15"] == ("refuse", "it points to a newer build, of 2026-03-01T00:00:00+00:00", newer.digest)
        assert why.keys() == {make_build_tag(CPU, digest), CPU, "2.15.1", "2.15"}
    del machine.registry.named[CPU]
    planned = machine.plan(job)
    assert (planned.status, planned.digest) == ("planned", digest), "it is there by its digest"
    assert {one.tag: one.verdict for one in planned.decisions}["2.15"] == "refuse", "its time is known there too"


def test_an_attested_promotion_keeps_what_the_tag_pointed_to_before(machine: Machine, registry: MemoryRegistry) -> None:
    old, new = machine.publish_builds(5, 0)
    withdrawal = Withdrawal(
        repository=registry.repository, tags=None, reason="x", replacement=None, time=machine.now(), publisher="me"
    )
    machine.repository().attach(new, withdrawal)
    publication = machine.publish(reinstate=True)
    assert set(verdicts(publication, CPU).values()) == {"attest"}
    assert publication.images[0].status == "published"
    assert machine.chain() == [(new, True), (old, True)]


def test_a_policy_may_let_an_alias_promise_less_in_writing(machine: Machine, registry: MemoryRegistry) -> None:
    machine.policy = Policy(promises=(TagPromise(tags="*-gpu", level=Level.LINKED, reason="no machine has a GPU"),))
    machine.publish(GPU)
    assert "2.15-gpu" in machine.tags


def test_an_image_that_fails_has_no_tag_and_the_others_have_theirs(machine: Machine, registry: MemoryRegistry) -> None:
    machine.reports[CPU] = RED
    publication = machine.publish(CPU, "2.16.1-cpu-py3.11")
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
        machine.publish(CPU, GPU, "2.16.1-cpu-py3.11").raise_for_failures()
    assert {tag.partition("-")[0] for tag in machine.tags} == {"2.16.1"}


def test_an_image_that_the_registry_does_not_take_fails_alone(machine: Machine) -> None:
    class RefusedSteps(MemorySteps):
        def push(self, job: PublishJob, candidate: str, on_event: OnEvent) -> str:
            if job.identifier == CPU:
                raise TagImmutable(f"{candidate} is immutable.", next_step="Ask.")
            return super().push(job, candidate, on_event)

    session = replace(machine.session(), steps=RefusedSteps(machine, machine.registry))
    publication = publish_jobs([machine.job(CPU), machine.job(GPU)], session)
    assert [image.status for image in publication.images] == ["failed", "published"]
    assert isinstance(publication.images[0].failure, TagImmutable)


def test_a_program_reads_what_became_of_each_image(machine: Machine, registry: MemoryRegistry) -> None:
    machine.reports[CPU] = RED
    red, green = (image.to_json() for image in machine.publish(CPU, GPU).images)
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
    put_image(machine.registry, CPU, tag=CPU)
    machine.leaks.add(CPU)
    (image,) = machine.publish().images
    assert isinstance(image.failure, SecretFound)
    assert machine.done == [("scan", CPU)]
    machine.leaks.clear()
    machine.publish()
    assert machine.steps == ["scan", "scan", "validate", "attach"]


def test_a_plan_says_the_same_before_as_what_is_done_after(machine: Machine, registry: MemoryRegistry) -> None:
    jobs = [machine.job(identifier) for identifier in (CPU, GPU)]
    line = Line(registry)
    decider = TagDecider(registry=line, trusted=machine.trusted, policy=Policy())
    before = [plan_job(job, decider) for job in jobs]
    assert registry.named == {}
    assert not [call for call in line.calls if call[0] == "referrers"], "an image that is not there has no attestations"
    for expected, image in zip(before, machine.publish(CPU, GPU).images, strict=True):
        done = {decision.tag: (decision.verdict, decision.why) for decision in image.decisions}
        planned = {decision.tag: (decision.verdict, decision.why) for decision in expected.decisions}
        assert planned.items() <= done.items()
        assert len(done) - len(planned) == 1, "a build's own tag has its digest, which is not known before"


@pytest.mark.parametrize("theirs", [None, "2.16.1-cpu-py3.11"])
@pytest.mark.parametrize("tag", ["2.15", CPU])
def test_every_tag_is_read_back_after_the_last_one_was_moved(machine: Machine, tag: str, theirs: str | None) -> None:
    line = Line(machine.registry)

    def change(call: Call) -> None:
        if call == ("find", tag) and ("put", "2.15") in line.calls:
            if theirs:
                put_image(machine.registry, theirs, tag=tag)
            else:
                del machine.registry.named[tag]

    line.before = change
    missing = (
        f"The tag {tag} is missing from {machine.registry.repository} after it was published. Another program may "
        "delete tags there; run the same command again."
    )
    says = rf"^{tag} points to sha256:" if theirs else exactly(missing)
    with pytest.raises(TagConflict if theirs else PublicationIncomplete, match=says):
        machine.publish(via=line)


def test_a_tag_that_need_not_be_moved_is_read_back_too(machine: Machine, registry: MemoryRegistry) -> None:
    machine.publish()
    line = Line(registry)
    line.before = at(("find", "2.15"), lambda: ("find", "2.15") in line.calls and registry.named.pop("2.15"))
    with pytest.raises(PublicationIncomplete, match=r"^The tag 2\.15 is missing "):
        machine.publish(via=line)


def test_an_image_that_was_pushed_and_has_no_tag_is_published(machine: Machine) -> None:
    machine.policy = Policy(promises=(TagPromise(tags="*", level=Level.VALIDATED, reason="all are tested"),))
    (image,) = machine.publish(GPU).images
    assert {decision.verdict for decision in image.decisions} == {"refuse"}
    assert image.status == "published"


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step_and_run_again_everything_is_there_once(memory_folder: Path, when: str) -> None:
    first = Machine(memory_folder / "first")
    (old,) = first.publish_builds(99)
    for point in range(1, 400):
        machine = Machine(memory_folder / f"{point}", deepcopy(first.registry), seconds=9)
        run = machine.run = Mortal(machine.registry, point, when)
        with suppress(Killed):
            machine.publish(CPU, GPU, via=run.line)
        if not run.dead:
            assert point > 50
            break
        for tag, digest in machine.tags.items():
            if digest != old and not tag.startswith("candidate-"):
                machine.prove(digest, "linked")
        machine.run = None
        images = machine.publish(CPU, GPU).images
        assert [image.failure for image in images] == [None, None]
        assert not [tag for tag in machine.tags if tag.startswith("candidate-")]
        assert machine.candidates == set()
        assert machine.tags["2.15"] == machine.tags["2.15.1"] == images[0].digest
        assert machine.steps.count("push") <= 3
        for image in images:
            kinds = [one.artifact_type for one in machine.registry.list_referrers(str(image.digest))]
            assert kinds == [BUNDLE_MEDIA_TYPE] * 2, "a test result and a promotion refer to the image"
            moves = machine.moved(image.digest)
            assert sorted(moves) == sorted(set(moves)), "no promotion is signed twice"
        assert [digest for digest, _ in machine.chain()] == [images[0].digest, old]


def test_what_an_earlier_run_pushed_is_not_pushed_again(machine: Machine) -> None:
    line = Line(machine.registry, before=fail_at(("find", machine.job(CPU).digest), registry_gone()))  # to validate it
    with pytest.raises(NetworkError):
        machine.publish(via=line)
    assert [tag.partition("-")[0] for tag in machine.tags] == ["candidate"]
    machine.done.clear()
    (image,) = machine.publish().images
    assert machine.steps == ["scan", "validate", "attach"]
    assert image.status == "published"
    machine.publish_builds(-1)
    assert ("push", CPU) in machine.done, "another build"


def test_an_image_whose_exact_tag_another_publisher_moves_fails_alone(machine: Machine) -> None:
    other = "2.16.1-cpu-py3.11"
    line = Line(machine.registry, after=at(("put", CPU), lambda: put_image(line.to, "2.15.1-cpu-py3.10", tag=CPU)))
    failed, published = machine.publish(CPU, other, via=line).images
    assert isinstance(failed.failure, TagConflict)
    assert failed == PublishResult(
        identifier=CPU, status="failed", digest=machine.job(CPU).digest, level=Level.VALIDATED, failure=failed.failure
    )
    assert (published.identifier, published.status, published.digest) == (other, "published", machine.tags[other])
    assert "2.15" not in machine.tags


def test_candidates_that_the_registry_does_not_delete_are_named(machine: Machine, registry: MemoryRegistry) -> None:
    registry.deletes = False
    publication = machine.publish()
    (left,) = publication.candidates
    assert left.startswith("candidate-")
    assert registry.named[left] == registry.named["2.15"] == publication.images[0].digest
    registry.deletes = True
    (image,) = machine.publish().images
    assert image.status == "unchanged"
    assert machine.publish().candidates == ()


def test_without_a_list_of_tags_images_are_published_and_their_candidates_removed(
    machine: Machine, registry: MemoryRegistry
) -> None:
    """Some accounts may push and pull, and not list."""
    refusal = RegistryError("The registry denies permission to read.", next_step="Log in.")
    line = Line(registry, before=fail_at(("tags", ""), refusal))
    reported: list[Event] = []
    session = replace(machine.session(line), on_event=reported.append)
    (image,) = publish_jobs([machine.job(CPU)], session).images
    assert image.status == "published"
    assert not [tag for tag in machine.tags if tag.startswith("candidate-")]
    assert [event.text for event in reported if isinstance(event, WarningEvent)] == [
        "Candidates of earlier runs may remain, as the registry lists no tags: The registry denies permission to read."
    ]


def test_an_invalid_index_under_a_tag_is_named(machine: Machine, registry: MemoryRegistry) -> None:
    index = Manifest(media_type=OCI_INDEX, content=b'{"manifests": 7}')
    registry.put("2.15", index)
    says = (
        f"{registry.repository}@{index.digest} is malformed: manifests: input should be a valid tuple. Do not use the "
        "image; if you have published it, push it again."
    )
    with pytest.raises(TamperedError, match=exactly(says)):
        machine.plan(machine.job(CPU))


def test_repositories_that_look_alike_have_locks_of_their_own(tmp_path: Path) -> None:
    names = ["host/a/b", "host/a_b", "host:1/a", "host_1/a", "host/a.b", "host/a-b"]
    folders = {
        Machine(tmp_path, MemoryRegistry(repository=name)).repository().lock_file("2.15").parent for name in names
    }
    assert len(folders) == len(names)
    assert {folder.parent for folder in folders} == {tmp_path / "publish"}


def test_a_candidate_whose_digest_is_not_the_one_that_the_engine_pushed_gets_no_tag(machine: Machine) -> None:
    class OtherSteps(MemorySteps):
        def push(self, job: PublishJob, candidate: str, _: OnEvent) -> str:
            put_image(machine.registry, job.identifier, age=99, tag=candidate)
            return job.digest

    says = (
        rf"^The engine pushed candidate-\w+-{CPU}-\w+ to {machine.registry.repository} as sha256:\w+, but the registry "
        r"does not have it\. Run the command again; if it fails again, check the proxies between engine and registry\.$"
    )
    session = replace(machine.session(), steps=OtherSteps(machine, machine.registry))
    with pytest.raises(PublicationIncomplete, match=says):
        publish_jobs([machine.job(CPU)], session)
    assert machine.done == [("scan", CPU)], "nothing is validated or attached"
    assert [tag for tag in machine.registry.named if not tag.startswith("candidate-")] == []


def test_the_next_run_removes_what_killed_runs_of_this_machine_left(machine: Machine, registry: MemoryRegistry) -> None:
    """Also of another image or build; another machine's candidates and those of a running process stay."""
    other = "2.16.1-cpu-py3.11"
    prefix = machine.repository().candidate_prefix
    elsewhere = Machine(machine.folder.parent / "elsewhere", registry).repository()
    put_image(registry, other, tag=f"{prefix}{other}")
    put_image(registry, other, tag=f"{elsewhere.candidate_prefix}{other}")
    put_image(registry, GPU, tag=f"{prefix}{GPU}")
    machine.candidates |= {f"{prefix}{name}" for name in (other, GPU, CPU)}
    with machine.repository().lock_tags([f"{prefix}{GPU}"]):
        machine.publish()
    kept = {tag for tag in registry.named if tag.startswith("candidate-")}
    assert kept == {f"{elsewhere.candidate_prefix}{other}", f"{prefix}{GPU}"}
    assert machine.candidates == {f"{prefix}{GPU}"}
    machine.publish()
    assert {tag for tag in registry.named if tag.startswith("candidate-")} == {f"{elsewhere.candidate_prefix}{other}"}
    assert machine.candidates == set()


def test_candidates_are_of_one_machine_and_repository(tmp_path: Path) -> None:
    def prefix(folder: str = "a", repository: str = "h/a", publisher: str = "me") -> str:
        machine = Machine(tmp_path / folder, MemoryRegistry(repository=repository))
        return replace(machine.repository(), publisher=publisher).candidate_prefix

    prefixes = [prefix(), prefix(folder="b"), prefix(repository="h/b"), prefix(publisher="other")]
    assert len(set(prefixes)) == 4
    assert prefix() == prefixes[0], "the next run knows it"
    assert all(re.fullmatch("candidate-[0-9a-f]{8}-", one) for one in prefixes)


def test_a_process_waits_for_another_that_sends_the_same_image(machine: Machine) -> None:
    events: list[Event] = []
    candidate = machine.session().candidate(machine.job(CPU))
    with ExitStack() as stack:
        stack.enter_context(machine.repository().lock_tags([candidate]))

        def on_event(event: Event) -> None:
            if not events:
                assert machine.done == []
                stack.close()
            events.append(event)

        publish_jobs([machine.job(CPU)], replace(machine.session(), on_event=on_event))
    assert events[0] == InfoEvent(text=f"Waiting for another process that writes to {machine.registry.repository}.")
    assert "2.15" in machine.tags


def test_what_an_attacker_labels_as_a_newer_release_does_not_block_a_tag_for_good(machine: Machine) -> None:
    """Labels count for nothing: the tag has no test result of a trusted key, which is the reason."""
    machine.publish_builds(5)
    forged = put_image(machine.registry, "9.9.9-cpu-py3.11", tag="2.15")
    machine.ages[CPU] = 0
    (image,) = machine.publish().images
    (decision,) = [one for one in image.decisions if one.tag == "2.15"]
    assert decision.verdict == "refuse"
    assert f"it points to {forged.digest}, which has no test result of a trusted key" in decision.why
    assert machine.tags["2.15.1"] == image.digest


def test_any_publisher_completes_a_promotion_that_was_attached(memory_folder: Path, registry: MemoryRegistry) -> None:
    """Killed before it moved the aliases; another machine with the key publishes the same image."""
    one, two = Machine(memory_folder / "one", registry), Machine(memory_folder / "two", registry, seconds=9)
    with pytest.raises(Killed):
        one.publish(via=Line(registry, before=fail_at(("put", "2.15.1"), Killed())))
    assert CPU in one.tags
    assert "2.15" not in one.tags
    (image,) = two.publish().images
    assert two.tags["2.15"] == two.tags["2.15.1"] == image.digest
    assert len(two.statements(str(image.digest)).promotions) == 1


def test_an_image_that_was_tagged_without_a_promotion_is_attested(machine: Machine, registry: MemoryRegistry) -> None:
    machine.publish()
    registry.manifests = {
        digest: one for digest, one in registry.manifests.items() if b"urn:tfimg:promotion" not in one.content
    }
    for verdict in ("attest", "stay"):
        assert set(verdicts(machine.publish(), CPU).values()) == {verdict}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(st.integers(min_value=0, max_value=1), max_size=150))
def test_two_publishers_at_once_end_or_stop_with_a_conflict_and_the_next_run_settles_it(
    memory_folder: Path, turns: Sequence[int]
) -> None:
    """Their calls overlap in every order that is drawn. A run that ends without a conflict had all of its tags."""
    folder = Path(tempfile.mkdtemp(dir=memory_folder))
    registry = MemoryRegistry()
    machines = [Machine(folder / f"{number}", registry) for number in range(2)]
    rounds, failed = Rounds(turns, 2), list[BaseException]()

    def publisher(number: int) -> None:
        machines[number].ages[CPU] = number
        try:
            machines[number].publish(via=Line(registry, before=lambda _: rounds.wait(number)))
        except TagConflict:
            pass
        except BaseException as error:
            failed.append(error)
        finally:
            rounds.leave(number)

    at_once(publisher, 2)
    assert failed == []
    machine = machines[0]
    for tag, digest in machine.tags.items():
        machine.prove(digest, "validated")
        assert tag.startswith("candidate-") or machine.verified(tag)
    machine.seconds = 99
    (image,) = machine.publish().images
    assert {machine.tags[tag] for tag in (CPU, "2.15.1", "2.15")} == {image.digest}, "the newer build has all tags"


def test_a_promotion_that_the_registry_loses_moves_no_tag(machine: Machine, registry: MemoryRegistry) -> None:
    def lose(call: Call) -> None:
        if call[0] == "referrers":
            lost = [one for one in registry.manifests.values() if b"urn:tfimg:promotion" in one.content]
            for manifest in lost:
                del registry.manifests[manifest.digest]
            registry.named = {tag: one for tag, one in registry.named.items() if one in registry.manifests}

    says = (
        rf"^A statement about the tags of {registry.repository}@sha256:\w+ was attached, but the registry does not "
        r"return it\. Run the same command again; if it fails again, look for what deletes referrers there\.$"
    )
    with pytest.raises(PublicationIncomplete, match=says):
        machine.publish(via=Line(registry, before=lose))
    assert {tag for tag in machine.tags if not tag.startswith("candidate-")} == set()


# Without the command line

ARM = f"{CPU}-arm64"
TAGS = (CPU, "2.15.1", "2.15", "2.15-py3.11")


def test_a_program_publishes_rolls_back_and_reads_the_history(world: World) -> None:
    events, repository, builds = list[Event](), world.repository(), list[str]()
    for age in (5, 0):
        builds.append(world.engine.has(CPU, age=age))
        publication = world.publish(CPU, on_event=events.append)
        publication.raise_for_failures()
        assert [image.digest for image in publication.images] == builds[-1:]
    roll_back(repository, "2.15", to=builds[:1], reason="wrong cuDNN")
    history = tag_history(world.registry, "2.15", repository.trusted, limit=9)
    old, new = builds
    assert [(entry.kind, entry.digest) for entry in history] == [
        ("promotion", old), ("withdrawal", new), ("promotion", new), ("promotion", old),
    ]  # fmt: skip
    world.publish(CPU, reinstate=True).raise_for_failures()
    history = tag_history(world.registry, "2.15", repository.trusted, limit=9)
    assert [(entry.kind, entry.digest, entry.in_force) for entry in history] == [
        ("promotion", new, None), ("withdrawal", new, False), ("promotion", old, None), ("promotion", new, None),
        ("promotion", old, None),
    ]  # fmt: skip
    done = [event.step for event in events if isinstance(event, StepEvent) and event.state == "done"]
    assert f"{CPU}: validate by digest" in done


def test_both_platforms_get_an_index_of_which_each_image_has_its_own_attestations(world: World) -> None:
    engine, registry, repository = world.engine, world.registry, world.repository()
    engine.emulates = True
    amd64 = engine.has(CPU, age=5)
    world.publish(CPU, ARM).raise_for_failures()
    assert {found.digest for tag in TAGS if (found := registry.find(tag))} == {amd64}, "one platform alone: a manifest"
    arm64 = engine.has(ARM)
    world.publish(CPU, ARM).raise_for_failures()
    for tag in TAGS:
        index = registry.find(tag)
        assert index is not None
        assert [(one.platform.architecture, one.digest) for one in index.index.manifests] == [
            ("amd64", amd64), ("arm64", arm64),
        ], tag  # fmt: skip
        assert list(registry.list_referrers(index.digest)) == [], "it has no attestations of its own"
        assert world.tags[find_platform_tag(tag, "linux/arm64")] == arm64
    levels = {
        platform: verify(registry, digest, repository.trusted, Policy(), now=repository.now(), tag=tag).outcome
        for platform, digest, tag in (("amd64", amd64, "2.15.1"), ("arm64", arm64, "2.15.1-arm64"))
    }
    assert {platform: outcome.proven_level for platform, outcome in levels.items()} == {
        "amd64": "validated", "arm64": "linked",
    }  # fmt: skip
    sent = len(registry.sent)
    again = world.publish(CPU, ARM)
    assert {image.status for image in again.images} == {"unchanged"}
    assert {decision.verdict for image in again.images for decision in image.decisions} == {"stay"}
    assert registry.sent[sent:] == [], "nothing is sent again"
