"""Roll a tag back, or withdraw an image: promote earlier images, withdraw the present one, move the tags.

The journal contains the whole retraction before its first statement is attached: after a kill, the same command repeats
it with the same bytes, unless the registry has changed so that it must be decided anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfimg.core.errors import PolicyViolation, TagConflict, UsageError
from tfimg.core.events import Message, OnEvent, ignore
from tfimg.core.journal import Journal
from tfimg.core.runs import RunFinished, open_run
from tfimg.evidence.dsse import sign_statement
from tfimg.evidence.promotions import Promotion, TagMove, Withdrawal, make_predicate_statement, next_time
from tfimg.evidence.statement import EARLIEST, Subject
from tfimg.matrix.schema import Platform
from tfimg.publish.earlier_image import find_named, find_previous
from tfimg.publish.indexes import find_own_tag, list_digests, list_platform_tags, update_indexes
from tfimg.publish.repository import SignedRepository
from tfimg.publish.retraction import RETRACTION, RetractedImage, Retraction, RetractionRequest, RetractionStarted
from tfimg.publish.tags import Move, move_tags, require_tags
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.protocol import Registry, require_manifest


def roll_back(
    repository: SignedRepository,
    tag: str,
    *,
    to: str | None = None,
    platform: Platform | None = None,
    reason: str = "",
    on_event: OnEvent = ignore,
) -> Retraction:
    """Point a tag to the image before the present one, or to `to`, and withdraw the present one for this tag.

    Of an index, this is done for each platform, or for `platform` alone. `to` is a digest of the tag's history, or its
    first digits. Raises `NotInRegistry` for a missing tag, `UsageError` or `PolicyViolation` if no image of the history
    qualifies, `WithdrawnError` for a withdrawn `to`, `TagConflict`.
    """
    request = RetractionRequest(command="rollback", image=tag, to=to, platform=platform)
    with open_run(repository.folder / "retract", repository.now, new=True) as (run, killed):
        if finished := _finish_killed(repository, request, run, killed, on_event):
            return finished
        with repository.lock_tags([tag]):
            tags = list_platform_tags(repository.registry, tag, platform)
            if to and len(tags) > 1:
                raise UsageError(
                    f"{tag} is an index, and --to {to} is the image of one platform.",
                    next_step="Name that platform with --platform.",
                )
            moves = [_plan_rollback(repository, one, to, is_alone=len(tags) == 1) for one in tags]
            promotions = _promotions(repository, run, moves)  # earlier than the withdrawals, as histories show them
            images = []
            for move in moves:
                present, why = str(move.before), reason or f"rolled back to {move.after}"
                withdrawal = _withdrawal(repository, present, (move.tag,), why, move.after)
                images.append(RetractedImage(digest=present, withdrawal=withdrawal, moves=(move,)))
            return _perform(repository, run, Retraction(request=request, images=tuple(images), promotions=promotions))


def withdraw(
    repository: SignedRepository,
    digest: str,
    *,
    tags: Sequence[str] = (),
    reason: str,
    on_event: OnEvent = ignore,
) -> Retraction:
    """Move the tags that point to an image back, then withdraw it: for some tags, or for all and by digest.

    The digest of an index means each of its images. Raises as `roll_back` does, except that a tag without an earlier
    image stays, and is listed in the result.
    """
    request = RetractionRequest(command="withdraw", image=digest, tags=tuple(sorted(tags)))
    with open_run(repository.folder / "retract", repository.now, new=True) as (run, killed):
        if finished := _finish_killed(repository, request, run, killed, on_event):
            return finished
        require_manifest(repository.registry, digest, next_step="Check the name and the digest.")
        affected = _find_affected(repository, request)
        with repository.lock_tags(tag for one in affected.values() for tag in one):
            planned = {image: _plan_moves(repository, image, own) for image, own in affected.items()}
            promotions = _promotions(repository, run, [move for moves, _ in planned.values() for move in moves])
            images = []
            for image, (moves, unmoved) in planned.items():
                targets = {move.after for move in moves}
                instead = targets.pop() if len(targets) == 1 else None
                named = tuple(affected[image]) if tags else None
                withdrawal = _withdrawal(repository, image, named, reason, instead)
                images.append(RetractedImage(digest=image, withdrawal=withdrawal, moves=tuple(moves), unmoved=unmoved))
            return _perform(repository, run, Retraction(request=request, images=tuple(images), promotions=promotions))


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
        started = RETRACTION.validate_python(records[0].retraction)
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
    open_moves = [move for move in started.moves if _points_to(repository.tags, move.tag, move.before)]
    if is_rollback and not open_moves:
        return False
    withdrawals = (image.withdrawal for image in started.images)
    times = [one.time for one in (*started.promotions.values(), *withdrawals) if one]
    for image in started.images:
        latest = next(iter(repository.statements(image.digest).promotions), None)
        if latest and latest.predicate.time >= max(times, default=EARLIEST):
            return True
    for move in open_moves:
        in_force = repository.statements(move.after).in_force(repository.name, move.tag)
        if {signed.statement for signed in in_force} - set(started.promotions[move.after].cancels):
            return True
    if is_rollback:
        return False
    affected = _find_affected(repository, started.request)
    plans = (_plan_moves(repository, digest, tags) for digest, tags in affected.items())
    return not {move for moves, _ in plans for move in moves} <= set(started.moves)


def _points_to(registry: Registry, tag: str, digest: str | None) -> bool:
    manifest = registry.find(tag)
    return manifest is not None and manifest.digest == digest


def _perform(repository: SignedRepository, run: Journal, retraction: Retraction) -> Retraction:
    """Attach the statements and move the tags, unless an earlier run has done it.

    A rollback withdraws first: if it is killed, users refuse the tag instead of following it.
    """
    run.write(RetractionStarted(retraction=RETRACTION.dump_python(retraction, mode="json")))
    withdraws_first = retraction.request.command == "rollback"
    try:
        for digest, promotion in retraction.promotions.items():
            repository.attach(digest, promotion)
        if withdraws_first:
            _attach_withdrawals(repository, retraction)
        move_tags(repository.tags, retraction.moves, write_record=run.write)
        require_tags(repository.tags, {move.tag: move.after for move in retraction.moves})
        if not withdraws_first:
            _attach_withdrawals(repository, retraction)
        tags = [
            *(move.tag for move in retraction.moves),
            *(tag for image in retraction.images for tag in image.unmoved),
        ]
        update_indexes(repository.tags, tags)
    except TagConflict:
        run.write(RunFinished())  # the next command decides anew
        raise
    run.write(RunFinished())
    return retraction


def _attach_withdrawals(repository: SignedRepository, retraction: Retraction) -> None:
    for image in retraction.images:
        if image.withdrawal:
            repository.attach(image.digest, image.withdrawal)


def _plan_rollback(repository: SignedRepository, tag: str, to: str | None, *, is_alone: bool) -> Move:
    """Return the move of one platform's tag."""
    present = require_manifest(repository.tags, tag).digest
    try:
        target = find_named(repository, tag, present, to) if to else find_previous(repository, tag, present)
    except (UsageError, PolicyViolation) as error:
        if is_alone:
            raise
        next_step = "Roll back the other platform alone with --platform, or publish another image under the tag."
        raise type(error)(error.what, next_step=next_step) from None
    return Move(tag=tag, before=present, after=target)


def _find_affected(repository: SignedRepository, request: RetractionRequest) -> dict[str, list[str]]:
    """Return the tags that a withdrawal is about, of each image: those that it names, or those that point to it.

    Also those that no promotion names.
    """
    found = {}
    for digest, platform in list_digests(repository.registry, request.image).items():
        named = sorted({find_own_tag(repository.registry, tag, digest, platform) for tag in request.tags})
        tags = sorted(repository.registry.list_tags()) if not named else []
        found[digest] = named or [tag for tag in tags if _points_to(repository.tags, tag, digest)]
    return found


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
        time=next_time(repository.now(), [known]),
        publisher=repository.publisher,
    )


def _plan_moves(repository: SignedRepository, digest: str, tags: Sequence[str]) -> tuple[list[Move], dict[str, str]]:
    moves, unmoved = [], {}
    for tag in tags:
        if not _points_to(repository.tags, tag, digest):
            continue
        if tag == make_build_tag(tag.rpartition("-")[0], digest):
            unmoved[tag] = "the tag of one build is never moved"
            continue
        try:
            moves.append(Move(tag=tag, before=digest, after=find_previous(repository, tag, digest)))
        except (UsageError, PolicyViolation) as error:
            unmoved[tag] = error.what
    return moves, unmoved
