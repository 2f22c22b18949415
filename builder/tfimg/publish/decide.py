"""Decide whether a tag may move to an image: a table of rules over values, without input or output."""

from __future__ import annotations

from collections.abc import Callable
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
    """Decide what happens to a tag: the first rule with an objection refuses the move."""
    before = question.current.digest if question.current else None
    withdrawals = question.statements.in_force(question.repository, question.tag)
    points_there = before is not None and before == question.digest
    promoted = question.statements.promotions_of(question.repository, question.tag)
    objection = next(filter(None, (rule(question) for rule in RULES)), None)
    verdict: Verdict
    if points_there and not withdrawals and promoted:
        verdict, why = "stay", "it already points to this image"
    elif objection:
        verdict, why = "refuse", objection
    elif points_there:
        verdict, why = "attest", "it already points to this image, but no signed promotion says so"
    else:
        verdict, why = "move", f"replaces {_describe(question.current)}" if question.current else "new"
    return Decision(
        tag=question.tag,
        kind=question.kind,
        verdict=verdict,
        why=why,
        before=before,
        cancels=tuple(one.statement for one in withdrawals) if verdict in ("move", "attest") else (),
    )


def _refuse_withdrawn(question: Question) -> str | None:
    withdrawals = question.statements.in_force(question.repository, question.tag)
    if not withdrawals or question.reinstate:
        return None
    return f"the image was withdrawn ({to_plain_text(withdrawals[0].predicate.reason)}): --reinstate cancels that"


def _refuse_other_build(question: Question) -> str | None:
    if question.kind == "build" and question.current and question.digest != question.current.digest:
        return f"it belongs to another build: {question.current.digest}"
    return None


def _refuse_below_promise(question: Question) -> str | None:
    promise = question.promise
    if LEVELS.index(question.level) >= LEVELS.index(promise.level):
        return None
    return (
        f"it promises {promise.level} ({promise.reason}), and the image is only {question.level}: publish it on a "
        "machine with its accelerator, or lower the promise in a policy file, with the reason"
    )


def _refuse_untrusted_current(question: Question) -> str | None:
    current = question.current
    if current and current.release is None and current.digest != question.digest:
        return (
            f"it points to {current.digest}, which has no test result of a trusted key: trust its publisher's key with "
            "--public-key, or delete the tag in the registry"
        )
    return None


def _refuse_older_release(question: Question) -> str | None:
    current = question.current.release if question.current else None
    if current and Version(question.release.tensorflow) < Version(current.tensorflow):
        return f"it points to TensorFlow {current.tensorflow}: only `tfimg rollback` moves a tag to an older release"
    return None


def _refuse_older_build(question: Question) -> str | None:
    current = question.current.release if question.current else None
    if not current or not current.created or not question.release.created:
        return None
    same_release = Version(question.release.tensorflow) == Version(current.tensorflow)
    if same_release and question.release.created < current.created:
        return f"it points to a newer build, of {current.created.isoformat(timespec='seconds')}"
    return None


def _refuse_lower_level(question: Question) -> str | None:
    level = question.current.level if question.current else None
    if level and LEVELS.index(question.level) < LEVELS.index(level):
        return f"it points to an image that is {level}, and this one is only {question.level}"
    return None


RULES: tuple[Callable[[Question], str | None], ...] = (
    _refuse_withdrawn,
    _refuse_other_build,
    _refuse_below_promise,
    _refuse_untrusted_current,
    _refuse_older_release,
    _refuse_older_build,
    _refuse_lower_level,
)
"""Each returns why a tag may not move, or None."""


def _describe(image: TaggedImage) -> str:
    identifier = to_plain_text(image.release.identifier) if image.release else "an unknown image"
    return f"{identifier} {image.digest[:19]}"
