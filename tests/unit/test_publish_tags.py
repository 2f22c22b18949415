"""Tags: decided by rules, moved together or not at all, and never those of another publisher."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from support.memory_registry import MemoryRegistry
from support.messages import exactly
from support.published_images import EPOCH, Call, Line, at, fail_at, put_image, registry_gone
from support.signing import OURS
from support.statements import FAILED, LINKED, ON_GPU, make_statements
from tfimg.attestations.attach import attach
from tfimg.attestations.policy import TagPromise
from tfimg.attestations.promotions import (
    ImageStatements,
    Promotion,
    SignedPredicate,
    TagMove,
    Withdrawal,
    read_image_statements,
)
from tfimg.core.errors import NetworkError, NotInRegistry, PublicationIncomplete, TagConflict, TamperedError
from tfimg.core.levels import Level
from tfimg.publish.history import build_tags
from tfimg.publish.tags import (
    Decision,
    Move,
    PublishedRelease,
    Question,
    TaggedImage,
    decide,
    move_tags,
    read_release,
    read_signed_image,
)
from tfimg.registry.documents import OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, Manifest
from tfimg.validation.report import Report

PROMISE = TagPromise(tags="*-gpu", level=Level.VALIDATED, reason="it was seen there")
LESS = replace(PROMISE, level="linked")
NEW = PublishedRelease(identifier="2.15.1-cuda12.2-py3.11", tensorflow="2.15.1", created=EPOCH)
EARLIER = replace(NEW, created=EPOCH - timedelta(hours=1))
THERE = Manifest(media_type=OCI_MANIFEST, content=b"there")


REPOSITORY = "registry.test:5000/team/tensorflow"
NEW_DIGEST = f"sha256:{1:064x}"
OLDER = "only `tfimg rollback` moves a tag to an older release"


def question(current: PublishedRelease | None = None, **more: object) -> Question:
    there = TaggedImage(digest=THERE.digest, release=current) if current else None
    case = Question(
        repository=REPOSITORY, tag="2.15-gpu", kind="alias", digest=NEW_DIGEST, release=NEW, level=Level.VALIDATED,
        current=there, statements=ImageStatements(), promise=PROMISE,
    )  # fmt: skip
    return replace(case, **more)  # type: ignore[arg-type]


def with_promotion(tag: str = "2.15-gpu") -> ImageStatements:
    promotion = Promotion(
        repository=REPOSITORY, tags=(TagMove(tag=tag, previous=None),), time=EPOCH, publisher="me",
        reason="publish", tfimg="0",
    )  # fmt: skip
    return ImageStatements(promotions=(SignedPredicate(statement=NEW_DIGEST, signer="ours", predicate=promotion),))


def with_withdrawal(*tags: str) -> ImageStatements:
    withdrawal = Withdrawal(
        repository=REPOSITORY, tags=tags or None, reason="wrong cuDNN", replacement=None, time=EPOCH,
        publisher="me",
    )  # fmt: skip
    return ImageStatements(withdrawals=(SignedPredicate(statement=NEW_DIGEST, signer="ours", predicate=withdrawal),))


def refusal_reason(case: Question) -> str:
    decision = decide(case)
    assert decision.verdict == "refuse"
    return decision.why


def test_a_new_tag_is_given() -> None:
    assert decide(question()) == Decision(tag="2.15-gpu", kind="alias", verdict="move", why="new", before=None)


def test_a_newer_release_or_build_replaces_an_older_one() -> None:
    older = replace(NEW, identifier="2.15.0-cuda12.2-py3.11", tensorflow="2.15.0")
    decision = decide(question(older))
    assert (decision.verdict, decision.before) == ("move", THERE.digest)
    assert decision.why == f"replaces 2.15.0-cuda12.2-py3.11 {THERE.digest[:19]}"
    assert decide(question(EARLIER)).verdict == "move"


def test_an_identifier_cannot_write_on_the_terminal() -> None:
    decision = decide(question(replace(NEW, identifier="a\x1b[2Jb")))
    assert decision.why == f"replaces ab {THERE.digest[:19]}"


def test_a_tag_that_points_there_and_was_promoted_stays_whatever_else_is_the_case() -> None:
    same = question(NEW, digest=THERE.digest, level=Level.BUILT, statements=with_promotion())
    assert (decide(same).verdict, decide(same).why) == ("stay", "it already points to this image")


def test_a_tag_that_points_there_without_a_promotion_is_attested() -> None:
    for statements in (ImageStatements(), with_promotion("latest")):
        assert decide(question(NEW, digest=THERE.digest, statements=statements)).verdict == "attest"
    assert "it promises validated" in refusal_reason(question(NEW, digest=THERE.digest, level=Level.LINKED))
    foreign = TaggedImage(digest=THERE.digest, release=None)
    decision = decide(replace(question(digest=THERE.digest), current=foreign))
    says = "it already points to this image, but no signed promotion says so"
    assert (decision.verdict, decision.why, decision.before) == ("attest", says, THERE.digest)


def release(tensorflow: str = "2.15.1", **age: int) -> PublishedRelease:
    return replace(NEW, tensorflow=tensorflow, created=EPOCH - timedelta(**age))


@pytest.mark.parametrize(
    ("current", "new", "why"),
    [
        (NEW, release("2.10.0"), f"it points to TensorFlow 2.15.1: {OLDER}"),
        (release("2.9.3"), release("2.10.0"), ""),
        (release("2.16.0", days=9), NEW, f"it points to TensorFlow 2.16.0: {OLDER}"),
        (release("2.14.0", days=-9), NEW, ""),
        (release(seconds=-1), NEW, "it points to a newer build, of 2026-03-01T00:00:01+00:00"),
        (replace(NEW, created=None), NEW, ""),
    ],
    ids=["a version, not text", "10 after 9", "older release, newer build", "newer release, older build", "older build",
         "a build of an unknown time"],
)  # fmt: skip
def test_a_tag_moves_to_newer_releases_and_builds_alone(
    current: PublishedRelease, new: PublishedRelease, why: str
) -> None:
    decision = decide(question(current, release=new))
    assert (decision.verdict, why) == (("refuse", decision.why) if why else ("move", ""))


@pytest.mark.parametrize("level", [Level.DECLARED, Level.BUILT, Level.LINKED])
def test_a_tag_that_promises_a_level_is_given_to_none_below(level: Level) -> None:
    why = refusal_reason(question(level=level))
    assert why == (
        f"it promises validated (it was seen there), and the image is only {level}: publish it on a machine with its "
        "accelerator, or lower the promise in a policy file, with the reason"
    )
    less = replace(PROMISE, level=level)
    assert decide(question(level=level, promise=less)).verdict == "move"


def test_a_tag_never_loses_a_level_though_it_promises_less() -> None:
    current = TaggedImage(digest=THERE.digest, release=EARLIER, level=Level.VALIDATED)
    case = replace(question(level=Level.LINKED, promise=LESS), current=current)
    assert refusal_reason(case) == "it points to an image that is validated, and this one is only linked"


@pytest.mark.parametrize("tags", [(), ("2.15-gpu",)])
@pytest.mark.parametrize("present", [NEW_DIGEST, THERE.digest])
def test_a_withdrawn_image_gets_and_keeps_a_tag_only_when_it_is_reinstated(tags: tuple[str, ...], present: str) -> None:
    case = question(EARLIER, digest=present, statements=with_withdrawal(*tags))
    assert refusal_reason(case) == "the image was withdrawn (wrong cuDNN): --reinstate cancels that"
    decision = decide(replace(case, reinstate=True))
    assert (decision.verdict, decision.cancels) == ("move" if present == NEW_DIGEST else "attest", (NEW_DIGEST,))
    assert decide(replace(case, tag="2.15.1-gpu")).verdict == ("refuse" if not tags else decision.verdict)


def test_a_tag_without_a_trusted_test_result_is_left_and_the_next_step_named() -> None:
    why = refusal_reason(replace(question(), current=TaggedImage(digest=THERE.digest, release=None)))
    assert why == (
        f"it points to {THERE.digest}, which has no test result of a trusted key: trust its publisher's key with "
        "--public-key, or delete the tag in the registry"
    )


def test_a_build_s_own_tag_is_never_another_s() -> None:
    assert refusal_reason(question(EARLIER, kind="build")) == f"it belongs to another build: {THERE.digest}"


def test_an_artifact_without_a_configuration_is_no_image_of_tfimg(registry: MemoryRegistry) -> None:
    described = {"mediaType": "application/x", "digest": NEW_DIGEST, "size": 2}
    strange = Manifest(media_type=OCI_MANIFEST, content=json.dumps({"config": described}).encode())
    registry.put("1", strange)
    assert read_release(registry, strange) is None


def put_index(registry: MemoryRegistry, *entries: Manifest, unknown: int = 0) -> Manifest:
    """Put an index whose first `unknown` entries are attestations, as buildx adds them."""
    manifests = [
        {
            **entry.descriptor.to_document(),
            "platform": dict.fromkeys(("os", "architecture"), "unknown" if number < unknown else "amd64"),
        }
        for number, entry in enumerate(entries)
    ]
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}
    index = Manifest(media_type=OCI_INDEX, content=json.dumps(document).encode())
    registry.put(index.digest, index)
    return index


def test_the_release_of_an_index_is_that_of_its_first_image(registry: MemoryRegistry) -> None:
    image, other = (put_image(registry, identifier) for identifier in (NEW.identifier, "2.16.1-cpu-py3.11"))
    index = put_index(registry, other, image, other, unknown=1)
    for _ in range(5):
        assert read_release(registry, index) == NEW
        index = put_index(registry, index)
    assert read_release(registry, put_index(registry)) is None
    assert read_release(registry, put_index(registry, other, unknown=1)) is None
    lost = put_index(registry, image)
    del registry.manifests[image.digest]
    assert read_release(registry, lost) is None


@pytest.mark.parametrize(("report", "level"), [(ON_GPU, Level.VALIDATED), (LINKED, Level.LINKED), (FAILED, None)])
def test_the_level_of_an_image_is_what_its_signed_test_result_proves(
    report: Report, level: Level | None, registry: MemoryRegistry
) -> None:
    image = put_image(registry, NEW.identifier)
    attach(registry, image.digest, make_statements(report, of=image.digest), key=OURS)
    statements = read_image_statements(registry, image.digest, [OURS.verifying_key])
    assert read_signed_image(registry, image, statements) == TaggedImage(digest=image.digest, release=NEW, level=level)


def test_an_image_whose_label_is_not_a_version_is_no_image_of_tfimg(registry: MemoryRegistry) -> None:
    labels = {"tfimg.identifier": "2.15.1-cpu-py3.11", "tfimg.tensorflow": "newest"}
    config = json.dumps({"config": {"Labels": labels}}).encode()
    described = replace(registry.put_blob(config), media_type=OCI_CONFIG)
    manifest = Manifest(media_type=OCI_MANIFEST, content=json.dumps({"config": described.to_document()}).encode())
    registry.put("1", manifest)
    assert read_release(registry, manifest) is None


@pytest.mark.parametrize("config", [b"[]", b"no", b'{"config": []}', b"[" * 9999])
def test_an_invalid_configuration_is_refused(config: bytes, registry: MemoryRegistry) -> None:
    described = replace(registry.put_blob(config), media_type=OCI_CONFIG)
    manifest = Manifest(media_type=OCI_MANIFEST, content=json.dumps({"config": described.to_document()}).encode())
    registry.put("1", manifest)
    with pytest.raises(TamperedError):
        read_release(registry, manifest)


DECIDE_ANEW = "Run the same command again; it decides about each tag again. `tfimg history` shows the other publisher."
TAGS = ("2.15.1", "2.15", "latest")


def moves(new: Manifest, old: Manifest | None, tags: Sequence[str] = TAGS) -> list[Move]:
    return [Move(tag=tag, before=old.digest if old else None, after=new.digest) for tag in tags]


def where(registry: MemoryRegistry, tags: Sequence[str] = TAGS) -> list[str | None]:
    return [registry.named.get(tag) for tag in tags]


def test_a_tag_that_came_or_went_since_it_was_decided_is_left() -> None:
    shared, old, new = images()
    says = f"2.15.1 points to {old.digest} instead of nothing: another publisher moved it. {DECIDE_ANEW}"
    with pytest.raises(TagConflict, match=exactly(says)):
        move_tags(shared, moves(new, None))
    shared.named.clear()
    says = f"2.15.1 points to nothing instead of {old.digest}: another publisher moved it. {DECIDE_ANEW}"
    with pytest.raises(TagConflict, match=exactly(says)):
        move_tags(shared, moves(new, old))
    assert shared.named == {}


def images(deletes: bool = True) -> tuple[MemoryRegistry, Manifest, Manifest]:
    """Return a registry with an old image that all tags point to, and a new one."""
    registry = MemoryRegistry(deletes=deletes)
    old = put_image(registry, "2.15.0-cpu-py3.11")
    for tag in TAGS:
        registry.put(tag, old)
    return registry, old, put_image(registry, "2.15.1-cpu-py3.11")


@pytest.mark.parametrize("existed", [True, False])
def test_where_the_registry_goes_away_and_comes_back_all_tags_are_rolled_back(existed: bool) -> None:
    for number in range(7):  # the image is read; each of the three is read and written
        shared, old, new = images()
        if not existed:
            shared.named.clear()
        line, before = Line(shared), dict(shared.named)

        def cut(_: Call, line: Line = line, number: int = number) -> None:
            if len(line.calls) == number:
                line.calls.append(("cut", ""))
                raise registry_gone()

        line.before = cut
        with pytest.raises(NetworkError):
            move_tags(line, moves(new, old if existed else None))
        assert shared.named == before


def test_a_move_whose_answer_is_lost_is_rolled_back_too() -> None:
    shared, old, new = images()

    def lose(call: Call) -> None:
        if call == ("put", "latest") and shared.named["latest"] == new.digest:
            line.after = lambda _: None
            raise NetworkError("The answer is lost.", next_step="Try again.")

    line = Line(shared, after=lose)
    with pytest.raises(NetworkError):
        move_tags(line, moves(new, old))
    assert where(shared) == [old.digest] * 3


def test_tags_that_cannot_be_rolled_back_are_named_with_the_failure() -> None:
    shared, old, new = images()

    def leave(_: Call) -> None:
        if len(line.calls) >= 4:
            raise registry_gone()

    line = Line(shared, before=leave)
    says = (
        f"2.15, 2.15.1 of {shared.repository} could not be rolled back after this failure: The registry is gone. Try "
        "again. Run the same command again to move the other tags too."
    )
    with pytest.raises(PublicationIncomplete, match=exactly(says)):
        move_tags(line, moves(new, old))
    assert where(shared) == [new.digest, old.digest, old.digest]


full = fail_at(("put", "latest"), NetworkError("The registry is full.", next_step="Try again."))


def test_a_refused_deletion_of_a_new_tag_is_an_error() -> None:
    shared, _, new = images(deletes=False)
    shared.named.clear()
    with pytest.raises(PublicationIncomplete, match=r"^2\.15, 2\.15\.1 of .* could not be rolled back"):
        move_tags(Line(shared, before=full), moves(new, None))
    assert where(shared) == [new.digest, new.digest, None]


def test_new_tags_which_a_registry_may_not_delete_are_moved_last() -> None:
    shared, old, new = images(deletes=False)
    del shared.named["2.15.1"]
    wanted = [replace(move, before=shared.named.get(move.tag)) for move in moves(new, old)]
    with pytest.raises(NetworkError, match="is full"):
        move_tags(Line(shared, before=full), wanted)
    assert where(shared) == [None, old.digest, old.digest]


def test_a_tag_that_another_publisher_moves_between_reading_and_writing_is_left() -> None:
    shared, old, new = images()
    theirs = put_image(shared, "2.15.1-cpu-py3.10")
    line = Line(shared, after=at(("put", "2.15"), lambda: shared.put("2.15", theirs)))
    with pytest.raises(TagConflict):
        move_tags(line, moves(new, old))
    assert where(shared) == [old.digest, theirs.digest, old.digest]


def test_what_a_killed_run_moved_is_rolled_back_with_the_rest() -> None:
    shared, old, new = images()
    shared.put("2.15.1", new)
    with pytest.raises(NetworkError):
        move_tags(Line(shared, before=full), moves(new, old))
    assert where(shared) == [old.digest] * 3


def test_an_image_that_was_deleted_is_given_no_tag() -> None:
    registry, old, new = images()
    del registry.manifests[new.digest]
    says = f"The registry has no {registry.repository}@{new.digest}. Another program deleted it. Publish it again."
    with pytest.raises(NotInRegistry, match=exactly(says)):
        move_tags(registry, moves(new, old))
    assert where(registry) == [old.digest] * 3


def test_build_tags_are_listed_from_the_newest_release() -> None:
    wanted = [f"{name}-{'0' * 12}" for name in ("2.15.1-cpu-py3.11", "2.15.1-cpu-py3.10", "2.9.3-cpu-py3.8", "x-cpu")]
    assert build_tags([*reversed(wanted), "latest", "2.15.1-cpu-py3.11", f"2.15-{'0' * 11}"]) == wanted
