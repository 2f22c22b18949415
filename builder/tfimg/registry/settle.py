"""Two publishers who moved the same tags at once: who comes last finds both in the ledger, and leaves one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from packaging.version import Version

from tfimg.errors import TagMoved
from tfimg.registry.keys import SigningKey
from tfimg.registry.ledger import Draft, Entry, Ledger, Step
from tfimg.registry.ledger_store import append
from tfimg.registry.moving import require
from tfimg.registry.protocol import Registry
from tfimg.registry.release import held

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
    Everybody comes to the same end so. Raises `TagMoved` where that is another's image, or somebody moved a tag
    who writes no ledger.
    """
    lost, steps = [], []
    others = [entry for entry in ledger.since(ends) if not _is(entry, draft)]
    for step in draft.steps:
        claims = [
            _Claim(draft=entry.draft, step=one)
            for entry in others
            for one in entry.draft.steps
            if one.tag == step.tag
        ]
        mine = _Claim(draft=draft, step=step)
        winner = max((mine, *claims), key=lambda claim: _rank(registry, claim)) if claims else mine
        if winner is not mine:
            lost.append(winner)
        if correction := _led(registry, ledger, winner, [mine, *claims]):
            steps.append(correction)
    if steps:
        told = Draft(
            run=f"{draft.run}/settled", reason=draft.reason, time=_moment(now()), publisher=draft.publisher,
            version=draft.version, steps=tuple(steps),
        )  # fmt: skip
        ledger = append(registry, told, key=key, now=now())
    if lost:
        raise TagMoved(
            "Somebody else published at the same time, and what he has is newer: "
            + ", ".join(f"{one.step.tag} leads to {one.step.after} of {one.draft.publisher}" for one in lost),
            next_step="Nothing is to be done; `tfimg history` shows both.",
        )
    return ledger


def _led(registry: Registry, ledger: Ledger, winner: _Claim, claims: Sequence[_Claim]) -> Step | None:
    """Lead a tag to the winner's image; returns what the ledger is to be told of that, where it does not say so."""
    tag, after = winner.step.tag, winner.step.after
    found = registry.find(tag)
    last = ledger.last(tag)
    if found is None or found.digest not in {claim.step.after for claim in claims}:
        require(tag, found, after)  # it is neither ours nor of anybody in the ledger
    if found and found.digest != after:
        manifest = registry.find(after)
        require(f"{registry.repository}@{after}", manifest, after)
        if manifest:
            registry.put(tag, manifest)
    if last and last.after == after:
        return None
    return Step(
        tag=tag, before=last.after if last else None, after=after, identifier=winner.step.identifier,
        level=winner.step.level,
    )  # fmt: skip


def _rank(registry: Registry, claim: _Claim) -> tuple[bool, Version, datetime, str]:
    there = held(registry, claim.step.after)
    release = there.release if there else None
    rank = release.rank if release else NOBODY
    return claim.draft.reason == "rollback", *rank, claim.step.after


def _is(entry: Entry, draft: Draft) -> bool:
    return entry.draft.run == draft.run


def _moment(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
