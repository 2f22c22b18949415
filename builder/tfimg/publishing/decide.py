"""May a tag lead to an image? Values in, an answer with its reason out; what it takes is in the table of rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from packaging.version import Version

from tfimg.evidence.policy import Promise
from tfimg.publishing.ledger import Ledger
from tfimg.publishing.release import Held, Release
from tfimg.recipe.describe import LEVELS, Level

Kind = Literal["build", "identifier", "alias"]
"""`build`: one build's own for ever. `identifier`: an image's own, which its next build gets. `alias`: all others."""

Verdict = Literal["move", "stay", "refuse"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A tag that is to lead to an image. `digest` is None where the registry does not have the image yet.

    `promise` is the least level that an image must have for it; `signed` says that there is a key for the evidence.
    """

    tag: str
    kind: Kind
    digest: str | None
    release: Release
    level: Level
    holder: Held | None
    ledger: Ledger
    promise: Promise
    signed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The answer. `before` is the digest that the tag leads to now; None where there is no such tag."""

    tag: str
    kind: Kind
    verdict: Verdict
    why: str
    before: str | None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def decide(question: Question) -> Decision:
    """What is to become of a tag: it stays where it leads there already, and moves where no rule is against it."""
    before = question.holder.digest if question.holder else None

    def answer(verdict: Verdict, why: str) -> Decision:
        return Decision(tag=question.tag, kind=question.kind, verdict=verdict, why=why, before=before)

    if before is not None and before == question.digest:
        return answer("stay", "it leads there already")
    for rule in RULES:
        if why := rule(question):
            return answer("refuse", why)
    return answer("move", f"replaces {_told(question.holder)}" if question.holder else "new")


def _taken(question: Question) -> str | None:
    if question.kind == "build" and question.holder and question.digest:
        return f"it is another build's for ever: {question.holder.digest}"
    return None


def _unsigned(question: Question) -> str | None:
    if question.kind == "alias" and not question.signed:
        return "nobody signs the evidence: aliases are moved with --key alone"
    return None


def _below(question: Question) -> str | None:
    promise = question.promise
    if _height(question.level) >= _height(promise.level):
        return None
    return (
        f"it promises {promise.level} ({promise.reason}), and the image is shown to be {question.level} alone: publish "
        "it on a machine with its accelerator, or let a policy file promise less, with the reason"
    )


def _strange(question: Question) -> str | None:
    if question.holder and question.holder.release is None:
        return f"it leads to {question.holder.digest}, which tfimg did not build: take that tag away first"
    return None


def _older_release(question: Question) -> str | None:
    there = question.holder.release if question.holder else None
    if there and Version(question.release.tensorflow) < Version(there.tensorflow):
        return f"it leads to TensorFlow {there.tensorflow}, and never goes back: `tfimg rollback` does, and says so"
    return None


def _been_there(question: Question) -> str | None:
    # A build that was taken back is not to come again by the next run.
    if question.digest and question.digest in {step.after for _, step in question.ledger.of(question.tag)}:
        command = f"`tfimg rollback --to {question.digest[:19]}`"
        return f"it led there before, and was moved on or taken back: {command} goes there"
    return None


def _older_build(question: Question) -> str | None:
    there = question.holder.release if question.holder else None
    if not there or not there.created or not question.release.created:
        return None
    same = Version(question.release.tensorflow) == Version(there.tensorflow)
    if same and question.release.created < there.created:
        return f"it leads to a newer build, made at {there.created.isoformat(timespec='seconds')}"
    return None


def _worse_shown(question: Question) -> str | None:
    shown = question.ledger.level(question.holder.digest) if question.holder else None
    if shown and _height(question.level) < _height(shown):
        return f"it leads to an image that is shown to be {shown}, and this one is {question.level} alone"
    return None


RULES: tuple[Callable[[Question], str | None], ...] = (
    _taken, _unsigned, _below, _strange, _older_release, _been_there, _older_build, _worse_shown,
)  # fmt: skip
"""Each says why a tag may not lead to an image, or None. The first that has something to say is told."""


def _height(level: Level) -> int:
    return LEVELS.index(level)


def _told(holder: Held) -> str:
    return f"{holder.release.identifier if holder.release else 'a stranger'} {holder.digest[:19]}"
