"""Two publishers who moved the same tags at once: whoever looks last finds both in the ledger, and one of them stays.

Everybody looks, once he has written or given up, and everybody comes to the same end: it does not matter who is last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from packaging.version import Version

from tfimg.errors import TagMoved
from tfimg.evidence.keys import SigningKey
from tfimg.publishing.ledger import Draft, Ledger, Step
from tfimg.publishing.ledger_store import append
from tfimg.publishing.moving import require
from tfimg.publishing.release import held
from tfimg.registry.protocol import Registry

NOBODY = Version("0.dev0"), datetime.min.replace(tzinfo=UTC)
"""The rank of what is no image of tfimg, or is there no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Claim:
    """A step, and whose it is."""

    draft: Draft
    step: Step


def settle(
    registry: Registry,
    draft: Draft,
    ledger: Ledger,
    *,
    ends: Sequence[str],
    key: SigningKey | None,
    now: Callable[[], datetime],
) -> Ledger:
    """Hold a draft that is written against what others wrote since the ledger had these `ends`.

    Of a tag that several moved, the newest image has it, whoever came last; one that was taken back goes before all.
    Raises `TagMoved` where that is another's image, or somebody moved a tag who writes no ledger.
    """
    claims = {step.tag: list(_claims(ledger, ends, step.tag)) for step in draft.steps}
    winners = {tag: _winner(registry, those) for tag, those in claims.items()}
    for step in draft.steps:
        _lead(registry, winners[step.tag], {step.before, *(claim.step.after for claim in claims[step.tag])})
    steps = tuple(told for winner in winners.values() if (told := _correction(ledger, winner)))
    if steps:
        correction = Draft(
            run=f"{draft.run}/settled", reason=draft.reason, time=now().isoformat(timespec="seconds"),
            publisher=draft.publisher, version=draft.version, steps=steps,
        )  # fmt: skip
        ledger = append(registry, correction, key=key, now=now())
    mine = {step.tag: step.after for step in draft.steps}
    if lost := [winner for tag, winner in winners.items() if winner.step.after != mine[tag]]:
        raise TagMoved(
            "Somebody else published at the same time, and what he has is newer: "
            + ", ".join(f"{one.step.tag} leads to {one.step.after} of {one.draft.publisher}" for one in lost),
            next_step="Nothing is to be done; `tfimg history` shows both.",
        )
    return ledger


def give_way(registry: Registry, steps: Sequence[Step], ledger: Ledger, *, ends: Sequence[str]) -> None:
    """Having led tags back, see that it was not from where somebody else had led them meanwhile."""
    for step in steps:
        if claims := list(_claims(ledger, ends, step.tag)):
            winner = _winner(registry, claims)
            _lead(registry, winner, {step.before, step.after, *(claim.step.after for claim in claims)})


def _claims(ledger: Ledger, ends: Sequence[str], tag: str) -> Iterator[_Claim]:
    for entry in ledger.since(ends):
        for step in entry.draft.steps:
            if step.tag == tag:
                yield _Claim(draft=entry.draft, step=step)


def _winner(registry: Registry, claims: Sequence[_Claim]) -> _Claim:
    return max(claims, key=lambda claim: _rank(registry, claim)) if len(claims) > 1 else claims[0]


def _rank(registry: Registry, claim: _Claim) -> tuple[bool, Version, datetime, str]:
    there = held(registry, claim.step.after)
    rank = there.release.rank if there and there.release else NOBODY
    return claim.draft.reason == "rollback", *rank, claim.step.after


def _lead(registry: Registry, winner: _Claim, known: set[str | None]) -> None:
    """Lead a tag to the winner's image, where it leads to another of those that are `known`.

    Raises `TagMoved` where it leads to none of them: somebody moved it who writes no ledger, and it stays his.
    """
    tag, after = winner.step.tag, winner.step.after
    found = registry.find(tag)
    if found and found.digest == after:
        return
    if (found.digest if found else None) not in known:
        require(tag, found, after)
    if manifest := registry.find(after):
        registry.put(tag, manifest)


def _correction(ledger: Ledger, winner: _Claim) -> Step | None:
    """What the ledger is to be told of a tag, where its last word is another."""
    step, last = winner.step, ledger.last(winner.step.tag)
    if last and last.after == step.after:
        return None
    before = last.after if last else None
    return Step(tag=step.tag, before=before, after=step.after, identifier=step.identifier, level=step.level)
