"""Tags that are moved together, once there is evidence: noted, moved, written into the ledger, held against others'."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from tfimg.cancellation import check
from tfimg.errors import (
    NotInRegistry,
    PolicyUnmet,
    StaleEvidence,
    TagMoved,
    TamperedError,
    TfimgError,
    UnsignedError,
)
from tfimg.evidence.keys import SigningKey
from tfimg.journal import Journal, Record
from tfimg.publishing.ledger import Draft, Ledger, Reason, Step
from tfimg.publishing.ledger_store import Known, append, read
from tfimg.publishing.moving import Move, lead_back, move_all
from tfimg.publishing.settle import give_way, settle
from tfimg.recipe.describe import Level
from tfimg.registry.protocol import Registry
from tfimg.workspace import exclusive

UNPROVEN = (UnsignedError, TamperedError, PolicyUnmet, StaleEvidence, NotInRegistry)
"""What says that there is no evidence any more, and not that nobody could be asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """What tags are moved with. `run` names the run in the ledger, `publisher` is what its owner calls himself.

    `locks` is a folder. `prove` says which level is shown of the image of a digest, and raises where that is less than
    the one that is asked for, or there is no evidence. `entries` are the ledger's, as far as they were read.
    """

    registry: Registry
    journal: Journal
    run: str
    key: SigningKey | None
    publisher: str
    version: str
    locks: Path
    prove: Callable[[str, Level], Level]
    now: Callable[[], datetime]
    entries: Known = field(default_factory=dict)

    def ledger(self) -> Ledger:
        """What is written at this moment."""
        return read(self.registry, self.entries)

    @contextmanager
    def having(self, tags: Sequence[str]) -> Iterator[None]:
        """Let no other process of this machine move these tags; waits for its turn."""
        with ExitStack() as stack:
            for tag in sorted(set(tags)):  # in one order, so that no two wait for each other
                stack.enter_context(exclusive(self.locks / tag, check))
            yield


@dataclass(frozen=True, kw_only=True, slots=True)
class Promotion:
    """Tags to be moved together. `name` is its own in the run; `ends` are the ledger's when it was decided."""

    name: str
    reason: Reason
    time: str
    ends: tuple[str, ...]
    steps: tuple[Step, ...]


def promote(desk: Desk, promotion: Promotion, *, moved: bool = False) -> Ledger:
    """Move the tags, all or none, and write that down. To be called while the tags are had (`Desk.having`).

    `moved`: a killed run has moved them all. Raises `TagMoved` where others moved them at the same time, and what
    `prove` and the registry raise. Killed, it is finished by `left_over` and this again.
    """
    if not moved:
        _move(desk, promotion)
    draft = _draft(desk, promotion)
    ledger = append(desk.registry, draft, key=desk.key, now=desk.now(), known=desk.entries)
    desk.journal.note("written", name=promotion.name)
    try:
        ledger = settle(desk.registry, draft, ledger, ends=promotion.ends, key=desk.key, now=desk.now)
    except TagMoved:
        desk.journal.note("settled", name=promotion.name)
        raise
    desk.journal.note("settled", name=promotion.name)
    return ledger


def finish(desk: Desk) -> bool:
    """Finish what a killed run of this journal was at, if anything; tags whose evidence has gone since are led back.

    Raises as `promote` does, and `PublicationIncomplete` where they cannot be.
    """
    found = left_over(desk.journal.records)
    if not found:
        return False
    promotion, moved = found
    with desk.having([step.tag for step in promotion.steps]):
        try:
            if moved and not desk.ledger().has(_draft(desk, promotion)):
                _prove(desk, promotion)
            promote(desk, promotion, moved=moved)
        except UNPROVEN as error:
            lead_back(desk.registry, _moves(promotion), note=desk.journal.note, why=error)
    return True


def _draft(desk: Desk, promotion: Promotion) -> Draft:
    return Draft(
        run=f"{desk.run}/{promotion.name}", reason=promotion.reason, time=promotion.time, steps=promotion.steps,
        publisher=desk.publisher, version=desk.version,
    )  # fmt: skip


def _moves(promotion: Promotion) -> Sequence[Move]:
    return [Move(tag=step.tag, before=step.before, after=step.after) for step in promotion.steps]


def _prove(desk: Desk, promotion: Promotion) -> None:
    for digest, level in sorted({(step.after, step.level) for step in promotion.steps}):
        desk.prove(digest, level)


def _move(desk: Desk, promotion: Promotion) -> None:
    _prove(desk, promotion)
    desk.journal.note("moving", **asdict(promotion))
    try:
        move_all(desk.registry, _moves(promotion), note=desk.journal.note)
    except TfimgError:  # the tags are back; nobody else's move may be undone by that
        with suppress(TfimgError):
            give_way(desk.registry, promotion.steps, desk.ledger(), ends=promotion.ends)
        raise
    desk.journal.note("moved", name=promotion.name)


def left_over(records: Sequence[Record]) -> tuple[Promotion, bool] | None:
    """The tags that a killed run was moving, and whether it had moved them all; else not even it knew which."""
    found: tuple[Promotion, bool] | None = None
    for record in records:
        match record.get("event"):
            case "moving":
                found = _read(record), False
            case "moved" if found:
                found = found[0], True
            case "settled" | "moved-back":
                found = None
    return found


def _read(record: Record) -> Promotion:
    return Promotion(
        name=record["name"], reason=record["reason"], time=record["time"], ends=tuple(record["ends"]),
        steps=tuple(Step(**step) for step in record["steps"]),
    )  # fmt: skip
