"""Decide whether a tag may move to an image: rules over values, without input or output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from tfimg.core.levels import LEVELS, Level
from tfimg.core.text import to_plain_text
from tfimg.evidence.policy import TagPromise
from tfimg.evidence.promotions import ImageStatements
from tfimg.publish.release import Release, TaggedImage

TagKind = Literal["build", "identifier", "alias"]
"""`build`: of one build, never moved. `identifier`: of an image, moved to its next build. `alias`: all others."""

Verdict = Literal["move", "attest", "stay", "refuse"]
"""`attest`: the tag points to the image, but no signed promotion says so yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A tag and the image that it should point to. `digest` is None if the registry does not have the image yet.

    `current` is the image that the tag points to now, `statements` are those about the new image, `promise` is the
    lowest level that the tag allows, `reinstate` cancels withdrawals.
    """

    repository: str
    tag: str
    kind: TagKind
    digest: str | None
    release: Release
    level: Level
    current: TaggedImage | None
    statements: ImageStatements
    promise: TagPromise
    reinstate: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """`before` is the digest that the tag points to now, `cancels` the withdrawals that a promotion must name."""

    tag: str
    kind: TagKind
    verdict: Verdict
    why: str
    before: str | None
    cancels: tuple[str, ...] = ()


def decide(question: Question) -> Decision:
    """Decide what happens to a tag: the first objection refuses the move."""
    before = question.current.digest if question.current else None
    withdrawals = question.statements.in_force(question.repository, question.tag)
    points_there = before is not None and before == question.digest
    promoted = question.statements.promotions_of(question.repository, question.tag)
    verdict: Verdict
    if points_there and not withdrawals and promoted:
        verdict, why = "stay", "it already points to this image"
    elif objection := next(_objections(question), None):
        verdict, why = "refuse", objection
    elif points_there:
        verdict, why = "attest", "it already points to this image, but no signed promotion says so"
    else:
        release = question.current.release if question.current else None
        known = to_plain_text(release.identifier) if release else "an unknown image"
        verdict, why = "move", f"replaces {known} {before[:19]}" if before else "new"
    return Decision(
        tag=question.tag,
        kind=question.kind,
        verdict=verdict,
        why=why,
        before=before,
        cancels=tuple(one.statement for one in withdrawals) if verdict in ("move", "attest") else (),
    )


def _objections(question: Question) -> Iterator[str]:
    """Yield why a tag may not move, the gravest reason first."""
    current, release, promise = question.current, question.release, question.promise
    level = LEVELS.index(question.level)
    withdrawals = question.statements.in_force(question.repository, question.tag)
    if withdrawals and not question.reinstate:
        yield f"the image was withdrawn ({to_plain_text(withdrawals[0].predicate.reason)}): --reinstate cancels that"
    if question.kind == "build" and current and current.digest != question.digest:
        yield f"it belongs to another build: {current.digest}"
    if level < LEVELS.index(promise.level):
        yield (
            f"it promises {promise.level} ({promise.reason}), and the image is only {question.level}: publish it on a "
            "machine with its accelerator, or lower the promise in a policy file, with the reason"
        )
    if current and current.release is None and current.digest != question.digest:
        yield (
            f"it points to {current.digest}, which has no test result of a trusted key: trust its publisher's key with "
            "--public-key, or delete the tag in the registry"
        )
    if current and current.release:
        new, old = Version(release.tensorflow), Version(current.release.tensorflow)
        if new < old:
            older = current.release.tensorflow
            yield f"it points to TensorFlow {older}: only `tfimg rollback` moves a tag to an older release"
        created = current.release.created
        if new == old and created and release.created and release.created < created:
            yield f"it points to a newer build, of {created.isoformat(timespec='seconds')}"
    if current and current.level and level < LEVELS.index(current.level):
        yield f"it points to an image that is {current.level}, and this one is only {question.level}"
