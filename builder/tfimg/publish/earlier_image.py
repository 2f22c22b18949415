"""The images that a tag pointed to before: signed promotions name them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from tfimg.core.errors import NotInRegistry, UsageError, WithdrawnError
from tfimg.evidence.promotions import TagHistoryEntry, walk_history, withdrawn_error
from tfimg.publish.indexes import list_platform_tags
from tfimg.publish.repository import INSUFFICIENT, SignedRepository
from tfimg.registry.documents import require_manifest
from tfimg.registry.reference import DIGEST

MAX_STEPS = 1000
"""Moves of a tag that are searched for an image to roll back to."""


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
    for step in _steps(repository, tag, present):
        if step.digest not in seen:
            seen.add(step.digest)
            yield EarlierImage(
                digest=step.digest,
                promoted=step.promotion.predicate.time if step.promotion else None,
                objection=_find_objection(repository, tag, step),
            )


def list_choices(
    repository: SignedRepository, tag: str, limit: int
) -> Mapping[str, tuple[str, tuple[EarlierImage, ...]]]:
    """Return the image that a tag points to on each platform and `limit` earlier ones, by the platform's tag.

    Raises `NotInRegistry` for a tag that the registry does not have.
    """
    choices = {}
    for own in list_platform_tags(repository.registry, tag):
        present = require_manifest(repository.tags, own).digest
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
        for step in _steps(repository, tag, present)
        if step.digest.startswith((to, f"sha256:{to}")) and (step.promotion or step.digest != present)
    }
    if not found and DIGEST.fullmatch(to):  # it may be behind a gap
        known = repository.statements(to)
        found = {(tag, to) for tag in presents if known.promotions_of(repository.name, tag)}
    if len(found) != 1:
        matches = f"{len(found)} images match" if found else "no image matches"
        tags = ", ".join(presents)
        raise UsageError(
            f"--to {to}: {matches} in the signed history of {tags}.",
            next_step=f"`tfimg history {repository.name} {tags.partition(',')[0]}` lists them; name the whole digest.",
        )
    ((tag, digest),) = found
    is_present = digest == presents[tag]
    withdrawals = repository.statements(digest).in_force(repository.name, tag)
    if withdrawals and (is_present or not repository.reinstate):
        error = withdrawn_error(withdrawals[0].predicate, image=f"{repository.name}@{digest}")
        command = "`tfimg publish --reinstate`" if is_present else "--reinstate"
        raise WithdrawnError(error.what, next_step=f"Name another image, or cancel the withdrawal with {command}.")
    if not is_present:
        repository.require_level(digest, repository.policy.find_promise(tag).level)
    return tag, digest


def _find_objection(repository: SignedRepository, tag: str, step: TagHistoryEntry) -> str | None:
    if step.in_force:
        return "was withdrawn"
    if step.promotion is None:
        return "has no signed promotion for this tag"
    try:
        repository.require_level(step.digest, repository.policy.find_promise(tag).level)
    except (*INSUFFICIENT, NotInRegistry, WithdrawnError) as error:
        return f"lacks the evidence that the tag promises ({error.what})"
    return None


def _steps(repository: SignedRepository, tag: str, present: str) -> Iterator[TagHistoryEntry]:
    return walk_history(repository.name, tag, present, repository.statements, limit=MAX_STEPS)
