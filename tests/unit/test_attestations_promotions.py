"""Promotions and withdrawals: which of them count, what a tag's history is, and what reading it costs."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.memory_registry import MemoryRegistry
from support.messages import assert_message, exactly, expect_refusal
from support.published_images import Line, put_image
from support.reports import GREEN
from support.signing import OURS, THEIRS
from support.statements import IMAGE, NOW, SUBJECT, make_promotion, make_statements, make_withdrawal, published_registry
from tfimg.attestations.attach import attach, filter_verified
from tfimg.attestations.envelopes import EARLIEST, LATEST, PROMOTION, Statement, Subject, canonical_json, sign_statement
from tfimg.attestations.policy import Policy
from tfimg.attestations.promotions import (
    ImageStatements,
    Promotion,
    SignedPredicate,
    TagMove,
    Withdrawal,
    export_withdrawals,
    make_predicate_statement,
    next_time,
    read_image_statements,
    read_statements,
    read_withdrawals,
    walk_history,
)
from tfimg.attestations.verify import verify
from tfimg.core.documents import InvalidDocument, validate_model
from tfimg.core.errors import PolicyViolation, TamperedError, UnsignedError, WithdrawnError, WrongClock
from tfimg.registry.documents import digest_of

KEYS = [OURS.verifying_key]
REPOSITORY = SUBJECT.name
MIRROR = "mirror.test/team/tensorflow"


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


def statements(promotions: Sequence[Promotion] = (), withdrawals: Sequence[Withdrawal] = ()) -> ImageStatements:
    """Return statements as they are read: the latest first; withdrawals are named by their number."""
    return ImageStatements(
        promotions=tuple(
            SignedPredicate(statement=digest_of(one.model_dump_json().encode()), signer="ours", predicate=one)
            for one in sorted(promotions, key=lambda one: one.time, reverse=True)
        ),
        withdrawals=tuple(
            SignedPredicate(statement=digest(2000 + number), signer="ours", predicate=one)
            for number, one in enumerate(withdrawals)
        ),
    )


def promotion(tag: str, previous: str | None, *, hour: int = 0, **fields: Any) -> Promotion:
    base: dict[str, Any] = {
        "repository": REPOSITORY, "tags": (TagMove(tag=tag, previous=previous),), "publisher": "me",
        "time": NOW + timedelta(hours=hour), "reason": "publish", "run": "r", "tfimg": "0",
    }  # fmt: skip
    return Promotion(**(base | fields))


def withdrawal(*tags: str) -> Withdrawal:
    return Withdrawal(
        repository=REPOSITORY, tags=tags or None, reason="why", replacement=None, time=NOW, publisher="me"
    )


def history(
    known: Mapping[str, ImageStatements], present: str, tag: str = "2.15", limit: int = 20
) -> list[tuple[str, bool]]:
    steps = walk_history(REPOSITORY, tag, present, lambda one: known.get(one, ImageStatements()), limit=limit)
    return [(step.digest, step.promotion is not None) for step in steps]


A, B, C, D = (digest(number) for number in range(1, 5))


def test_the_history_of_a_tag_is_the_chain_of_previous_digests() -> None:
    known = {
        A: statements([promotion("2.15", None)]),
        B: statements([promotion("2.15", A, hour=1), promotion("latest", None, hour=1)]),
        C: statements([promotion("2.15", B, hour=2)]),
    }
    assert history(known, C) == [(C, True), (B, True), (A, True)]
    assert history(known, C, limit=2) == [(C, True), (B, True)]


def test_after_a_rollback_a_digest_occurs_twice() -> None:
    known = {
        A: statements([promotion("2.15", None), promotion("2.15", B, hour=2)]),
        B: statements([promotion("2.15", A, hour=1), promotion("2.15", A, hour=3)]),
    }
    assert [one for one, _ in history(known, B)] == [B, A, B, A]


def test_a_promotion_that_was_never_completed_is_no_part_of_the_history() -> None:
    """A rollback from C to B was killed, and D published instead."""
    known = {
        A: statements([promotion("2.15", None)]),
        B: statements([promotion("2.15", A, hour=1), promotion("2.15", C, hour=3)]),
        C: statements([promotion("2.15", B, hour=2)]), D: statements([promotion("2.15", C, hour=4)]),
    }  # fmt: skip
    assert history(known, D) == [(D, True), (C, True), (B, True), (A, True)]


def test_a_promotion_of_the_same_time_is_not_an_earlier_one() -> None:
    known = {
        A: statements([promotion("2.15", None), promotion("2.15", B, hour=1)]),
        B: statements([promotion("2.15", A, hour=1)]),
    }
    assert history(known, B) == [(B, True), (A, True)]


def test_a_promotion_is_later_than_those_before_it_whatever_the_clock_says() -> None:
    future = statements([promotion("2.15", None, hour=99)])
    assert next_time(NOW, [statements(), future]) == NOW + timedelta(hours=99, microseconds=1)
    assert next_time(NOW, [statements()]) == NOW
    withdrawn = statements([], [withdrawal()])
    assert next_time(NOW - timedelta(days=1), [withdrawn]) == NOW + timedelta(microseconds=1)
    assert next_time(EARLIEST - timedelta(days=1), [withdrawn]) == NOW + timedelta(microseconds=1)


def test_a_time_that_no_reader_accepts_is_not_signed() -> None:
    last = statements([promotion("2.15", None, time=LATEST - timedelta(microseconds=1))])
    for now, earlier in ((EARLIEST - timedelta(microseconds=1), []), (LATEST, []), (NOW, [last])):
        with pytest.raises(WrongClock, match="cannot be signed"):
            next_time(now, earlier)
    assert next_time(EARLIEST, []) == EARLIEST


def test_a_digest_without_a_promotion_to_the_tag_is_a_gap_and_ends_the_history() -> None:
    other = promotion("2.15", A, repository=MIRROR)
    for known in ({}, {B: statements([other])}, {B: statements([promotion("2.15-gpu", A)])}):
        assert history({C: statements([promotion("2.15", B, hour=1)]), **known}, C) == [(C, True), (B, False)]


def test_a_circle_of_promotions_ends() -> None:
    known = {A: statements([promotion("2.15", B)]), B: statements([promotion("2.15", A, hour=1)])}
    assert history(known, A) == [(A, True), (B, False)]
    assert history(known, B) == [(B, True), (A, True), (B, False)]


def test_a_withdrawal_holds_for_its_tags_of_its_repository_or_for_the_digest_everywhere() -> None:
    of_tag, whole = statements([], [withdrawal("2.15")]), statements([], [withdrawal()])
    assert of_tag.in_force(REPOSITORY, "2.15")
    assert not of_tag.in_force(REPOSITORY, "2.15.1")
    assert not of_tag.in_force(REPOSITORY, None)
    assert not of_tag.in_force(MIRROR, "2.15")
    assert whole.in_force(MIRROR, "latest")
    assert whole.in_force(REPOSITORY, None)


def test_a_promotion_cancels_only_the_withdrawals_that_it_names_and_only_for_its_tags() -> None:
    two = [withdrawal("2.15", "latest"), withdrawal("2.15")]
    later = promotion("2.15", None, hour=9)
    assert len(statements([later], two).in_force(REPOSITORY, "2.15")) == 2, "to be later is not enough"
    same = promotion("2.15", None, hour=0, cancels=(digest(2000), digest(2001)))
    assert len(statements([same], two).in_force(REPOSITORY, "2.15")) == 2, "equal times go to the withdrawal"
    first = statements([promotion("2.15", None, hour=1, cancels=(digest(2000),))], two)
    assert [one.statement for one in first.in_force(REPOSITORY, "2.15")] == [digest(2001)]
    assert [one.statement for one in first.in_force(REPOSITORY, "latest")] == [digest(2000)]
    whole = statements([promotion("2.15", None, hour=1, cancels=(digest(2000),))], [withdrawal()])
    assert not whole.in_force(REPOSITORY, None)


# In a registry


def verified(
    registry: MemoryRegistry, reference: str = "2.15", origin: str | None = None, tag: str | None = None
) -> str:
    return verify(registry, reference, KEYS, Policy(origin=origin), now=NOW, tag=tag).digest


def test_a_tag_needs_a_promotion_that_our_key_signed_and_a_digest_needs_none() -> None:
    registry = published_registry(GREEN)
    registry.put("latest", IMAGE)
    attach(registry, IMAGE.digest, [make_promotion("latest")], key=THEIRS)
    with expect_refusal(PolicyViolation, r"no signed promotion that gives it the tag latest of registry\.test"):
        verified(registry, "latest")
    with expect_refusal(PolicyViolation, "the tag latest"):
        verified(registry, IMAGE.digest, tag="latest")
    assert verified(registry, IMAGE.digest) == IMAGE.digest


def test_a_mirror_s_promotions_name_its_origin() -> None:
    registry = replace(published_registry(GREEN), repository=MIRROR)
    with expect_refusal(PolicyViolation, "with --origin"):
        verified(registry)
    assert verified(registry, origin=REPOSITORY) == IMAGE.digest
    attach(registry, IMAGE.digest, [make_withdrawal("2.15")], key=OURS)
    with expect_refusal(WithdrawnError):
        verified(registry, origin=REPOSITORY)


@pytest.mark.parametrize(("tags", "by_digest"), [((), True), (("2.15",), False)])
def test_a_withdrawn_image_is_refused_with_the_reason_and_the_replacement(
    tags: tuple[str, ...], by_digest: bool
) -> None:
    registry = published_registry(GREEN)
    attach(registry, IMAGE.digest, [make_withdrawal(*tags, replacement=A)], key=OURS)
    with pytest.raises(WithdrawnError, match=r"was withdrawn .*by gpu-runner-3: wrong cuDNN") as caught:
        verified(registry)
    assert_message(caught.value)
    assert caught.value.exit_code == 17
    assert f"{REPOSITORY}@{A}" in caught.value.next_step
    if by_digest:
        with expect_refusal(WithdrawnError):
            verified(registry, IMAGE.digest)
        with expect_refusal(WithdrawnError):
            verified(registry, IMAGE.digest, origin=MIRROR)
    else:
        registry.put("latest", IMAGE)
        attach(registry, IMAGE.digest, [make_promotion("latest")], key=OURS)
        assert verified(registry, IMAGE.digest) == verified(registry, "latest") == IMAGE.digest


def test_a_withdrawal_by_another_key_is_passed_over() -> None:
    registry = published_registry(GREEN)
    attach(registry, IMAGE.digest, [make_withdrawal()], key=THEIRS)
    assert verified(registry)


def test_a_withdrawal_is_cancelled_by_a_promotion_that_names_it() -> None:
    registry = published_registry(GREEN)
    attach(registry, IMAGE.digest, [make_withdrawal()], key=OURS)
    attach(registry, IMAGE.digest, [make_promotion("2.15", cancels=[A])], key=OURS)
    with expect_refusal(WithdrawnError):
        verified(registry)
    attach(registry, IMAGE.digest, [make_promotion("2.15", cancels=[digest_of(make_withdrawal().content)])], key=OURS)
    assert verified(registry) == verified(registry, IMAGE.digest) == IMAGE.digest


def test_withdrawals_travel_in_a_file_and_count_when_they_are_signed() -> None:
    registry = published_registry(GREEN)
    attach(registry, IMAGE.digest, [make_withdrawal()], key=OURS)
    (line,) = export_withdrawals(registry, IMAGE.digest, KEYS)
    theirs = sign_statement(make_withdrawal(), THEIRS)
    found = read_withdrawals(b"\n".join([theirs, line, b""]), KEYS)
    (statement,) = filter_verified(found, KEYS, digest=IMAGE.digest)
    assert statement.content == make_withdrawal().content
    says = (
        "The file of withdrawals has no statement that a trusted key signed. Get it from the image's publisher: "
        "`tfimg history REPOSITORY --withdrawals FILE` writes it."
    )
    with pytest.raises(UnsignedError, match=exactly(says)):
        read_withdrawals(theirs, KEYS)
    for damaged in (b"no envelope", line[:-1], line + b"\n" + line[: len(line) // 2]):
        with expect_refusal(TamperedError):
            read_withdrawals(damaged, KEYS)


def test_withdrawals_are_exported_with_the_promotions_that_cancel_them() -> None:
    registry = published_registry(GREEN)
    withdrawn = make_withdrawal("2.15")
    attach(registry, IMAGE.digest, [withdrawn], key=OURS)
    assert len(export_withdrawals(registry, IMAGE.digest, KEYS)) == 1
    attach(registry, IMAGE.digest, [make_promotion("2.15", cancels=[digest_of(withdrawn.content)])], key=OURS)
    exported = b"\n".join(export_withdrawals(registry, IMAGE.digest, KEYS))
    assert exported.count(b"\n") == 1, "the first promotion cancels nothing"
    found = filter_verified(read_withdrawals(exported, KEYS), KEYS, digest=IMAGE.digest)
    assert not read_statements(found, image="x").in_force(REPOSITORY, "2.15")


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_a_file_without_a_line_means_that_nothing_was_withdrawn(content: bytes) -> None:
    assert read_withdrawals(content, KEYS) == ()


def test_of_several_test_results_the_newest_is_the_first() -> None:
    dates = ("2026-01-02T03:04:05+00:00", "2026-01-04T03:04:05+00:00", "2026-01-03T03:04:05+00:00")
    registry = published_registry(*(replace(GREEN, date=date) for date in dates))
    outcomes = read_image_statements(registry, IMAGE.digest, KEYS).outcomes
    assert [one.ended.day for one in outcomes] == [4, 3, 2]


def test_other_referrers_of_an_image_are_ignored() -> None:
    registry = published_registry(GREEN)
    attach(registry, IMAGE.digest, [make_promotion("2.15"), make_promotion("2.15", of=A)], key=THEIRS)
    attach(registry, IMAGE.digest, [make_promotion("latest", of=A)], key=OURS)
    for manifest in list(registry.manifests.values()):
        if manifest.document.get("subject"):
            broken = json.loads(manifest.content)
            broken["layers"] = [{"mediaType": "x"}]
            registry.put(digest_of(canonical_json(broken)), replace(manifest, content=canonical_json(broken)))
    found = read_image_statements(registry, IMAGE.digest, KEYS)
    assert [move.tag for one in found.promotions for move in one.predicate.tags] == ["2.15", "2.15-gpu"]


def test_a_promotion_of_an_unknown_form_that_our_key_signed_is_refused() -> None:
    registry = published_registry(GREEN)
    content = canonical_json(json.loads(make_promotion("2.15").content) | {"predicate": {"tags": []}})
    attach(registry, IMAGE.digest, [Statement(predicate_type=PROMOTION, content=content)], key=OURS)
    with expect_refusal(TamperedError, r"is invalid: .*A newer tfimg"):
        verified(registry)


EXAMPLE = promotion("2.15", A).model_dump(mode="json")
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.lists(st.none(), max_size=2), st.just({}),
    st.sampled_from(["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-01-01T00:00:00", "x" * 5000]),
)  # fmt: skip


@given(name=st.sampled_from(sorted(EXAMPLE)), value=VALUES)
def test_a_promotion_with_another_value_is_the_same_kind_of_thing_or_invalid(name: str, value: object) -> None:
    try:
        found = validate_model(Promotion, EXAMPLE | {name: value})
    except InvalidDocument:
        return
    assert make_predicate_statement(SUBJECT, found).content


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time", "2026-01-01T00:00:00"), ("time", "2300-01-01T00:00:00Z"), ("repository", "a b"),
        ("repository", "x\x1b[2J"), ("repository", "x;reboot"), ("repository", "$(reboot)/x"), ("repository", "x:tag"),
        ("repository", ""), ("publisher", "x" * 1001), ("reason", "other"), ("cancels", ["sha256:0"]),
        ("tags", []), ("tags", [{"tag": "../x", "previous": None}]), ("tags", [{"tag": "x", "previous": "y"}]),
        ("tags", [{"tag": "x", "previous": None}] * 101), ("cancels", [A] * 101), ("publisher", ""), ("tfimg", ""),
        ("reason", ""),
    ],
)  # fmt: skip
def test_a_promotion_beyond_its_limits_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidDocument, match=name):
        validate_model(Promotion, EXAMPLE | {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tags", [{"tag": "x" * 128, "previous": None}] * 100), ("cancels", [A] * 100), ("publisher", "x" * 1000),
        ("time", EARLIEST.isoformat()), ("time", (LATEST - timedelta.resolution).isoformat()),
    ],
)  # fmt: skip
def test_a_promotion_at_its_limits_is_read(name: str, value: object) -> None:
    assert validate_model(Promotion, EXAMPLE | {name: value})


@pytest.mark.parametrize(
    ("name", "largest", "refused"),
    [
        ("tags", ["x"] * 100, ["x"] * 101), ("tags", None, []), ("tags", ["x" * 128], ["x" * 129]),
        ("reason", "x" * 1000, "x" * 1001), ("reason", "x", ""), ("publisher", "x", ""), ("replacement", A, A[:-1]),
    ],
)  # fmt: skip
def test_a_withdrawal_has_limits(name: str, largest: object, refused: object) -> None:
    example = withdrawal("2.15").model_dump(mode="json")
    assert validate_model(Withdrawal, example | {name: largest})
    with pytest.raises(InvalidDocument, match=f"^{name}"):
        validate_model(Withdrawal, example | {name: refused})


def test_a_history_costs_three_requests_for_a_move_among_1000_images() -> None:
    registry = MemoryRegistry()
    previous: str | None = None
    digests = []
    for number in range(1000):
        image = put_image(registry, "2.15.1-cpu-py3.11", content=f"{number}", tag=f"2.15.1-cpu-py3.11-{number:012x}")
        if number < 970:
            continue
        subject = Subject(name=registry.repository, digest=image.digest)
        attach(registry, image.digest, make_statements(GREEN, of=image.digest), key=OURS)
        statement = make_predicate_statement(subject, promotion("2.15", previous, hour=number))
        attach(registry, image.digest, [statement], key=OURS)
        previous = image.digest
        digests.append(image.digest)
    line = Line(registry)
    read = [
        step.digest
        for step in walk_history(
            registry.repository, "2.15", digests[-1],
            lambda one: read_image_statements(line, one, KEYS, with_outcomes=False), limit=20,
        )
    ]  # fmt: skip
    assert read == digests[: 30 - 20 - 1 : -1]
    assert Counter(name for name, _ in line.calls) == {"referrers": 20, "find": 20, "blob": 20}
