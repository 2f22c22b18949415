"""Decide whether a tag may be moved to an image: values in, a decision with its reason out, by a table of rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from packaging.version import Version

from tfimg.core.levels import LEVELS, Level
from tfimg.core.text import to_plain_text
from tfimg.evidence.policy import TagPromise
from tfimg.evidence.promotions import ImageStatements
from tfimg.publish.release import Holder, Release

Kind = Literal["build", "identifier", "alias"]
"""`build`: of one build, never moved. `identifier`: of an image, moved to its next build. `alias`: all others."""

Verdict = Literal["move", "attest", "stay", "refuse"]
"""`attest`: the tag points to the image, and a promotion that says so has to be attached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A tag that is to point to an image. `digest` is None where the registry does not have the image yet.

    `statements` are those about the image, `promise` is the lowest level that it must have, `reinstates` says that
    withdrawals are cancelled.
    """

    repository: str
    tag: str
    kind: Kind
    digest: str | None
    release: Release
    level: Level
    holder: Holder | None
    statements: ImageStatements
    promise: TagPromise
    reinstates: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """`before` is the digest that the tag points to now, `cancels` the withdrawals that a promotion has to name."""

    tag: str
    kind: Kind
    verdict: Verdict
    why: str
    before: str | None
    cancels: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


def decide(question: Question) -> Decision:
    """Decide what becomes of a tag: the first rule that objects refuses the move."""
    before = question.holder.digest if question.holder else None
    withdrawals = question.statements.in_force(question.repository, question.tag)
    cancels = tuple(one.statement for one in withdrawals)

    def answer(verdict: Verdict, why: str) -> Decision:
        return Decision(
            tag=question.tag,
            kind=question.kind,
            verdict=verdict,
            why=why,
            before=before,
            cancels=cancels if verdict in ("move", "attest") else (),
        )

    points_there = before is not None and before == question.digest
    promoted = question.statements.promotions_of(question.repository, question.tag)
    if points_there and not withdrawals and promoted:
        return answer("stay", "it points there already")
    for rule in RULES:
        if why := rule(question):
            return answer("refuse", why)
    if points_there:
        return answer("attest", "it points there already, and a signed promotion has to say so")
    return answer("move", f"replaces {_named(question.holder)}" if question.holder else "new")


def _withdrawn(question: Question) -> str | None:
    withdrawals = question.statements.in_force(question.repository, question.tag)
    if not withdrawals or question.reinstates:
        return None
    return f"the image was withdrawn ({to_plain_text(withdrawals[0].predicate.reason)}): --reinstate cancels that"


def _other_build(question: Question) -> str | None:
    if question.kind == "build" and question.holder and question.digest != question.holder.digest:
        return f"it belongs to another build: {question.holder.digest}"
    return None


def _below_promise(question: Question) -> str | None:
    promise = question.promise
    if LEVELS.index(question.level) >= LEVELS.index(promise.level):
        return None
    return (
        f"it promises {promise.level} ({promise.reason}), and the image is only {question.level}: publish it on a "
        "machine with its accelerator, or let a policy file promise less, with the reason"
    )


def _foreign(question: Question) -> str | None:
    holder = question.holder
    if holder and holder.release is None and holder.digest != question.digest:
        return (
            f"it points to {holder.digest}, which has no test result of a trusted key: trust its publisher's key with "
            "--trust, or delete the tag in the registry"
        )
    return None


def _older_release(question: Question) -> str | None:
    release = question.holder.release if question.holder else None
    if release and Version(question.release.tensorflow) < Version(release.tensorflow):
        return f"it points to TensorFlow {release.tensorflow}: only `tfimg rollback` moves a tag to an older release"
    return None


def _older_build(question: Question) -> str | None:
    release = question.holder.release if question.holder else None
    if not release or not release.created or not question.release.created:
        return None
    same = Version(question.release.tensorflow) == Version(release.tensorflow)
    if same and question.release.created < release.created:
        return f"it points to a newer build, of {release.created.isoformat(timespec='seconds')}"
    return None


def _lower_level(question: Question) -> str | None:
    level = question.holder.level if question.holder else None
    if level and LEVELS.index(question.level) < LEVELS.index(level):
        return f"it points to an image that is {level}, and this one is only {question.level}"
    return None


RULES: tuple[Callable[[Question], str | None], ...] = (
    _withdrawn,
    _other_build,
    _below_promise,
    _foreign,
    _older_release,
    _older_build,
    _lower_level,
)
"""Each returns why a tag may not be moved, or None."""


def _named(holder: Holder) -> str:
    identifier = to_plain_text(holder.release.identifier) if holder.release else "an unknown image"
    return f"{identifier} {holder.digest[:19]}"
