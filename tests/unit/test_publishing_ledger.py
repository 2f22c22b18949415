"""The ledger: nothing that was written is lost, whoever writes at the same time; what was taken away is missed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.memory_registry import MemoryRegistry
from support.published_images import EPOCH, Call, Line, Rounds, at_once, gone
from support.signing import OURS, THEIRS
from tfimg.errors import NetworkError, PublicationIncomplete, TamperedError
from tfimg.publishing.ledger import Draft, Ledger, Step
from tfimg.publishing.ledger_store import GRACE, TAG, append, is_ours, read
from tfimg.registry.protocol import OCI_MANIFEST, Manifest, Registry


def draft(run: str, tag: str = "2.15", after: str = "sha256:b", *, hours: int = 0) -> Draft:
    step = Step(tag=tag, before=None, after=after, identifier="2.15.1-cpu-py3.11", level="validated")
    time = (EPOCH + timedelta(hours=hours)).isoformat()
    return Draft(run=run, reason="publish", time=time, publisher="me", version="0.0", steps=(step,))


def write(registry: Registry, *drafts: Draft) -> Ledger:
    ledger = Ledger()
    for number, one in enumerate(drafts):
        ledger = append(registry, one, key=OURS, now=EPOCH + timedelta(hours=number))
    return ledger


def document(registry: MemoryRegistry) -> dict[str, Any]:
    """The manifest of the ledger's artifact."""
    return registry.manifests[registry.named[TAG]].document


def put_document(registry: MemoryRegistry, document: object) -> None:
    registry.put(TAG, Manifest(media_type=OCI_MANIFEST, content=json.dumps(document).encode()))


def runs(ledger: Ledger) -> list[str]:
    return [entry.draft.run for entry in ledger.entries]


def test_a_repository_without_one_has_an_empty_one() -> None:
    assert read(MemoryRegistry()) == Ledger()


def test_what_is_written_is_read_in_order_each_naming_the_one_before() -> None:
    registry = MemoryRegistry()
    drafts = [draft("a"), draft("b", hours=1), draft("c", hours=2)]
    written = write(registry, *drafts)
    assert read(registry) == written
    assert [entry.draft for entry in written.entries] == drafts
    first, second, third = written.entries
    assert (first.previous, second.previous, third.previous) == ((), (first.digest,), (second.digest,))
    assert written.ends == (third.digest,)


def test_a_clock_that_is_wrong_changes_no_order() -> None:
    registry = MemoryRegistry()
    assert runs(write(registry, draft("late", hours=9), draft("early"))) == ["late", "early"]


def test_the_last_move_of_a_tag_is_known() -> None:
    ledger = write(MemoryRegistry(), draft("a"), draft("b", "2.15-gpu"), draft("c", after="sha256:c"))
    last = ledger.last("2.15")
    assert last
    assert last.after == "sha256:c"
    assert [step.after for _, step in ledger.of("2.15")] == ["sha256:b", "sha256:c"]
    assert ledger.last("2.16") is None
    assert (ledger.level("sha256:c"), ledger.level("sha256:d")) == ("validated", None)


def test_a_run_that_writes_again_writes_nothing() -> None:
    registry = MemoryRegistry()
    once = write(registry, draft("a"))
    assert write(registry, draft("a")) == once
    assert write(registry, replace(draft("a"), publisher="me, elsewhere", version="0.1")) == once


def test_an_entry_is_signed_by_whoever_wrote_it_and_by_nobody_without_a_key() -> None:
    registry = MemoryRegistry()
    write(registry, draft("a"))
    append(registry, draft("b"), key=None, now=EPOCH)
    signed, unsigned = read(registry).entries
    assert signed.signed_by([THEIRS.verifying, OURS.verifying]) == OURS.verifying
    assert signed.signed_by([THEIRS.verifying]) is None
    assert unsigned.signed_by([OURS.verifying]) is None


def test_all_entries_are_layers_of_one_artifact_that_names_them_as_files() -> None:
    registry = MemoryRegistry()
    write(registry, draft("a"), draft("b"))
    told = document(registry)
    assert told["artifactType"] == "application/vnd.tfimg.ledger.v1+json"
    titles = [layer["annotations"]["org.opencontainers.image.title"] for layer in told["layers"]]
    assert len(set(titles)) == 2
    assert all(title.startswith("2026-03-01T000000+0000-") for title in titles)


@pytest.mark.parametrize(("deletes", "count"), [(True, 2), (False, 3)])
def test_an_entry_s_own_tag_is_deleted_after_a_day_where_that_is_possible(deletes: bool, count: int) -> None:
    registry = MemoryRegistry(deletes=deletes)
    write(registry, draft("a"))
    assert len(registry.tags()) == 2
    assert all(map(is_ours, registry.tags()))
    append(registry, draft("b", hours=48), key=OURS, now=EPOCH + timedelta(hours=47))
    assert len(registry.tags()) == count
    assert runs(read(registry)) == ["a", "b"]


def test_an_entry_whose_write_was_undone_is_there_and_comes_back() -> None:
    registry = MemoryRegistry()
    write(registry, draft("a"))
    stale = registry.find(TAG)
    assert stale
    write(registry, draft("b"))
    registry.put(TAG, stale)  # a writer who had read before b was there
    assert runs(read(registry)) == ["a", "b"]
    write(registry, draft("c"))
    assert len(document(registry)["layers"]) == 3


def test_an_entry_that_was_taken_away_is_missed() -> None:
    registry = MemoryRegistry()
    write(registry, draft("a"), draft("b"), draft("c"))
    told = document(registry)
    del told["layers"][1]
    put_document(registry, told)
    for tag in registry.tags():
        if tag != TAG:
            registry.untag(tag)
    with pytest.raises(TamperedError, match=r"The ledger lacks sha256:\w{64}, which sha256:\w{64} follows"):
        read(registry)


def test_a_tag_that_is_something_else_is_no_ledger() -> None:
    registry = MemoryRegistry()
    put_document(registry, {"layers": []})
    with pytest.raises(TamperedError, match="is not tfimg's ledger, but something else"):
        read(registry)


@pytest.mark.parametrize("broken", [b"[]", b"{}", b'{"moves": [{}]}', b"\xff", b'"text"'])
def test_an_entry_that_is_none_is_refused(broken: bytes) -> None:
    registry = MemoryRegistry()
    write(registry, draft("a"))
    told = document(registry)
    blob = registry.put_blob(broken)
    told["layers"] = [replace(blob, media_type="application/json").document()]
    put_document(registry, told)
    with pytest.raises(TamperedError, match="cannot be understood"):
        read(registry)


def test_a_writer_whom_others_always_undo_says_that_his_entry_is_there() -> None:
    shared = MemoryRegistry()
    write(shared, draft("a"))
    stale = shared.find(TAG)
    assert stale

    def undo(call: Call) -> None:
        if call == ("put", TAG):
            shared.put(TAG, stale)

    with pytest.raises(PublicationIncomplete, match="Others write the ledger"):
        write(Line(shared, after=undo), draft("b"))
    assert runs(read(shared)) == ["a", "b"]


def test_a_registry_that_goes_away_at_any_call_leaves_a_ledger_and_the_next_try_ends_it() -> None:
    whole = Line(MemoryRegistry())
    write(whole, draft("a"), draft("b"))
    for number in range(len(whole.calls)):
        shared = MemoryRegistry()
        line = Line(shared)

        def cut(call: Call, line: Line = line, number: int = number) -> None:
            if len(line.calls) == number:
                raise gone()

        line.before = cut
        with pytest.raises(NetworkError):
            write(line, draft("a"), draft("b"))
        assert runs(read(shared)) in ([], ["a"], ["a", "b"])
        assert runs(write(shared, draft("a"), draft("b"))) == ["a", "b"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(min_value=0, max_value=2), max_size=120))
def test_writers_at_the_same_time_lose_nothing_however_their_calls_fall(turns: Sequence[int]) -> None:
    shared = MemoryRegistry()
    rounds = Rounds(turns, 3)
    failed: list[BaseException] = []

    def writer(number: int) -> None:
        line = Line(shared, before=lambda _: rounds.wait(number))
        try:
            write(line, draft(f"{number}"))
        except PublicationIncomplete:
            pass  # its entry is there
        except BaseException as error:
            failed.append(error)
        finally:
            rounds.leave(number)

    at_once(writer, 3)
    assert failed == []
    assert sorted(runs(read(shared))) == ["0", "1", "2"]
    last = write(shared, draft("last"))
    assert sorted(runs(last)) == ["0", "1", "2", "last"]
    assert len(last.ends) == 1


def test_a_day_is_longer_than_any_writer_takes() -> None:
    assert timedelta(hours=1) < GRACE
