"""Find the image that a tag returns to: signed promotions name the images that it pointed to before."""

from __future__ import annotations

from collections.abc import Iterator

from tfimg.core.errors import NotInRegistry, PolicyViolation, UsageError, WithdrawnError
from tfimg.evidence.promotions import TagHistoryEntry, walk_history, withdrawn_error
from tfimg.publish.repository import INSUFFICIENT, SignedRepository
from tfimg.registry.reference import DIGEST

MAX_STEPS = 1000
"""Moves of a tag that are searched for an image to roll back to."""


def find_previous(repository: SignedRepository, tag: str, present: str) -> str:
    """Return the image before the present one that is not withdrawn and has the level that the tag promises."""
    objections: dict[str, str] = {}
    for step in _steps(repository, tag, present):
        if step.digest == present or step.digest in objections:
            continue
        if step.in_force:
            objections[step.digest] = "was withdrawn"
        elif step.promotion is None:
            objections[step.digest] = "has no signed promotion for this tag"
        else:
            try:
                repository.require_level(step.digest, repository.policy.find_promise(tag).level)
                return step.digest
            except (*INSUFFICIENT, NotInRegistry, WithdrawnError) as error:
                objections[step.digest] = f"lacks the evidence that the tag promises ({error.what})"
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


def find_named(repository: SignedRepository, tag: str, present: str, to: str) -> str:
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
