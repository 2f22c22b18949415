"""A tag led back to an image that it led to before: with evidence, and written down like any other move."""

from __future__ import annotations

from typing import Final

from tfimg.errors import NotInRegistry, UsageError
from tfimg.evidence.policy import Policy
from tfimg.publishing.ledger import Ledger, Step
from tfimg.publishing.promotion import Desk, Promotion, promote
from tfimg.publishing.release import held

NAME: Final = "rollback"
"""Of the one promotion of a run that leads a tag back, and why it does."""


def rolled_back(desk: Desk, tag: str, policy: Policy, *, to: str | None) -> Step:
    """Lead a tag back to the image that it led to before, or to the one that `to` is the beginning of.

    Raises `NotInRegistry` for a tag or an image that is not there, `UsageError` for one that the tag never led to, what
    `Desk.prove` raises where the image has no evidence of what the tag promises, and `TagMoved`.
    """
    registry = desk.registry
    with desk.having([tag]):
        ledger, found = desk.ledger(), registry.find(tag)
        if found is None:
            raise NotInRegistry(
                f"There is no {registry.repository}:{tag}.", next_step="Check the name and the tag."
            )
        after = back(ledger, tag, found.digest, to=to)
        there = held(registry, after)
        if there is None:
            raise NotInRegistry(
                f"{registry.repository}@{after}, to which {tag} led, is not there any more.",
                next_step="Name another one with --to; `tfimg history` shows all.",
            )
        level = desk.prove(after, policy.alias_level(tag))
        identifier = there.release.identifier if there.release else "unknown"
        step = Step(tag=tag, before=found.digest, after=after, identifier=identifier, level=level)
        time = desk.now().isoformat(timespec="seconds")
        promote(desk, Promotion(name=NAME, reason=NAME, time=time, ends=ledger.ends, steps=(step,)))
    return step


def resumed(desk: Desk, tag: str, *, to: str | None) -> Step | None:
    """What a rollback of the tag wrote down that was killed before it could say so, if the tag leads there still.

    `desk` is the killed run's, once `finish` has finished what there was. To lead the tag back once more would undo it.
    """
    ledger, found = desk.ledger(), desk.registry.find(tag)
    entry, step = next(reversed(ledger.of(tag)), (None, None))
    if entry is None or step is None or entry.draft.run != f"{desk.run}/{NAME}":
        return None
    if any(record.get("candidate") for record in desk.journal.everything()):
        return None  # `publish` goes on as that run, and has told of the rollback
    asked = to is None or _begins(step.after, to)
    return step if asked and found and found.digest == step.after else None


def back(ledger: Ledger, tag: str, now: str, *, to: str | None) -> str:
    """The digest that a tag is led back to from where it leads `now`. Raises `UsageError` where the ledger has none."""
    moves = [step for _, step in ledger.of(tag)]
    known = dict.fromkeys(digest for step in moves for digest in (step.before, step.after) if digest)
    if to is not None:
        found = [digest for digest in known if _begins(digest, to)]
        if len(found) == 1 and found[0] != now:
            return found[0]
        count = f"{len(found)} images" if found else "no image"
        why = "leads there now" if found == [now] else f"led to {count} whose digest begins so"
        raise UsageError(f"--to {to}: {tag} {why}.", next_step=f"`tfimg history` shows where {tag} led.")
    if now not in known and moves:  # somebody moved it who writes no ledger
        return moves[-1].after
    # Not by a rollback: what that left was taken back, and a second one goes a step further.
    published = [step for entry, step in ledger.of(tag) if entry.draft.reason != NAME]
    before = next((step.before for step in reversed(published) if step.after == now), None)
    if before is None:
        raise UsageError(
            f"The ledger does not say where {tag} led before it led to {now}.",
            next_step=f"`tfimg history` shows where {tag} led; a tag that is new has nothing to go back to.",
        )
    return before


def _begins(digest: str, to: str) -> bool:
    return digest.startswith(to) or digest.partition(":")[2].startswith(to)
