"""Which tags move to an image, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from packaging.version import Version

from tfimg.attestations.policy import TagPromise
from tfimg.attestations.promotions import ImageStatements
from tfimg.core import documents, errors, process
from tfimg.core.levels import Level
from tfimg.core.text import parse_time, to_plain_text
from tfimg.matrix.spec import parse_release
from tfimg.recipe.labels import IDENTIFIER_LABEL, LABEL_PREFIX
from tfimg.registry.documents import Manifest, Reader, Tags, open_image, require_manifest

TENSORFLOW = f"{LABEL_PREFIX}tensorflow"


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedRelease:
    """An image of tfimg and its time of creation, None if unknown."""

    identifier: str
    tensorflow: str
    created: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggedImage:
    """The image that a tag points to. `release` is None if no trusted statement says which image it is.

    `level` is that of its newest test result; None if that failed or there is none.
    """

    digest: str
    release: PublishedRelease | None
    level: Level | None = None


def read_signed_image(registry: Reader, manifest: Manifest, statements: ImageStatements) -> TaggedImage:
    """Describe an image by its newest signed test result, and by the time of creation that its digest covers."""
    newest = next(iter(statements.outcomes), None)
    tensorflow = parse_release(newest.identifier) if newest else ""
    if newest is None or not parse_tag_version(tensorflow):
        return TaggedImage(digest=manifest.digest, release=None)
    labelled = read_release(registry, manifest)
    created = labelled.created if labelled else None
    release = PublishedRelease(identifier=newest.identifier, tensorflow=tensorflow, created=created)
    level = None if newest.result == "FAILED" else newest.proven_level
    return TaggedImage(digest=manifest.digest, release=release, level=level)


def read_release(registry: Reader, manifest: Manifest) -> PublishedRelease | None:
    """Return the release that an image's labels name, or None. Raises `TamperedError` for an invalid image."""
    try:
        image = open_image(registry, manifest.digest)
    except errors.NotInRegistry:  # a part of it was deleted
        return None
    # All images of an index have the same labels; those without a platform are attestations.
    first = next(iter(image.platforms if image.indexes else image.images), None)
    tensorflow = first.labels.get(TENSORFLOW, "") if first else ""
    identifier = first.labels.get(IDENTIFIER_LABEL) if first else None
    if first is None or not identifier or not parse_tag_version(tensorflow):
        return None
    return PublishedRelease(identifier=identifier, tensorflow=tensorflow, created=parse_time(first.settings.created))


def is_same_image(manifest: Manifest, local_digest: str) -> bool:
    """Return whether a manifest is an engine's image, whose digest is its configuration's in the classic store."""
    try:
        config = manifest.image.config
    except documents.InvalidDocument:
        config = None
    return local_digest in (manifest.digest, config.digest if config else None)


def parse_tag_version(text: str) -> Version | None:
    try:
        return Version(text)
    except ValueError:  # also a number of thousands of digits
        return None


DELETED = "Another program deleted it. Publish it again."
"""Next step for an image that was in the registry a moment ago."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A tag that moves from the digest `before`, None for a new tag, to the digest `after`."""

    tag: str
    before: str | None
    after: str


def move_tags(registry: Tags, moves: Sequence[Move]) -> None:
    """Move all tags or none. Tags that a killed run has moved already are rolled back with the others.

    Raises `TagConflict` if a tag points neither to `before` nor to `after`, `TagImmutable` if the registry forbids a
    move, `PublicationIncomplete` if tags could not be rolled back, and what the registry raises.
    """
    moved: list[Move] = []
    try:
        digests = sorted({move.after for move in moves})
        manifests = {digest: require_manifest(registry, digest, next_step=DELETED) for digest in digests}
        # New tags last: a registry that does not delete tags could not undo them.
        for move in sorted(moves, key=lambda move: move.before is None):
            current = registry.find(move.tag)
            is_moved = current is not None and current.digest == move.after
            if not is_moved:
                _require_digest(move.tag, current, move.before)
            moved.append(move)
            if not is_moved:
                registry.put(move.tag, manifests[move.after])
    except BaseException as error:
        with process.defer_signals():
            failed = [move.tag for move in reversed(moved) if not _restore(registry, move)]
        if failed:
            raise errors.PublicationIncomplete(
                f"{', '.join(failed)} of {registry.repository} could not be rolled back after this failure: {error}",
                next_step="Run the same command again to move the other tags too.",
            ) from error
        if isinstance(error, errors.TagImmutable):
            tags = ", ".join(move.tag for move in moves)
            raise errors.TagImmutable(
                f"No tag of {tags} was moved, because {moved[-1].tag} exists: {error.what}", next_step=error.next_step
            ) from error
        raise


def require_tags(registry: Reader, expected: Mapping[str, str]) -> None:
    """Read tags back. Raises `TagConflict` for another digest, `PublicationIncomplete` for a missing tag."""
    for tag, digest in expected.items():
        current = registry.find(tag)
        if current is None:
            raise errors.PublicationIncomplete(
                f"The tag {tag} is missing from {registry.repository} after it was published.",
                next_step="Another program may delete tags there; run the same command again.",
            )
        _require_digest(tag, current, digest)


def _require_digest(tag: str, current: Manifest | None, expected: str | None) -> None:
    digest = current.digest if current else None
    if digest != expected:
        raise errors.TagConflict(
            f"{tag} points to {digest or 'nothing'} instead of {expected or 'nothing'}: another publisher moved it.",
            next_step="Run the same command again; it decides about each tag again. `tfimg history` shows the other "
            "publisher.",
        )


def _restore(registry: Tags, move: Move) -> bool:
    """Point a tag to its digest from before, unless another publisher has moved it; return whether that succeeded."""
    with suppress(errors.TfimgError):
        current = registry.find(move.tag)
        if current is None or current.digest != move.after:
            return True
        if move.before is None:
            return registry.delete_tag(move.tag)
        registry.put(move.tag, require_manifest(registry, move.before, next_step=DELETED))
        return True
    return False


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
    release: PublishedRelease
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
    withdrawals = question.statements.in_force(question.repository, question.tag)
    if withdrawals and not question.reinstate:
        yield f"the image was withdrawn ({to_plain_text(withdrawals[0].predicate.reason)}): --reinstate cancels that"
    if question.kind == "build" and current and current.digest != question.digest:
        yield f"it belongs to another build: {current.digest}"
    if question.level < promise.level:
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
    if current and current.level and question.level < current.level:
        yield f"it points to an image that is {current.level}, and this one is only {question.level}"
