"""Promote images: decide about their tags, attach one promotion to each digest, move the tags, read them back.

A killed run leaves its state in the registry: the next run that publishes the same digest moves the tags of a promotion
that is attached already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tfimg.core.errors import TagConflict, TfimgError, WithdrawnError
from tfimg.core.levels import Level
from tfimg.evidence.keys import VerifyingKey
from tfimg.evidence.policy import Policy
from tfimg.evidence.promotions import ImageStatements, TagMove, read_image_statements
from tfimg.publish.decide import Decision, Question, TagKind, decide
from tfimg.publish.release import Release, TaggedImage, read_release, read_signed_image
from tfimg.publish.send import PublishSession, SentImage
from tfimg.publish.stages import stage
from tfimg.publish.tags import Move, move_tags, require_tags
from tfimg.registry.documents import Manifest, Registry


@dataclass(frozen=True, slots=True)
class TagDecider:
    """Decides about tags with what a registry contains. Each image that tags point to is read once.

    Without `trusted` keys it uses the labels of images.
    """

    registry: Registry
    trusted: Sequence[VerifyingKey]
    policy: Policy
    reinstate: bool = False
    _images: dict[str, TaggedImage] = field(default_factory=dict)
    _statements: dict[str, ImageStatements] = field(default_factory=dict)

    def decide(
        self, tags: Sequence[tuple[TagKind, str]], *, digest: str | None, release: Release, level: Level
    ) -> tuple[Decision, ...]:
        """Decide about the tags of an image as they are now."""
        questions = (
            Question(
                repository=self.registry.repository,
                tag=tag,
                kind=kind,
                digest=digest,
                release=release,
                level=level,
                current=self._read_image(manifest) if (manifest := self.registry.find(tag)) else None,
                promise=self.policy.find_promise(tag),
                statements=self.statements(digest) if digest else ImageStatements(),
                reinstate=self.reinstate,
            )
            for kind, tag in tags
        )
        return tuple(map(decide, questions))

    def statements(self, digest: str) -> ImageStatements:
        """Return what trusted keys signed about a digest."""
        if digest not in self._statements:
            self._statements[digest] = read_image_statements(self.registry, digest, self.trusted)
        return self._statements[digest]

    def _read_image(self, manifest: Manifest) -> TaggedImage:
        if manifest.digest not in self._images:
            self._images[manifest.digest] = (
                read_signed_image(self.registry, manifest, self.statements(manifest.digest))
                if self.trusted
                else TaggedImage(digest=manifest.digest, release=read_release(self.registry, manifest))
            )
        return self._images[manifest.digest]


Status = Literal["planned", "published", "unchanged", "failed"]
"""`unchanged`: nothing was pushed and no tag was moved."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishResult:
    """The result of one image. `reused`: its report is one of an earlier run."""

    identifier: str
    status: Status
    decisions: tuple[Decision, ...] = ()
    digest: str | None = None
    level: Level | None = None
    reused: bool = False
    failure: TfimgError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "identifier": self.identifier,
            "status": self.status,
            "digest": self.digest,
            "level": self.level,
            "reused": self.reused,
            "tags": [asdict(decision) for decision in self.decisions],
            "error": type(self.failure).__name__ if self.failure else None,
            "exit_code": self.failure.exit_code if self.failure else 0,
            "reason": str(self.failure) if self.failure else None,
        }


def promote(images: Sequence[SentImage], session: PublishSession) -> list[PublishResult]:
    """Promote images and return their results; a `failure` is why the exact tags of an image could not be moved.

    Exact tags are moved image by image, then the aliases of all images together. Raises `TagConflict` for an alias that
    another publisher moved, `PublicationIncomplete`, and what `require_level` and the registry raise.
    """
    repository = session.repository
    with repository.lock_tags(tag for image in images for _, tag in image.job.tags(image.digest)):
        decider = TagDecider(session.registry, repository.trusted, repository.policy, repository.reinstate)
        results: list[PublishResult] = []
        decided: list[tuple[SentImage, Decision]] = []
        for image in images:
            decisions: tuple[Decision, ...] = ()
            failure: TfimgError | None = None
            try:
                with stage(session.on_event, f"{image.job.identifier}: move exact tags"):
                    decisions = _promote_exact_tags(image, session, decider)
            except (TagConflict, WithdrawnError) as error:
                failure = error
            decided += [(image, decision) for decision in decisions]
            is_changed = image.is_new or any(decision.verdict in ("move", "attest") for decision in decisions)
            results.append(
                PublishResult(
                    identifier=image.job.identifier,
                    status="failed" if failure else "published" if is_changed else "unchanged",
                    decisions=decisions,
                    digest=image.digest,
                    level=image.level,
                    reused=image.reused,
                    failure=failure,
                )
            )
        with stage(session.on_event, "move aliases"):
            _move(session, [(image, decision) for image, decision in decided if decision.kind == "alias"])
        with stage(session.on_event, "read tags back"):
            expected = {decision.tag: image.digest for image, decision in decided if decision.verdict != "refuse"}
            require_tags(session.registry, expected)
    return results


def _promote_exact_tags(image: SentImage, session: PublishSession, decider: TagDecider) -> tuple[Decision, ...]:
    """Decide about all tags of an image, attach its promotion and move its exact tags.

    The promotion leaves out tags that an attached promotion, which was not completed, gives the image already.
    """
    repository = session.repository
    tags = image.job.tags(image.digest)
    decisions = decider.decide(tags, digest=image.digest, release=image.release, level=image.level)
    promoted = [decision for decision in decisions if decision.verdict in ("move", "attest")]
    if promoted:
        repository.require_level(image.digest, image.level)
        known = decider.statements(image.digest)
        moves = [move for decision in promoted if (move := _signed_move(decision, known, decider))]
        if moves:
            earlier = [known, *(decider.statements(move.previous) for move in moves if move.previous)]
            cancels = [statement for decision in promoted for statement in decision.cancels]
            promotion = repository.promotion(moves, earlier, reason="publish", cancels=cancels)
            repository.attach(image.digest, promotion)
    session.registry.put_referrers((), subject=image.digest)  # new evidence that no new promotion has listed
    _move(session, [(image, decision) for decision in decisions if decision.kind != "alias"])
    return decisions


def _signed_move(decision: Decision, known: ImageStatements, decider: TagDecider) -> TagMove | None:
    """Return what a new promotion says about a tag; None if a killed run has attached one that says the same."""
    repository = decider.registry.repository
    if decision.verdict == "attest":
        promotions = known.promotions_of(repository, decision.tag)
        previous = promotions[0].predicate.previous(decision.tag) if promotions else None
        return TagMove(tag=decision.tag, previous=previous)
    move = TagMove(tag=decision.tag, previous=decision.before)
    after = decider.statements(decision.before) if decision.before else ImageStatements()
    return None if known.has_promoted(repository, move, after=after, cancels=decision.cancels) else move


def _move(session: PublishSession, decided: Sequence[tuple[SentImage, Decision]]) -> None:
    moves = [
        Move(tag=decision.tag, before=decision.before, after=image.digest)
        for image, decision in decided
        if decision.verdict == "move"
    ]
    move_tags(session.registry, moves)
