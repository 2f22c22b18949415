"""Roll a tag back, or withdraw an image: promote earlier images, withdraw the present one, move the tags.

The journal contains the whole retraction before its first statement is attached: after a kill, the same command repeats
it with the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Literal

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
from tfimg.core.events import Message, OnEvent, ignore
from tfimg.core.journal import Record
from tfimg.evidence.promotions import Promotion, TagHistoryEntry, TagMove, Withdrawal, walk_history, withdrawn_error
from tfimg.publish.repository import SignedRepository
from tfimg.publish.runs import Run, RunFinished
from tfimg.publish.tags import Move, move_tags, require_tags
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.protocol import Registry, require_manifest
from tfimg.registry.reference import DIGEST

UNPROVEN = (UnsignedError, TamperedError, PolicyViolation, StaleEvidence, NotInRegistry, WithdrawnError)
"""Errors that mean that an image lacks evidence, not that the registry failed."""

MAX_STEPS = 1000
"""Moves of a tag that are searched for an image to roll back to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetractionRequest:
    """The command that a user gave. `image` is a tag to roll back or a digest to withdraw."""

    command: Literal["rollback", "withdraw"]
    image: str
    to: str | None = None
    tags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(filter(None, (self.command, self.image, self.to, *self.tags)))


@dataclass(frozen=True, kw_only=True)
class Retraction:
    """What a rollback or withdrawal does. `digest` is the image that loses its tags.

    `withdrawal` is None if an equal one is in force. `promotions` are by the digest that they are about; `unmoved`
    says of each tag that still points to the image why it cannot be moved.
    """

    request: RetractionRequest
    digest: str
    withdrawal: Withdrawal | None
    promotions: dict[str, Promotion]
    moves: tuple[Move, ...]
    unmoved: dict[str, str]


_RETRACTION = TypeAdapter(Retraction)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetractionStarted(Record):
    """A retraction that is about to be performed, as JSON."""

    event = "retract"
    retraction: Mapping[str, Any]


def roll_back(
    repository: SignedRepository,
    tag: str,
    *,
    to: str | None = None,
    reason: str | None = None,
    on_event: OnEvent = ignore,
) -> Retraction:
    """Point a tag to the image before the present one, or to `to`, and withdraw the present one for this tag.

    `to` is a digest of the tag's history, or its first digits. Raises `NotInRegistry` for a missing tag, `UsageError`
    or `PolicyViolation` if no image of the history qualifies, `WithdrawnError` for a withdrawn `to`, `TagConflict`.
    """
    request = RetractionRequest(command="rollback", image=tag, to=to)
    with repository.open_run(retraction=True) as (run, killed):
        if finished := _finish_killed(repository, request, run, killed, on_event):
            return finished
        with repository.lock_tags([tag]):
            present = require_manifest(repository.registry, tag).digest
            target = _find_named(repository, tag, present, to) if to else _find_previous(repository, tag, present)
            move = Move(tag=tag, before=present, after=target)
            retraction = Retraction(
                request=request,
                digest=present,
                moves=(move,),
                promotions=_promotions(repository, run, [move]),
                unmoved={},
                withdrawal=_withdrawal(repository, present, (tag,), reason or f"rolled back to {target}", target),
            )
            return _start(repository, run, retraction)


def withdraw(
    repository: SignedRepository, digest: str, *, tags: Sequence[str] = (), reason: str, on_event: OnEvent = ignore
) -> Retraction:
    """Move the tags that point to an image back, then withdraw it: for some tags, or for all and by digest.

    Raises as `roll_back` does, except that a tag without an earlier image stays, and is listed in the result.
    """
    request = RetractionRequest(command="withdraw", image=digest, tags=tuple(sorted(tags)))
    with repository.open_run(retraction=True) as (run, killed):
        if finished := _finish_killed(repository, request, run, killed, on_event):
            return finished
        affected = sorted(tags or _tags_of(repository.registry, digest))
        with repository.lock_tags(affected):
            require_manifest(repository.registry, digest, next_step="Check the name and the digest.")
            moves, unmoved = _plan_moves(repository, digest, affected)
            targets = {move.after for move in moves}
            replacement = targets.pop() if len(targets) == 1 else None
            retraction = Retraction(
                request=request,
                digest=digest,
                moves=tuple(moves),
                unmoved=unmoved,
                promotions=_promotions(repository, run, moves),
                withdrawal=_withdrawal(repository, digest, tuple(tags) or None, reason, replacement),
            )
            return _start(repository, run, retraction)


def _finish_killed(
    repository: SignedRepository, request: RetractionRequest, run: Run, killed: Sequence[Run], on_event: OnEvent
) -> Retraction | None:
    """Finish the same request of a killed run instead of this run; report other requests of killed runs."""
    for other in killed:
        records = other.journal.earlier(RetractionStarted)
        if not records:
            other.journal.write(RunFinished())
            continue
        started = _RETRACTION.validate_python(records[0].retraction)
        if started.request == request:
            run.journal.write(RunFinished())
            on_event(Message(text=f"Finishing the run {other.name}, which was killed."))
            with repository.lock_tags(move.tag for move in started.moves):
                return _perform(repository, other, started)
        else:
            on_event(Message(text=f"Not finished, because it was killed: {started.request}. Run it again."))
    return None


def _start(repository: SignedRepository, run: Run, retraction: Retraction) -> Retraction:
    run.journal.write(RetractionStarted(retraction=_RETRACTION.dump_python(retraction, mode="json")))
    return _perform(repository, run, retraction)


def _perform(repository: SignedRepository, run: Run, retraction: Retraction) -> Retraction:
    """Attach the statements and move the tags, unless an earlier run has done it.

    A rollback withdraws first: if it is killed, users refuse the tag instead of following it.
    """
    withdraws_first = retraction.request.command == "rollback"
    try:
        for digest, promotion in retraction.promotions.items():
            repository.attach(digest, promotion)
        if retraction.withdrawal and withdraws_first:
            repository.attach(retraction.digest, retraction.withdrawal)
        move_tags(repository.registry, retraction.moves, write_record=run.journal.write)
        require_tags(repository.registry, {move.tag: move.after for move in retraction.moves})
        if retraction.withdrawal and not withdraws_first:
            repository.attach(retraction.digest, retraction.withdrawal)
    except TagConflict:
        run.journal.write(RunFinished())  # the next command decides anew
        raise
    run.journal.write(RunFinished())
    return retraction


def _tags_of(registry: Registry, digest: str) -> list[str]:
    """Return the tags that point to an image, also those that no promotion names."""
    return [tag for tag in registry.list_tags() if (manifest := registry.find(tag)) and manifest.digest == digest]


def _promotions(repository: SignedRepository, run: Run, moves: Sequence[Move]) -> dict[str, Promotion]:
    """Return the promotions of the images that take over tags, by digest."""
    promotions = {}
    for digest in sorted({move.after for move in moves}):
        known = repository.statements(digest)
        tags = [TagMove(tag=move.tag, previous=move.before) for move in moves if move.after == digest]
        earlier = [known, *(repository.statements(tag.previous) for tag in tags if tag.previous)]
        cancels = {signed.statement for tag in tags for signed in known.in_force(repository.name, tag.tag)}
        promotions[digest] = repository.promotion(run, tags, earlier, reason="rollback", cancels=cancels)
    return promotions


def _withdrawal(
    repository: SignedRepository, digest: str, tags: tuple[str, ...] | None, reason: str, replacement: str | None
) -> Withdrawal | None:
    known = repository.statements(digest)
    if all(known.in_force(repository.name, tag) for tag in tags or (None,)):
        return None
    return Withdrawal(
        repository=repository.name,
        tags=tags,
        reason=reason,
        replacement=replacement,
        time=repository.now().astimezone(UTC),
        publisher=repository.publisher,
    )


def _plan_moves(repository: SignedRepository, digest: str, tags: Sequence[str]) -> tuple[list[Move], dict[str, str]]:
    moves, unmoved = [], {}
    for tag in tags:
        current = repository.registry.find(tag)
        if current is None or current.digest != digest:
            continue
        if tag == make_build_tag(tag.rpartition("-")[0], digest):
            unmoved[tag] = "the tag of one build is never moved"
            continue
        try:
            moves.append(Move(tag=tag, before=digest, after=_find_previous(repository, tag, digest)))
        except (UsageError, PolicyViolation) as error:
            unmoved[tag] = error.what
    return moves, unmoved


def _find_previous(repository: SignedRepository, tag: str, present: str) -> str:
    """Return the image before the present one that is not withdrawn and has the level that the tag promises."""
    objections: dict[str, str] = {}
    for step in _steps(repository, tag, present):
        if step.digest == present or step.digest in objections:
            continue
        objection = _objection(repository, step, tag)
        if objection is None:
            return step.digest
        objections[step.digest] = objection
    name = f"{repository.name}:{tag}"
    if not objections:
        raise UsageError(
            f"No signed promotion says what {name} pointed to before {present}.",
            next_step="Name an image with --to DIGEST; `tfimg history` lists the known ones.",
        )
    listed = "; ".join(f"{digest} {objection}" for digest, objection in objections.items())
    raise PolicyViolation(
        f"{name} has no earlier image to return to: {listed}.",
        next_step="Publish another image under the tag, or name one with --to DIGEST.",
    )


def _objection(repository: SignedRepository, step: TagHistoryEntry, tag: str) -> str | None:
    if step.in_force:
        return "was withdrawn"
    if step.promotion is None:
        return "has no signed promotion for this tag"
    try:
        repository.require_level(step.digest, repository.policy.find_promise(tag).level)
    except UNPROVEN as error:
        return f"lacks the evidence that the tag promises ({error.what})"
    return None


def _find_named(repository: SignedRepository, tag: str, present: str, to: str) -> str:
    """Return the image that `to` names. Raises what `require_level` does, `UsageError` and `WithdrawnError`."""
    history = dict.fromkeys(step.digest for step in _steps(repository, tag, present) if step.digest != present)
    found = [digest for digest in history if digest.startswith((to, f"sha256:{to}"))]
    is_behind_gap = not found and to != present and DIGEST.fullmatch(to)
    if is_behind_gap and repository.statements(to).promotions_of(repository.name, tag):
        found = [to]
    if len(found) != 1:
        matches = f"{len(found)} images match" if found else "no image matches"
        raise UsageError(
            f"--to {to}: {matches} in the signed history of {tag}, besides the present image.",
            next_step=f"`tfimg history {repository.name} {tag}` lists them; name the whole digest.",
        )
    (digest,) = found
    withdrawals = repository.statements(digest).in_force(repository.name, tag)
    if withdrawals and not repository.reinstate:
        error = withdrawn_error(withdrawals[0].predicate, image=f"{repository.name}@{digest}")
        raise WithdrawnError(error.what, next_step="Name another image, or cancel the withdrawal with --reinstate.")
    repository.require_level(digest, repository.policy.find_promise(tag).level)
    return digest


def _steps(repository: SignedRepository, tag: str, present: str) -> Iterator[TagHistoryEntry]:
    return walk_history(repository.name, tag, present, repository.statements, limit=MAX_STEPS)
