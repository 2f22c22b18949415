"""May a tag lead to an image: forward alone, to the level that it promises, and never to what was taken back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from tfimg.publishing.ledger import Draft, Entry, Ledger, Step

from support.memory_registry import MemoryRegistry
from support.published_images import EPOCH
from tfimg.evidence.policy import Promise
from tfimg.publishing.decide import Decision, Question, decide
from tfimg.publishing.release import Held, Release, held
from tfimg.recipe.describe import Level
from tfimg.registry.protocol import OCI_MANIFEST, Manifest

PROMISE = Promise(tags="*-gpu", level="validated", reason="it was seen there")
LESS = replace(PROMISE, level="linked")
NEW = Release(identifier="2.15.1-cuda12.2-py3.11", tensorflow="2.15.1", created=EPOCH)
EARLIER = replace(NEW, created=EPOCH - timedelta(hours=1))
THERE = Manifest(media_type=OCI_MANIFEST, content=b"there")


def question(holder: Release | None = None, **more: object) -> Question:
    there = Held(manifest=THERE, release=holder) if holder else None
    asked = Question(
        tag="2.15-gpu", kind="alias", digest="sha256:new", release=NEW, level="validated", holder=there,
        ledger=Ledger(), promise=PROMISE, signed=True,
    )  # fmt: skip
    return replace(asked, **more)  # type: ignore[arg-type]


def ledger(*steps: tuple[str, Level]) -> Ledger:
    entries = []
    for number, (after, level) in enumerate(steps):
        step = Step(tag="2.15-gpu", before=None, after=after, identifier=NEW.identifier, level=level)
        draft = Draft(
            run=f"{number}", reason="publish", time=f"{number}", publisher="", version="", steps=(step,)
        )
        entries.append(Entry(digest=f"{number}", previous=(), draft=draft))
    return Ledger(entries=tuple(entries))


def refused(asked: Question) -> str:
    decision = decide(asked)
    assert decision.verdict == "refuse"
    return decision.why


def test_a_new_tag_is_given() -> None:
    assert decide(question()) == Decision(
        tag="2.15-gpu", kind="alias", verdict="move", why="new", before=None
    )


def test_a_newer_release_or_build_replaces_an_older_one() -> None:
    older = replace(NEW, identifier="2.15.0-cuda12.2-py3.11", tensorflow="2.15.0")
    decision = decide(question(older))
    assert (decision.verdict, decision.before) == ("move", THERE.digest)
    assert decision.why.startswith("replaces 2.15.0-cuda12.2-py3.11 sha256:")
    assert decide(question(EARLIER)).verdict == "move"


def test_a_tag_that_leads_there_stays_whatever_else_is_the_case() -> None:
    same = question(NEW, digest=THERE.digest, level="built", signed=False)
    assert decide(same).verdict == "stay"


def test_a_version_is_compared_as_one_and_not_as_text() -> None:
    ten = replace(NEW, tensorflow="2.10.0")
    assert "never goes back" in refused(question(NEW, release=ten))
    assert decide(question(replace(NEW, tensorflow="2.9.3"), release=ten)).verdict == "move"


def test_an_older_release_is_refused_though_its_build_is_newer() -> None:
    newer = replace(NEW, tensorflow="2.16.0", created=EPOCH - timedelta(days=9))
    assert refused(question(newer)).startswith("it leads to TensorFlow 2.16.0, and never goes back")


def test_an_older_build_of_the_same_release_is_refused() -> None:
    later = replace(NEW, created=EPOCH + timedelta(seconds=1))
    assert refused(question(later)) == "it leads to a newer build, made at 2026-03-01T00:00:01+00:00"
    assert decide(question(replace(NEW, created=None))).verdict == "move", "nobody knows when it was made"


@pytest.mark.parametrize("level", ["declared", "built", "linked"])
def test_a_tag_that_promises_a_level_is_given_to_none_below(level: Level) -> None:
    why = refused(question(level=level))
    assert why.startswith(
        f"it promises validated (it was seen there), and the image is shown to be {level} alone: "
    )
    less = replace(PROMISE, level=level)
    assert decide(question(level=level, promise=less)).verdict == "move"


def test_a_tag_never_loses_a_level_though_it_promises_less() -> None:
    asked = question(EARLIER, level="linked", promise=LESS, ledger=ledger((THERE.digest, "validated")))
    assert (
        refused(asked) == "it leads to an image that is shown to be validated, and this one is linked alone"
    )


def test_without_a_signature_no_alias_is_moved_and_exact_tags_are() -> None:
    assert "moved with --key alone" in refused(question(signed=False))
    assert decide(question(signed=False, kind="identifier")).verdict == "move"
    assert decide(question(signed=False, kind="build")).verdict == "move"


def test_what_was_taken_back_does_not_come_again_by_itself() -> None:
    past = ledger((THERE.digest, "validated"), ("sha256:new", "validated"), (THERE.digest, "validated"))
    why = refused(question(EARLIER, ledger=past))
    assert why.startswith(
        "it led there before, and was moved on or taken back: `tfimg rollback --to sha256:new`"
    )


def test_a_stranger_s_tag_is_left_to_him() -> None:
    strange = replace(question(), holder=Held(manifest=THERE, release=None))
    assert "which tfimg did not build" in refused(strange)


def test_a_build_s_own_tag_is_never_another_s() -> None:
    assert refused(question(EARLIER, kind="build")).startswith("it is another build's for ever")


def test_what_an_image_is_stands_in_its_configuration() -> None:
    registry = MemoryRegistry()
    strange = Manifest(media_type=OCI_MANIFEST, content=b'{"config": {"mediaType": "application/x"}}')
    registry.put("x", strange)
    assert held(registry, "x") == Held(manifest=strange, release=None)
    assert held(registry, "y") is None
