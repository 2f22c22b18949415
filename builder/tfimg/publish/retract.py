"""Roll a tag back, or withdraw an image: promote earlier images, withdraw the present one, move the tags.

The journal contains the whole retraction before its first statement is attached: after a kill, the same command repeats
it with the same bytes, unless the registry has changed so that it must be decided anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from tfimg.core.errors import PolicyViolation, TagConflict, UsageError
from tfimg.core.events import Message, OnEvent, ignore
from tfimg.core.journal import Journal, Record
from tfimg.evidence.dsse import sign_statement
from tfimg.evidence.promotions import Promotion, TagMove, Withdrawal, make_predicate_statement
from tfimg.evidence.statement import EARLIEST, Subject
from tfimg.publish.earlier_image import find_named, find_previous
from tfimg.publish.indexes import put_indexes
from tfimg.publish.repository import SignedRepository
from tfimg.publish.runs import RunFinished, open_run
from tfimg.publish.tags import Move, move_tags, require_tags
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.protocol import Registry, require_manifest


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

    def to_json(self) -> dict[str, Any]:
        """Return what was done as a JSON object."""
        return {
            "digest": self.digest,
            "moves": [asdict(move) for move in self.moves],
            "left": self.unmoved,
            "withdrawal": self.withdrawal.model_dump(mode="json") if self.withdrawal else None,
        }


_RETRACTION = TypeAdapter(Retraction)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetractionStarted(Record):
    """A retraction that is about to be performed, as JSON."""

    event = "retract"
    retraction: Mapping[str, Any]


def roll_back(
    repository: SignedRepository, tag: str, *, to: str | None = None, reason: str = "", on_event: OnEvent = ignore
) -> Retraction:
    """Point a tag to the image before the present one, or to `to`, and withdraw the present one for this tag.

    `to` is a digest of the tag's history, or its first digits. Raises `NotInRegistry` for a missing tag, `UsageError`
    or `PolicyViolation` if no image of the history qualifies, `WithdrawnError` for a withdrawn `to`, `TagConflict`.
    """
    request = RetractionRequest(command="rollback", image=tag, to=to)
    with open_run(repository.folder / "retract", repository.now, new=True) as (run, killed):
        if finished := _finish_killed(repository, request, run, killed, on_event):
            return finished
        with repository.lock_tags([tag]):
            present = require_manifest(repository.registry, tag).digest
            target = find_named(repository, tag, present, to) if to else find_previous(repository, tag, present)
            move = Move(tag=tag, before=present, after=target)
            retraction = Retraction(
                request=request,
                digest=present,
                moves=(move,),
                promotions=_promotions(repository, run, [move]),
                unmoved={},
                withdrawal=_withdrawal(repository, present, (tag,), reason or f"rolled back to {target}", target),
            )
            return _perform(repository, run, retraction)


def withdraw(
    repository: SignedRepository, digest: str, *, tags: Sequence[str] = (), reason: str, on_event: OnEvent = ignore
) -> Retraction:
    """Move the tags that point to an image back, then withdraw it: for some tags, or for all and by digest.

    Raises as `roll_back` does, except that a tag without an earlier image stays, and is listed in the result.
    """
    request = RetractionRequest(command="withdraw", image=digest, tags=tuple(sorted(tags)))
    with open_run(repository.folder / "retract", repository.now, new=True) as (run, killed):
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
            return _perform(repository, run, retraction)


def export_withdrawal(repository: SignedRepository, withdrawal: Withdrawal, digest: str) -> bytes:
    """Return a signed withdrawal as a line of a file for `tfimg load --withdrawals`."""
    statement = make_predicate_statement(Subject(name=repository.name, digest=digest), withdrawal)
    return sign_statement(statement, repository.key) + b"\n"


def _finish_killed(
    repository: SignedRepository, request: RetractionRequest, run: Journal, killed: Sequence[Journal], on_event: OnEvent
) -> Retraction | None:
    """Finish the same request of a killed run instead of this run; report other requests of killed runs."""
    for other in killed:
        records = other.earlier(RetractionStarted)
        if not records:
            other.write(RunFinished())
            continue
        started = _RETRACTION.validate_python(records[0].retraction)
        if started.request != request:
            on_event(Message(text=f"Not finished, because it was killed: {started.request}. Run it again."))
            continue
        with repository.lock_tags(move.tag for move in started.moves):
            if _is_outdated(repository, started):
                other.write(RunFinished())
                continue
            run.write(RunFinished())
            on_event(Message(text=f"Finishing the run {other.path.stem}, which was killed."))
            return _perform(repository, other, started)
    return None


def _is_outdated(repository: SignedRepository, started: Retraction) -> bool:
    """Return whether a killed retraction must be decided anew, because tags or statements have changed since.

    The image was promoted again, an image that takes over a tag was withdrawn, or a withdrawal would miss a tag.
    A rollback that has moved its tag is finished: another one would go one image further back.
    """
    is_rollback = started.request.command == "rollback"
    open_moves = [move for move in started.moves if _points_to(repository.registry, move.tag, move.before)]
    if is_rollback and not open_moves:
        return False
    times = [one.time for one in (*started.promotions.values(), started.withdrawal) if one]
    latest = next(iter(repository.statements(started.digest).promotions), None)
    if latest and latest.predicate.time >= max(times, default=EARLIEST):
        return True
    for move in open_moves:
        withdrawals = repository.statements(move.after).in_force(repository.name, move.tag)
        if {signed.statement for signed in withdrawals} - set(started.promotions[move.after].cancels):
            return True
    if is_rollback:
        return False
    tags = started.request.tags or _tags_of(repository.registry, started.digest)
    moves, _ = _plan_moves(repository, started.digest, tags)
    return not set(moves) <= set(started.moves)


def _points_to(registry: Registry, tag: str, digest: str | None) -> bool:
    manifest = registry.find(tag)
    return manifest is not None and manifest.digest == digest


def _perform(repository: SignedRepository, run: Journal, retraction: Retraction) -> Retraction:
    """Attach the statements and move the tags, unless an earlier run has done it.

    A rollback withdraws first: if it is killed, users refuse the tag instead of following it.
    """
    run.write(RetractionStarted(retraction=_RETRACTION.dump_python(retraction, mode="json")))
    withdraws_first = retraction.request.command == "rollback"
    try:
        for digest, promotion in retraction.promotions.items():
            repository.attach(digest, promotion)
        if retraction.withdrawal and withdraws_first:
            repository.attach(retraction.digest, retraction.withdrawal)
        move_tags(repository.registry, retraction.moves, write_record=run.write)
        require_tags(repository.registry, {move.tag: move.after for move in retraction.moves})
        if retraction.withdrawal and not withdraws_first:
            repository.attach(retraction.digest, retraction.withdrawal)
    except TagConflict:
        run.write(RunFinished())  # the next command decides anew
        raise
    put_indexes(repository, [move.tag for move in retraction.moves])
    run.write(RunFinished())
    return retraction


def _tags_of(registry: Registry, digest: str) -> list[str]:
    """Return the tags that point to an image, also those that no promotion names."""
    return [tag for tag in registry.list_tags() if _points_to(registry, tag, digest)]


def _promotions(repository: SignedRepository, run: Journal, moves: Sequence[Move]) -> dict[str, Promotion]:
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
        time=repository.now(),
        publisher=repository.publisher,
    )


def _plan_moves(repository: SignedRepository, digest: str, tags: Sequence[str]) -> tuple[list[Move], dict[str, str]]:
    moves, unmoved = [], {}
    for tag in tags:
        if not _points_to(repository.registry, tag, digest):
            continue
        if tag == make_build_tag(tag.rpartition("-")[0], digest):
            unmoved[tag] = "the tag of one build is never moved"
            continue
        try:
            moves.append(Move(tag=tag, before=digest, after=find_previous(repository, tag, digest)))
        except (UsageError, PolicyViolation) as error:
            unmoved[tag] = error.what
    return moves, unmoved
