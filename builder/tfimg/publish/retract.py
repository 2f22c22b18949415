"""Roll a tag back, or withdraw an image: promotions of earlier images, a withdrawal of the present one, moved tags.

The whole retraction is in the journal before its first statement is attached: after a kill the same command does the
same again, with the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from pydantic import TypeAdapter

from tfimg.core.errors import (
    NotInRegistry,
    PolicyViolation,
    StaleEvidence,
    TagConflict,
    TamperedError,
    UnsignedError,
    UsageError,
    WithdrawnError,
)
from tfimg.core.journal import JournalLine
from tfimg.evidence.policy import Policy
from tfimg.evidence.promotions import Promotion, TagHistoryEntry, TagMove, Withdrawal, walk_history, withdrawn_error
from tfimg.publish.publisher import Publisher
from tfimg.publish.tags import Move, move_tags, require_tags
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.protocol import Registry, require_manifest
from tfimg.registry.reference import DIGEST

UNPROVEN = (UnsignedError, TamperedError, PolicyViolation, StaleEvidence, NotInRegistry, WithdrawnError)
"""Errors that say that an image lacks the evidence, and not that the registry did not answer."""

MAX_STEPS = 1000
"""Moves of a tag that are searched for an image to roll back to."""


@dataclass(frozen=True, kw_only=True)
class Retraction:
    """What a rollback or withdrawal does. `request` is what was asked for, `digest` the image that loses its tags.

    `withdrawal` is None where one that says the same is in force. `promotions` are by the digest that they are about;
    `left` says of each tag that still points to the image why it cannot be moved.
    """

    request: dict[str, Any]
    digest: str
    withdrawal: Withdrawal | None
    promotions: dict[str, Promotion]
    moves: tuple[Move, ...]
    left: dict[str, str]


def rollback(publisher: Publisher, tag: str, policy: Policy, *, to: str | None, reason: str | None) -> Retraction:
    """Point a tag to the image before the present one, or to `to`, and withdraw the present one for this tag.

    `to` is a digest of the tag's history, or its first digits. Raises `NotInRegistry` for a missing tag, `UsageError`
    and `PolicyViolation` where no image of the history will do, `WithdrawnError` for a withdrawn `to`,
    and `TagConflict`.
    """
    with publisher.having([tag]):
        registry = publisher.registry
        present = require_manifest(registry, tag).digest
        target = _named(publisher, tag, present, to, policy) if to else _previous(publisher, tag, present, policy)
        retraction = Retraction(
            request=rollback_request(tag, to),
            digest=present,
            moves=(Move(tag=tag, before=present, after=target),),
            promotions={target: _promotion(publisher, target, [TagMove(tag=tag, previous=present)])},
            left={},
            withdrawal=_withdrawal(
                publisher, present, (tag,), reason or f"rolled back to {target}", replacement=target
            ),
        )
        return _carry_out(publisher, retraction)


def withdraw(publisher: Publisher, digest: str, policy: Policy, *, tags: Sequence[str], reason: str) -> Retraction:
    """Move the tags that point to an image back, then withdraw it: for some tags, or altogether.

    Without `tags`, each tag of the repository is read. Raises as `rollback` does, except that a tag without an earlier
    image is left, and named.
    """
    known = sorted(tags or _tags_of(publisher.registry, digest))
    with publisher.having(known):
        require_manifest(publisher.registry, digest, next_step="Check the name and the digest.")
        moves, left = _plan_moves(publisher, digest, known, policy)
        targets = {move.after for move in moves}
        retraction = Retraction(
            request=withdraw_request(digest, tags),
            digest=digest,
            moves=tuple(moves),
            left=left,
            promotions={
                target: _promotion(
                    publisher,
                    target,
                    [TagMove(tag=move.tag, previous=digest) for move in moves if move.after == target],
                )
                for target in sorted(targets)
            },
            withdrawal=_withdrawal(
                publisher,
                digest,
                tuple(tags) or None,
                reason,
                replacement=targets.pop() if len(targets) == 1 else None,
            ),
        )
        return _carry_out(publisher, retraction)


def _tags_of(registry: Registry, digest: str) -> list[str]:
    """Return the tags that point to an image, also those that no promotion names."""
    return [tag for tag in registry.list_tags() if (found := registry.find(tag)) and found.digest == digest]


def rollback_request(tag: str, to: str | None) -> dict[str, Any]:
    """Return the request of a rollback, by which a killed one is found again."""
    return {"command": "rollback", "tag": tag, "to": to}


def withdraw_request(digest: str, tags: Sequence[str]) -> dict[str, Any]:
    """Return the request of a withdrawal, by which a killed one is found again."""
    return {"command": "withdraw", "digest": digest, "tags": sorted(tags)}


def unfinished(records: Sequence[JournalLine]) -> Retraction | None:
    """Return the retraction that a killed run had begun."""
    record = next((record for record in records if record.get("event") == "retract"), None)
    return _RETRACTION.validate_python(record["retraction"]) if record else None


def resume(publisher: Publisher, retraction: Retraction) -> Retraction:
    """Carry out what a killed run had begun: steps that were done are not done again."""
    with publisher.having([move.tag for move in retraction.moves]):
        return _perform(publisher, retraction)


_RETRACTION = TypeAdapter(Retraction)


def _carry_out(publisher: Publisher, retraction: Retraction) -> Retraction:
    publisher.journal.note("retract", retraction=_RETRACTION.dump_python(retraction, mode="json"))
    return _perform(publisher, retraction)


def _perform(publisher: Publisher, retraction: Retraction) -> Retraction:
    """Attach the statements and move the tags. A rollback withdraws first: killed, its tag is refused, not moved on."""
    try:
        for digest, promotion in retraction.promotions.items():
            publisher.attach(digest, promotion)
        if retraction.request["command"] == "rollback":
            _attach_withdrawal(publisher, retraction)
        move_tags(publisher.registry, retraction.moves, note=publisher.journal.note)
        require_tags(publisher.registry, {move.tag: move.after for move in retraction.moves})
        if retraction.request["command"] == "withdraw":
            _attach_withdrawal(publisher, retraction)
    except TagConflict:
        publisher.journal.note("finished")  # the next command decides anew
        raise
    publisher.journal.note("finished")
    return retraction


def _attach_withdrawal(publisher: Publisher, retraction: Retraction) -> None:
    if retraction.withdrawal:
        publisher.attach(retraction.digest, retraction.withdrawal)


def _promotion(publisher: Publisher, digest: str, moves: Sequence[TagMove]) -> Promotion:
    """Return the promotion of an image that takes over tags of the present one."""
    known = publisher.statements(digest)
    earlier = [known, *(publisher.statements(move.previous) for move in moves if move.previous)]
    repository = publisher.registry.repository
    cancels = {one.statement for move in moves for one in known.in_force(repository, move.tag)}
    return publisher.promotion(moves, earlier, reason="rollback", cancels=cancels)


def _withdrawal(
    publisher: Publisher, digest: str, tags: tuple[str, ...] | None, reason: str, *, replacement: str | None
) -> Withdrawal | None:
    repository = publisher.registry.repository
    known = publisher.statements(digest)
    if all(known.in_force(repository, tag) for tag in tags or (None,)):
        return None
    return Withdrawal(
        repository=repository,
        tags=tags,
        reason=reason,
        replacement=replacement,
        time=publisher.now().astimezone(UTC),
        publisher=publisher.name,
    )


def _plan_moves(
    publisher: Publisher, digest: str, tags: Sequence[str], policy: Policy
) -> tuple[list[Move], dict[str, str]]:
    moves, left = [], {}
    for tag in tags:
        found = publisher.registry.find(tag)
        if found is None or found.digest != digest:
            continue
        if tag == make_build_tag(tag.rpartition("-")[0], digest):
            left[tag] = "the tag of one build is never moved"
            continue
        try:
            moves.append(Move(tag=tag, before=digest, after=_previous(publisher, tag, digest, policy)))
        except (UsageError, PolicyViolation) as error:
            left[tag] = error.what
    return moves, left


def _previous(publisher: Publisher, tag: str, present: str, policy: Policy) -> str:
    """Return the image before the present one that is not withdrawn and has the level that the tag promises."""
    reasons: dict[str, str] = {}
    for step in _steps(publisher, tag, present):
        if step.digest == present or step.digest in reasons:
            continue
        why = _objection(publisher, step, tag, policy)
        if why is None:
            return step.digest
        reasons[step.digest] = why
    name = f"{publisher.registry.repository}:{tag}"
    if not reasons:
        raise UsageError(
            f"No signed promotion says what {name} pointed to before {present}.",
            next_step="Name an image with --to DIGEST; `tfimg history` shows those that are known.",
        )
    listed = "; ".join(f"{digest} {why}" for digest, why in reasons.items())
    raise PolicyViolation(
        f"{name} has no earlier image to return to: {listed}.",
        next_step="Publish another image under the tag, or name one with --to DIGEST.",
    )


def _objection(publisher: Publisher, step: TagHistoryEntry, tag: str, policy: Policy) -> str | None:
    if step.in_force:
        return "was withdrawn"
    if step.promotion is None:
        return "has no signed promotion for this tag"
    try:
        publisher.prove(step.digest, policy.find_promise(tag).level)
    except UNPROVEN as error:
        return f"has not the evidence that the tag promises ({error.what})"
    return None


def _named(publisher: Publisher, tag: str, present: str, to: str, policy: Policy) -> str:
    """Return the image that `--to` names. Raises what `Publisher.prove` does, `UsageError` and `WithdrawnError`."""
    repository = publisher.registry.repository
    known = dict.fromkeys(step.digest for step in _steps(publisher, tag, present) if step.digest != present)
    found = [digest for digest in known if digest.startswith(to) or digest.startswith(f"sha256:{to}")]
    behind_gap = not found and to != present and DIGEST.fullmatch(to)
    if behind_gap and publisher.statements(to).promotions_of(repository, tag):
        found = [to]
    if len(found) != 1:
        what = f"{len(found)} images have a digest that begins so" if found else "no image has such a digest"
        raise UsageError(
            f"--to {to}: in the signed history of {tag}, {what} besides the present one.",
            next_step=f"`tfimg history {repository} {tag}` shows it; name the whole digest.",
        )
    (digest,) = found
    withdrawals = publisher.statements(digest).in_force(repository, tag)
    if withdrawals and not publisher.reinstates:
        error = withdrawn_error(withdrawals[0].predicate, image=f"{repository}@{digest}")
        raise WithdrawnError(error.what, next_step="Name another image, or cancel the withdrawal with --reinstate.")
    publisher.prove(digest, policy.find_promise(tag).level)
    return digest


def _steps(publisher: Publisher, tag: str, present: str) -> Iterator[TagHistoryEntry]:
    return walk_history(publisher.registry.repository, tag, present, publisher.statements, limit=MAX_STEPS)
