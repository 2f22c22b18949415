"""Decisions about tags: only forward, at the promised level, and never to a withdrawn image."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from support.memory_registry import MemoryRegistry
from support.published_images import EPOCH, put_image
from tfimg.attestations.policy import TagPromise
from tfimg.attestations.promotions import ImageStatements, Promotion, SignedPredicate, TagMove, Withdrawal
from tfimg.core.errors import TamperedError
from tfimg.core.levels import Level
from tfimg.publish.tags import Decision, Question, Release, TaggedImage, decide, read_release
from tfimg.registry.documents import OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, Manifest

PROMISE = TagPromise(tags="*-gpu", level=Level.VALIDATED, reason="it was seen there")
LESS = replace(PROMISE, level=Level.LINKED)
NEW = Release(identifier="2.15.1-cuda12.2-py3.11", tensorflow="2.15.1", created=EPOCH)
EARLIER = replace(NEW, created=EPOCH - timedelta(hours=1))
THERE = Manifest(media_type=OCI_MANIFEST, content=b"there")


REPOSITORY = "registry.test:5000/team/tensorflow"
NEW_DIGEST = f"sha256:{1:064x}"


def question(current: Release | None = None, **more: object) -> Question:
    there = TaggedImage(digest=THERE.digest, release=current) if current else None
    asked = Question(
        repository=REPOSITORY, tag="2.15-gpu", kind="alias", digest=NEW_DIGEST, release=NEW, level=Level.VALIDATED,
        current=there, statements=ImageStatements(), promise=PROMISE,
    )  # fmt: skip
    return replace(asked, **more)  # type: ignore[arg-type]


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


def refusal_reason(asked: Question) -> str:
    decision = decide(asked)
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


def test_a_version_is_compared_as_one_and_not_as_text() -> None:
    ten = replace(NEW, tensorflow="2.10.0")
    assert "only `tfimg rollback`" in refusal_reason(question(NEW, release=ten))
    assert decide(question(replace(NEW, tensorflow="2.9.3"), release=ten)).verdict == "move"


def test_an_older_release_is_refused_though_its_build_is_newer() -> None:
    newer = replace(NEW, tensorflow="2.16.0", created=EPOCH - timedelta(days=9))
    says = "it points to TensorFlow 2.16.0: only `tfimg rollback` moves a tag to an older release"
    assert refusal_reason(question(newer)) == says


def test_a_newer_release_is_moved_to_though_its_build_is_older() -> None:
    older = replace(NEW, tensorflow="2.14.0", created=EPOCH + timedelta(days=9))
    assert decide(question(older)).verdict == "move"


def test_an_older_build_of_the_same_release_is_refused() -> None:
    later = replace(NEW, created=EPOCH + timedelta(seconds=1))
    assert refusal_reason(question(later)) == "it points to a newer build, of 2026-03-01T00:00:01+00:00"
    assert decide(question(replace(NEW, created=None))).verdict == "move", "nobody knows when it was made"


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
    asked = replace(question(level=Level.LINKED, promise=LESS), current=current)
    assert refusal_reason(asked) == "it points to an image that is validated, and this one is only linked"


@pytest.mark.parametrize("tags", [(), ("2.15-gpu",)])
@pytest.mark.parametrize("present", [NEW_DIGEST, THERE.digest])
def test_a_withdrawn_image_gets_and_keeps_a_tag_only_when_it_is_reinstated(tags: tuple[str, ...], present: str) -> None:
    asked = question(EARLIER, digest=present, statements=with_withdrawal(*tags))
    assert refusal_reason(asked) == "the image was withdrawn (wrong cuDNN): --reinstate cancels that"
    decision = decide(replace(asked, reinstate=True))
    assert (decision.verdict, decision.cancels) == (
        "move" if present == NEW_DIGEST else "attest",
        (NEW_DIGEST,),
    )
    assert decide(replace(asked, tag="2.15.1-gpu")).verdict == ("refuse" if not tags else decision.verdict)


def test_a_tag_without_a_trusted_test_result_is_left_and_the_next_step_named() -> None:
    why = refusal_reason(replace(question(), current=TaggedImage(digest=THERE.digest, release=None)))
    assert why == (
        f"it points to {THERE.digest}, which has no test result of a trusted key: trust its publisher's key with "
        "--public-key, or delete the tag in the registry"
    )


def test_a_build_s_own_tag_is_never_another_s() -> None:
    assert refusal_reason(question(EARLIER, kind="build")) == f"it belongs to another build: {THERE.digest}"


def test_an_artifact_without_a_configuration_is_no_image_of_tfimg() -> None:
    registry = MemoryRegistry()
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


def test_the_release_of_an_index_is_that_of_its_first_image() -> None:
    registry = MemoryRegistry()
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


def test_an_image_whose_label_is_not_a_version_is_no_image_of_tfimg() -> None:
    registry = MemoryRegistry()
    labels = {"tfimg.identifier": "2.15.1-cpu-py3.11", "tfimg.tensorflow": "newest"}
    config = json.dumps({"config": {"Labels": labels}}).encode()
    described = replace(registry.put_blob(config), media_type=OCI_CONFIG)
    manifest = Manifest(media_type=OCI_MANIFEST, content=json.dumps({"config": described.to_document()}).encode())
    registry.put("1", manifest)
    assert read_release(registry, manifest) is None


@pytest.mark.parametrize("config", [b"[]", b"no", b'{"config": []}', b"[" * 9999])
def test_an_invalid_configuration_is_refused(config: bytes) -> None:
    registry = MemoryRegistry()
    described = replace(registry.put_blob(config), media_type=OCI_CONFIG)
    manifest = Manifest(media_type=OCI_MANIFEST, content=json.dumps({"config": described.to_document()}).encode())
    registry.put("1", manifest)
    with pytest.raises(TamperedError):
        read_release(registry, manifest)
