"""The history of tags and repositories: what trusted keys signed, in which order, and what is still in force."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from support.memory_registry import MemoryRegistry
from support.messages import exactly
from support.published_images import put_image
from support.signing import OURS
from support.statements import NOW, SUBJECT
from tfimg.attestations.attach import attach
from tfimg.attestations.envelopes import TEST_RESULT, Subject, format_time, make_statement
from tfimg.attestations.promotions import Promotion, TagMove, Withdrawal, make_predicate_statement
from tfimg.core.documents import digest_of
from tfimg.core.errors import NotInRegistry
from tfimg.publish.history import HistoryEntry, find_build, repository_history, tag_history
from tfimg.recipe.tags import make_build_tag

CPU = "2.15.1-cpu-py3.11"
KEYS = [OURS.verifying_key]


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


def put_build(registry: MemoryRegistry, content: str) -> tuple[str, str]:
    """Put an image under its build tag; return digest and tag."""
    image = put_image(registry, CPU, content=content)
    tag = make_build_tag(CPU, image.digest)
    registry.put(tag, image)
    return image.digest, tag


def promote(
    registry: MemoryRegistry, digest: str, *, hour: int, previous: str | None = None, cancels: Sequence[str] = ()
) -> None:
    promotion = Promotion(
        repository=registry.repository, tags=(TagMove(tag="2.15", previous=previous),),
        time=NOW + timedelta(hours=hour), publisher="me", reason="publish", tfimg="0.1.0", cancels=tuple(cancels),
    )  # fmt: skip
    subject = replace(SUBJECT, digest=digest)
    attach(registry, digest, [make_predicate_statement(subject, promotion)], key=OURS)
    registry.named["2.15"] = digest


def withdraw(registry: MemoryRegistry, digest: str, *tags: str, hour: int) -> str:
    """Withdraw an image; return the digest of the statement."""
    withdrawal = Withdrawal(
        repository=registry.repository, tags=tags or None, reason="why", replacement=None,
        time=NOW + timedelta(hours=hour), publisher="me",
    )  # fmt: skip
    statement = make_predicate_statement(replace(SUBJECT, digest=digest), withdrawal)
    attach(registry, digest, [statement], key=OURS)
    return digest_of(statement.content)


def add_unreadable_result(registry: MemoryRegistry, digest: str) -> None:
    """Attach a signed test result that no reader accepts: a history does not need it."""
    subject = Subject(name=registry.repository, digest=digest)
    attach(registry, digest, [make_statement(subject, TEST_RESULT, {})], key=OURS)


def list_events(entries: Sequence[HistoryEntry]) -> list[tuple[str, str, bool | None]]:
    return [(entry.kind, entry.digest, entry.in_force) for entry in entries]


def test_the_history_of_a_repository_has_every_statement_newest_first(registry: MemoryRegistry) -> None:
    (old, old_tag), (new, new_tag) = put_build(registry, "old"), put_build(registry, "new")
    promote(registry, old, hour=1)
    promote(registry, new, hour=2, previous=old)
    withdraw(registry, old, hour=3)
    cancelled = withdraw(registry, new, "2.15", "latest", hour=4)
    add_unreadable_result(registry, new)
    events = [
        ("withdrawal", new, True), ("withdrawal", old, True), ("promotion", new, None), ("promotion", old, None)
    ]  # fmt: skip
    for tags in ([old_tag, new_tag], [new_tag, old_tag]):
        assert list_events(repository_history(registry, tags, KEYS, limit=9)) == events
    assert list_events(repository_history(registry, [old_tag, new_tag], KEYS, limit=2)) == events[:2]
    promote(registry, new, hour=5, previous=old, cancels=[cancelled])
    found = repository_history(registry, [new_tag], KEYS, limit=9)
    assert list_events(found)[1] == ("withdrawal", new, True), "latest is still withdrawn"
    assert [entry.tags for entry in found] == [("2.15",), ("2.15", "latest"), ("2.15",)]


def test_a_withdrawal_that_is_cancelled_for_all_of_its_tags_is_not_in_force(registry: MemoryRegistry) -> None:
    digest, tag = put_build(registry, "one")
    promote(registry, digest, hour=1)
    cancels = [withdraw(registry, digest, hour=2), withdraw(registry, digest, "2.15", hour=3)]
    promote(registry, digest, hour=4, cancels=cancels)
    events = [
        ("promotion", digest, None), ("withdrawal", digest, False), ("withdrawal", digest, False),
        ("promotion", digest, None),
    ]  # fmt: skip
    assert list_events(repository_history(registry, [tag], KEYS, limit=9)) == events
    assert list_events(list(tag_history(registry, "2.15", KEYS, limit=9))) == events[:-1], "it was a new tag"


def test_a_build_tag_that_is_missing_or_was_moved_has_no_history(registry: MemoryRegistry) -> None:
    (one, tag), (other, _) = put_build(registry, "one"), put_build(registry, "other")
    promote(registry, one, hour=1)
    promote(registry, other, hour=2)
    registry.named[tag] = other
    assert repository_history(registry, [tag, f"{CPU}-{'0' * 12}"], KEYS, limit=9) == []


def test_the_history_of_a_tag_has_a_withdrawal_in_force_before_the_promotion(registry: MemoryRegistry) -> None:
    (old, _), (new, _) = put_build(registry, "old"), put_build(registry, "new")
    promote(registry, old, hour=1)
    promote(registry, new, hour=2, previous=old)
    withdraw(registry, new, "2.15", hour=3)
    withdraw(registry, new, "latest", hour=4)
    for digest in (old, new):
        add_unreadable_result(registry, digest)
    events = [("withdrawal", new, True), ("promotion", new, None), ("promotion", old, None)]
    assert list_events(list(tag_history(registry, "2.15", KEYS, limit=9))) == events
    assert list_events(list(tag_history(registry, "2.15", KEYS, limit=1))) == events[:2]
    (gap,) = tag_history(registry, "2.15", [], limit=9)
    assert gap.to_json() == {"event": "gap", "tag": "2.15", "digest": new}
    with pytest.raises(NotInRegistry):
        next(tag_history(registry, "latest", KEYS, limit=9))


def test_an_entry_as_json_has_the_signed_words_and_who_signed_them(registry: MemoryRegistry) -> None:
    digest, tag = put_build(registry, "one")
    statement = withdraw(registry, digest, "2.15", hour=1)
    (entry,) = repository_history(registry, [tag], KEYS, limit=9)
    assert entry.to_json() == {
        "event": "withdrawal", "digest": digest, "in_force": True, "repository": registry.repository, "tags": ["2.15"],
        "reason": "why", "replacement": None, "publisher": "me", "statement": statement,
        "time": format_time(NOW + timedelta(hours=1)), "signer": OURS.verifying_key.identifier,
    }  # fmt: skip


def test_a_build_is_found_by_the_first_digits_of_its_digest(registry: MemoryRegistry) -> None:
    digest, _ = put_build(registry, "one")
    digits = digest.removeprefix("sha256:")
    for known in (digits[:12], digits[:13], digits[:63]):
        assert find_build(registry, known) == digest
    assert find_build(registry, "0" * 64) == f"sha256:{'0' * 64}", "a whole one is not looked up"
    other = f"{digits[:12]}{'0' * 52}"
    says = (
        f"{registry.repository} has no build whose digest begins with {other[:63]}. "
        f"`tfimg history {registry.repository}` lists builds; name the whole digest of another image."
    )
    with pytest.raises(NotInRegistry, match=exactly(says)):
        find_build(registry, other[:63])
