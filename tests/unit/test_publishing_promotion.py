"""Tags moved together: with evidence, all or none, in one order with everybody else's, whatever is killed or fails."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.memory_registry import MemoryRegistry
from support.published_images import EPOCH, Call, Killed, Line, Mortal, Rounds, at_once, gone, put_image
from support.signing import OURS
from tfimg.errors import NetworkError, NotInRegistry, PublicationIncomplete, TagMoved, UnsignedError
from tfimg.journal import Journal, opened
from tfimg.publishing.ledger import Reason, Step
from tfimg.publishing.ledger_store import read
from tfimg.publishing.moving import Move, move_all
from tfimg.publishing.promotion import Desk, Promotion, finish, left_over, promote
from tfimg.recipe.describe import Level
from tfimg.registry.protocol import Manifest, Registry

TAGS = ("2.15.1", "2.15", "latest")


def moves(new: Manifest, old: Manifest | None, tags: Sequence[str] = TAGS) -> list[Move]:
    return [Move(tag=tag, before=old.digest if old else None, after=new.digest) for tag in tags]


def where(registry: MemoryRegistry, tags: Sequence[str] = TAGS) -> list[str | None]:
    return [registry.named.get(tag) for tag in tags]


class Noted:
    """A journal that nobody reads."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, **_: object) -> None:
        self.events.append(event)


def images(deletes: bool = True) -> tuple[MemoryRegistry, Manifest, Manifest]:
    """A registry with an old image that all tags lead to, and a new one."""
    registry = MemoryRegistry(deletes=deletes)
    old = put_image(registry, "2.15.0-cpu-py3.11")
    for tag in TAGS:
        registry.put(tag, old)
    return registry, old, put_image(registry, "2.15.1-cpu-py3.11")


def test_all_tags_are_moved_each_noted_before() -> None:
    registry, old, new = images()
    noted = Noted()
    move_all(registry, moves(new, old), note=noted)
    assert where(registry) == [new.digest] * 3
    assert noted.events == ["tag"] * 3


@pytest.mark.parametrize("existed", [True, False])
def test_where_the_registry_goes_away_and_comes_back_all_tags_go_back(existed: bool) -> None:
    for number in range(7):  # the image is read; each of the three is read and written
        shared, old, new = images()
        if not existed:
            shared.named.clear()
        line, before = Line(shared), dict(shared.named)

        def cut(_: Call, line: Line = line, number: int = number) -> None:
            if len(line.calls) == number:
                line.calls.append(("cut", ""))
                raise gone()

        line.before = cut
        noted = Noted()
        with pytest.raises(NetworkError):
            move_all(line, moves(new, old if existed else None), note=noted)
        assert shared.named == before
        assert noted.events[-1] == "moved-back"


def test_an_answer_that_is_lost_is_no_move_that_is_forgotten() -> None:
    shared, old, new = images()

    def lose(call: Call) -> None:
        if call == ("put", "latest") and shared.named["latest"] == new.digest:
            line.after = lambda _: None
            raise NetworkError("The answer is lost.", next_step="Try again.")

    line = Line(shared, after=lose)
    with pytest.raises(NetworkError):
        move_all(line, moves(new, old), note=Noted())
    assert where(shared) == [old.digest] * 3


def test_a_registry_that_stays_away_is_told_with_the_tags_that_are_left() -> None:
    shared, old, new = images()

    def leave(_: Call) -> None:
        if len(line.calls) >= 4:
            raise gone()

    line = Line(shared, before=leave)
    says = r"^2\.15, 2\.15\.1 of .* could not be led back .*The registry is gone"
    with pytest.raises(PublicationIncomplete, match=says):
        move_all(line, moves(new, old), note=Noted())
    assert where(shared) == [new.digest, old.digest, old.digest]


def full(call: Call) -> None:
    if call == ("put", "latest"):
        raise NetworkError("The registry is full.", next_step="Try again.")


def test_a_registry_that_deletes_no_tags_keeps_the_new_ones_and_that_is_told() -> None:
    shared, _, new = images(deletes=False)
    shared.named.clear()
    noted = Noted()
    with pytest.raises(PublicationIncomplete, match=r"^2\.15, 2\.15\.1 of .* could not be led back"):
        move_all(Line(shared, before=full), moves(new, None), note=noted)
    assert where(shared) == [new.digest, new.digest, None]
    assert "moved-back" not in noted.events, "the next run knows them"


def test_tags_that_no_registry_could_undo_are_moved_last() -> None:
    shared, old, new = images(deletes=False)
    del shared.named["2.15.1"]
    wanted = [replace(move, before=shared.named.get(move.tag)) for move in moves(new, old)]
    with pytest.raises(NetworkError, match="is full"):
        move_all(Line(shared, before=full), wanted, note=Noted())
    assert where(shared) == [None, old.digest, old.digest]


def test_a_tag_that_somebody_moves_between_reading_and_writing_stays_his() -> None:
    shared, old, new = images()
    theirs = put_image(shared, "2.15.1-cpu-py3.10")

    def move(call: Call) -> None:
        if call == ("put", "2.15"):
            shared.put("2.15", theirs)

    with pytest.raises(TagMoved):
        move_all(Line(shared, after=move), moves(new, old), note=Noted())
    assert where(shared) == [old.digest, theirs.digest, old.digest]


def test_a_tag_that_leads_elsewhere_than_when_it_was_decided_is_not_touched() -> None:
    shared, old, new = images()
    theirs = put_image(shared, "2.15.1-cpu-py3.10", tag="2.15")
    with pytest.raises(TagMoved, match=r"Somebody else moved 2\.15 from sha256:\w+ to sha256:\w+\."):
        move_all(shared, moves(new, old), note=Noted())
    assert where(shared) == [old.digest, theirs.digest, old.digest]


def test_what_a_killed_run_moved_goes_back_with_the_rest() -> None:
    shared, old, new = images()
    shared.put("2.15.1", new)
    with pytest.raises(NetworkError):
        move_all(Line(shared, before=full), moves(new, old), note=Noted())
    assert where(shared) == [old.digest] * 3


# Promotion: with evidence, the journal and the ledger


class At:
    """A desk in a folder: where tags are moved from, again and again."""

    def __init__(self, folder: Path, run: str = "run", publisher: str = "me") -> None:
        self.folder, self.run, self.publisher = folder, run, publisher
        self.proven: set[str] | None = None
        folder.mkdir(exist_ok=True)

    def desk(self, registry: Registry, journal: Journal) -> Desk:
        return Desk(
            registry=registry, journal=journal, run=self.run, key=OURS, publisher=self.publisher, version="0.0",
            locks=self.folder / "locks", prove=self._prove, now=lambda: EPOCH,
        )  # fmt: skip

    def _prove(self, digest: str, least: Level) -> Level:
        if self.proven is not None and digest not in self.proven:
            raise UnsignedError(f"{digest} has no evidence.", next_step="Attach it.")
        return least

    def promote(
        self, registry: Registry, new: Manifest, old: Manifest | None, *, reason: Reason = "publish",
        tags: Sequence[str] = TAGS, noted: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """As a run does: first what a killed one left, then its own. `noted` is called at each note."""
        with opened(self.folder / "journal.jsonl") as journal:

            def now() -> datetime:
                noted()
                return EPOCH

            journal.now = now
            desk = self.desk(registry, journal)
            if left_over(journal.records):
                finish(desk)
            else:
                with desk.having(tags):
                    promote(desk, self.promotion(registry, new, old, reason, tags))

    def promotion(
        self, registry: Registry, new: Manifest, old: Manifest | None, reason: Reason, tags: Sequence[str]
    ) -> Promotion:
        steps = tuple(
            Step(tag=move.tag, before=move.before, after=move.after, identifier="x", level="validated")
            for move in moves(new, old, tags)
        )
        return Promotion(
            name="aliases", reason=reason, time=EPOCH.isoformat(), ends=read(registry).ends, steps=steps
        )


@pytest.fixture
def at(tmp_path: Path) -> At:
    return At(tmp_path / "here")


def test_moved_tags_are_in_the_ledger(at: At) -> None:
    registry, old, new = images()
    at.promote(registry, new, old)
    (entry,) = read(registry).entries
    assert [(step.tag, step.before, step.after) for step in entry.draft.steps] == [
        (tag, old.digest, new.digest) for tag in TAGS
    ]
    assert entry.signed_by([OURS.verifying])


def test_without_evidence_no_tag_is_moved(at: At) -> None:
    registry, old, new = images()
    at.proven = set()
    with pytest.raises(UnsignedError):
        at.promote(registry, new, old)
    assert where(registry) == [old.digest] * 3
    assert read(registry).entries == ()


def test_an_image_that_is_gone_is_given_no_tag(at: At) -> None:
    registry, old, new = images()
    del registry.manifests[new.digest]
    with pytest.raises(NotInRegistry):
        at.promote(registry, new, old)


def was_killed(at: At, shared: MemoryRegistry, new: Manifest, old: Manifest, point: int, when: str) -> bool:
    """Run until it is killed; whether it was."""
    run = Mortal(shared, point, when)
    with suppress(Killed):
        at.promote(run.line, new, old, noted=run.note)
    return run.dead


@pytest.mark.parametrize("when", ["before", "after", "note"])
def test_killed_anywhere_and_run_again_all_is_done_once(memory_folder: Path, when: str) -> None:
    for point in range(1, 100):
        shared, old, new = images()
        at = At(memory_folder / f"{when}{point}")
        if not was_killed(at, shared, new, old, point, when):
            assert point > 5
            break
        at.promote(shared, new, old)
        assert where(shared) == [new.digest] * 3
        assert len(read(shared).entries) == 1


def test_tags_whose_evidence_has_gone_since_the_kill_are_led_back(at: At) -> None:
    shared, old, new = images()
    assert was_killed(at, shared, new, old, 4, "note")
    assert new.digest in where(shared)
    at.proven = set()
    at.promote(shared, new, old)
    assert where(shared) == [old.digest] * 3
    assert read(shared).entries == ()
    at.proven = {new.digest}
    at.promote(shared, new, old)
    assert where(shared) == [new.digest] * 3


@pytest.mark.parametrize("written", [False, True])
def test_tags_that_were_all_moved_are_led_back_if_their_evidence_went_before_it_was_written(
    memory_folder: Path, written: bool
) -> None:
    for point in range(1, 100):
        shared, old, new = images()
        at = At(memory_folder / f"{point}")
        assert was_killed(at, shared, new, old, point, "before")
        with opened(at.folder / "journal.jsonl") as journal:
            left = left_over(journal.records)
        if left and left[1] and bool(read(shared).entries) == written:
            break
    assert where(shared) == [new.digest] * 3
    at.proven = set()
    at.promote(shared, new, old)
    assert where(shared) == [new.digest if written else old.digest] * 3, "the ledger is not made to lie"
    assert len(read(shared).entries) == written


def test_two_on_one_machine_take_turns(tmp_path: Path) -> None:
    registry = MemoryRegistry()
    here = At(tmp_path / "one")
    inside, most = 0, 0

    def work(_: int) -> None:
        nonlocal inside, most
        file = tmp_path / f"{threading.get_ident()}.jsonl"
        with opened(file) as journal, here.desk(registry, journal).having(["b", "a"]):
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            inside -= 1

    at_once(work, 4)
    assert most == 1


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    turns=st.lists(st.integers(min_value=0, max_value=1), max_size=80),
    newer=st.integers(min_value=0, max_value=1),
)
def test_two_on_two_machines_leave_all_tags_to_one_of_them_however_their_calls_fall(
    memory_folder: Path, turns: Sequence[int], newer: int
) -> None:
    shared, folder = MemoryRegistry(), Path(tempfile.mkdtemp(dir=memory_folder))
    old = put_image(shared, "2.15.0-cpu-py3.11", age=9)
    for tag in TAGS:
        shared.put(tag, old)
    ages = [0, 1] if newer == 0 else [1, 0]
    new = [put_image(shared, "2.15.1-cpu-py3.11", age=age, content=f"{age}") for age in ages]
    rounds = Rounds(turns, 2)
    failed: list[BaseException | None] = [None, None]

    def publisher(number: int) -> None:
        line = Line(shared, before=lambda _: rounds.wait(number))
        try:
            At(folder / f"{number}", run=f"{number}", publisher=f"{number}").promote(line, new[number], old)
        except BaseException as error:
            failed[number] = error
        finally:
            rounds.leave(number)

    at_once(publisher, 2)
    assert [one for one in failed if one and not isinstance(one, TagMoved)] == []
    found = set(where(shared))
    ledger = read(shared)
    assert len(found) == 1, "no half of anybody's"
    winner = found.pop()
    if winner != old.digest:
        assert {ledger.last(tag).after for tag in TAGS} == {winner}  # type: ignore[union-attr]
    else:  # each gave way to the other
        assert all(failed)
    assert sum(one is None for one in failed) <= 1 or winner == new[newer].digest
