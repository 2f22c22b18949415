"""Roll back and withdraw published images.

What is done already is found in the registry, so that the same command completes a run that was killed. Tags move last:
until then, users refuse a tag instead of following it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

from tfimg.attestations.promotions import TagMove, Withdrawal, walk_history, withdrawn_error
from tfimg.core.errors import NotInRegistry, UsageError, WithdrawnError
from tfimg.core.text import quote_argument
from tfimg.matrix.schema import PLATFORMS
from tfimg.publish.history import BUILD_TAG
from tfimg.publish.indexes import find_own_tags, list_platform_tags, update_indexes
from tfimg.publish.repository import INSUFFICIENT, SignedRepository
from tfimg.publish.tags import Move, move_tags, require_tags
from tfimg.recipe.tags import find_platform_tag, find_shared_tag, make_build_tag
from tfimg.registry import documents, reference

MAX_STEPS = 1000  # moves of a tag that are searched for an image to roll back to


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierImage:
    """An image that a tag pointed to, and the time of that promotion.

    `objection` says why the tag cannot return to it, None if it can: it is not withdrawn and has the level that the tag
    promises.
    """

    digest: str
    promoted: datetime | None
    objection: str | None


def list_earlier(repository: SignedRepository, tag: str, present: str) -> Iterator[EarlierImage]:
    """Yield the images that a tag pointed to before the present one, newest first and each once."""
    seen = {present}
    for step in walk_history(repository.name, tag, present, repository.statements, limit=MAX_STEPS):
        if step.digest in seen:
            continue
        seen.add(step.digest)
        objection = None
        if step.in_force:
            objection = "was withdrawn"
        elif step.promotion is None:
            objection = "has no signed promotion for this tag"
        else:
            try:
                repository.require_level(step.digest, repository.policy.find_promise(tag).level, of_any_age=True)
            except (*INSUFFICIENT, NotInRegistry, WithdrawnError) as error:
                objection = f"lacks the attestations that the tag promises ({error.what})"
        promoted = step.promotion.predicate.time if step.promotion else None
        yield EarlierImage(digest=step.digest, promoted=promoted, objection=objection)


def list_choices(
    repository: SignedRepository, tag: str, limit: int
) -> Mapping[str, tuple[str, tuple[EarlierImage, ...]]]:
    """Return the image that a tag points to on each platform and `limit` earlier ones, by the platform's tag.

    Raises `NotInRegistry` for a tag that the registry does not have.
    """
    choices = {}
    for own in list_platform_tags(repository.registry, tag):
        present = documents.require_manifest(repository.tags, own).digest
        choices[own] = present, tuple(islice(list_earlier(repository, own, present), limit))
    return choices


def find_named(repository: SignedRepository, presents: Mapping[str, str], to: str) -> tuple[str, str]:
    """Return the tag and the digest that `to` names, a digest or its first digits.

    `presents` are the images that a tag points to on each platform, by the platform's tag. Raises what `require_level`
    does, `UsageError` and `WithdrawnError`.
    """
    found = {
        (tag, step.digest)
        for tag, present in presents.items()
        for step in walk_history(repository.name, tag, present, repository.statements, limit=MAX_STEPS)
        if step.digest.startswith((to, f"sha256:{to}")) and (step.promotion or step.digest != present)
    }
    if not found and reference.DIGEST.fullmatch(to):  # it may be behind a gap
        known = repository.statements(to)
        found = {(tag, to) for tag in presents if known.promotions_of(repository.name, tag)}
    if len(found) != 1:
        matches = f"{len(found)} images match" if found else "no image matches"
        tags = ", ".join(presents)
        raise UsageError(
            f"--to {to}: {matches} in the signed history of {tags}.",
            next_step=f"`tfimg history {repository.name} {quote_argument(next(iter(presents)))}` lists them; name the "
            "whole digest.",
        )
    ((tag, digest),) = found
    is_present = digest == presents[tag]
    withdrawals = repository.statements(digest).in_force(repository.name, tag)
    if withdrawals and (is_present or not repository.reinstate):
        error = withdrawn_error(withdrawals[0].predicate, image=f"{repository.name}@{digest}")
        command = "`tfimg publish --reinstate`" if is_present else "--reinstate"
        raise WithdrawnError(error.what, next_step=f"Name another image, or cancel the withdrawal with {command}.")
    if not is_present:
        repository.require_level(digest, repository.policy.find_promise(tag).level, of_any_age=True)
    return tag, digest


@dataclass(frozen=True, kw_only=True)
class RetractedImage:
    """An image that loses tags. `withdrawal` is None if an equal one was in force already.

    `unmoved` says of each tag that still points to the image why it was not moved; after a rollback, without the tag of
    the build.
    """

    digest: str
    withdrawal: Withdrawal | None = None
    moves: tuple[Move, ...] = ()
    unmoved: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "digest": self.digest,
            "moves": [asdict(move) for move in self.moves],
            "left": self.unmoved,
            "withdrawal": self.withdrawal.model_dump(mode="json") if self.withdrawal else None,
        }


def roll_back(
    repository: SignedRepository, tag: str, *, to: Sequence[str], reason: str = ""
) -> tuple[RetractedImage, ...]:
    """Point a tag to the images that `to` names, and withdraw the present ones for this tag.

    Each of `to` is a digest of the tag's history, or its first digits. An index has an image for each platform: those
    of the platforms that `to` names are rolled back, all or none. Raises `NotInRegistry` for a missing tag,
    `UsageError` for an image that is not in the history, what `require_level` raises, `WithdrawnError`, `TagConflict`.
    """
    with repository.lock_tags([tag]):
        # Without the index, which leaves out a platform whose image a killed rollback has withdrawn.
        own_tags = [find_platform_tag(tag, one) for one in PLATFORMS[1:]] if tag == find_shared_tag(tag) else []
        presents = {own: manifest.digest for own in own_tags if (manifest := repository.tags.find(own))}
        presents[tag] = documents.require_manifest(repository.tags, tag).digest
        targets = dict(find_named(repository, presents, one) for one in to)
        if len(targets) < len(to):
            raise UsageError("--to names two images of one platform.", next_step="Name one image of each platform.")
        moves = [
            Move(tag=own, before=presents[own], after=target)
            for own, target in targets.items()
            if target != presents[own]
        ]
        _promote(repository, moves)
        images = [
            RetractedImage(digest=target, unmoved={own: "it already points to this image"})
            for own, target in targets.items()
            if target == presents[own]
        ]
        for move in moves:
            why = reason or f"rolled back to {move.after}"
            withdrawal = _withdraw(repository, presents[move.tag], (move.tag,), why, move.after)
            images.append(RetractedImage(digest=presents[move.tag], withdrawal=withdrawal, moves=(move,)))
        _move(repository, moves, targets)
    return tuple(replace(image, unmoved=_find_others(repository, image)) if image.moves else image for image in images)


def withdraw(
    repository: SignedRepository, digest: str, *, tags: Sequence[str] = (), reason: str
) -> tuple[RetractedImage, ...]:
    """Withdraw an image for some tags, or for all and by digest; move the tags that point to it back.

    The digest of an index means each of its images. Tags without an earlier image stay, and are listed in the result.
    Raises `NotInRegistry` for an image that the registry does not have, `TagConflict`.
    """
    documents.require_manifest(repository.registry, digest, next_step="Check the name and the digest.")
    affected = find_own_tags(repository.registry, digest, tags)
    for image, named in affected.items():
        if not tags:  # all that point to it, also those that no promotion names
            named += _list_pointing(repository, image, repository.registry.list_tags())
    with repository.lock_tags(tag for one in affected.values() for tag in one):
        planned = {image: _plan_moves(repository, image, own) for image, own in affected.items()}
        all_moves = [move for moves, _ in planned.values() for move in moves]
        _promote(repository, all_moves)
        images = []
        for image, (moves, unmoved) in planned.items():
            targets = {move.after for move in moves}
            instead = targets.pop() if len(targets) == 1 else None
            withdrawal = _withdraw(repository, image, tuple(affected[image]) if tags else None, reason, instead)
            images.append(RetractedImage(digest=image, withdrawal=withdrawal, moves=tuple(moves), unmoved=unmoved))
        _move(repository, all_moves, [tag for own in affected.values() for tag in own])
    return tuple(images)


def _list_pointing(repository: SignedRepository, digest: str, tags: Iterable[str]) -> list[str]:
    return [tag for tag in sorted(tags) if (at := repository.tags.find(tag)) and at.digest == digest]


def _find_others(repository: SignedRepository, image: RetractedImage) -> dict[str, str]:
    """Return the tags that keep an image that was rolled back; tags of builds are left out, which never move."""
    tags = (tag for tag in repository.registry.list_tags() if not BUILD_TAG.fullmatch(tag))
    rolled_back = ", ".join(move.tag for move in image.moves)
    return dict.fromkeys(_list_pointing(repository, image.digest, tags), f"only {rolled_back} was rolled back")


def _promote(repository: SignedRepository, moves: Sequence[Move]) -> None:
    """Attach a promotion to each image that takes over tags, except for tags that a killed run has promoted."""
    for digest in sorted({move.after for move in moves}):
        known = repository.statements(digest)
        tags, earlier, cancels = [], [known], set[str]()
        for move in moves:
            if move.after == digest:
                before = repository.statements(str(move.before))
                in_force = {one.statement for one in known.in_force(repository.name, move.tag)}
                tag = TagMove(tag=move.tag, previous=move.before)
                if not known.has_promoted(repository.name, tag, after=before, cancels=in_force):
                    tags.append(tag)
                    earlier.append(before)
                    cancels |= in_force
        if tags:
            repository.attach(digest, repository.promotion(tags, earlier, reason="rollback", cancels=cancels))
            repository.warn_of_age(digest, known)


def _withdraw(
    repository: SignedRepository, digest: str, tags: tuple[str, ...] | None, reason: str, replacement: str | None
) -> Withdrawal | None:
    """Attach a withdrawal and return it; None if it is in force already."""
    known = repository.statements(digest)
    if all(known.in_force(repository.name, tag) for tag in tags or (None,)):
        return None
    withdrawal = Withdrawal(
        repository=repository.name,
        tags=tags,
        reason=reason,
        replacement=replacement,
        time=repository.next_time([known]),
        publisher=repository.publisher,
    )
    repository.attach(digest, withdrawal)
    return withdrawal


def _move(repository: SignedRepository, moves: Sequence[Move], affected: Iterable[str]) -> None:
    move_tags(repository.tags, moves)
    require_tags(repository.tags, {move.tag: move.after for move in moves})
    update_indexes(repository.tags, affected)


def _plan_moves(repository: SignedRepository, digest: str, tags: Sequence[str]) -> tuple[list[Move], dict[str, str]]:
    moves, unmoved = [], {}
    for tag in tags:
        present = repository.tags.find(tag)
        if present is None or present.digest != digest:
            continue
        if tag == make_build_tag(tag.rpartition("-")[0], digest):
            unmoved[tag] = "the tag of one build is never moved"
        else:
            objections = []
            for earlier in list_earlier(repository, tag, digest):
                if not earlier.objection:
                    moves.append(Move(tag=tag, before=digest, after=earlier.digest))
                    break
                objections.append(f"{earlier.digest} {earlier.objection}")
            else:
                unmoved[tag] = "; ".join(objections) or "no signed promotion says what it pointed to before"
    return moves, unmoved
