"""Promote images: decide on their tags, attach one promotion to each digest, move the tags, read them back.

What a killed run left is in the registry: a promotion that was attached is completed by moving its tags, whoever
publishes the same digest next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tfimg.core.errors import TagConflict, TfimgError, WithdrawnError
from tfimg.core.levels import Level
from tfimg.evidence.keys import VerifyingKey
from tfimg.evidence.policy import Policy
from tfimg.evidence.promotions import ImageStatements, TagMove, can_complete, read_image_statements
from tfimg.publish.decide import Decision, Kind, Question, decide
from tfimg.publish.publisher import Publisher
from tfimg.publish.release import Holder, Release, labelled_holder, signed_holder
from tfimg.publish.send import Sent, Stage
from tfimg.publish.tags import Move, move_tags, require_tags
from tfimg.recipe.tags import make_build_tag
from tfimg.registry.protocol import Manifest, Registry

Tell = Callable[[str, Stage, str], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """What tags are decided by. Each image that tags point to is read once."""

    registry: Registry
    trusted: Sequence[VerifyingKey]
    policy: Policy
    reinstates: bool = False
    _holders: dict[str, Holder] = field(default_factory=dict)
    _statements: dict[str, ImageStatements] = field(default_factory=dict)

    def decide(self, kind: Kind, tag: str, *, digest: str | None, release: Release, level: Level) -> Decision:
        """Decide on one tag, which is read now."""
        manifest = self.registry.find(tag)
        question = Question(
            repository=self.registry.repository,
            tag=tag,
            kind=kind,
            digest=digest,
            release=release,
            level=level,
            holder=self._holder(manifest) if manifest else None,
            promise=self.policy.find_promise(tag),
            statements=self.statements(digest) if digest else ImageStatements(),
            reinstates=self.reinstates,
        )
        return decide(question)

    def statements(self, digest: str) -> ImageStatements:
        """Return what trusted keys signed about a digest."""
        if digest not in self._statements:
            self._statements[digest] = read_image_statements(self.registry, digest, self.trusted)
        return self._statements[digest]

    def _holder(self, manifest: Manifest) -> Holder:
        if manifest.digest not in self._holders:
            self._holders[manifest.digest] = (
                signed_holder(self.registry, manifest, self.statements(manifest.digest))
                if self.trusted
                else labelled_holder(self.registry, manifest)
            )
        return self._holders[manifest.digest]


@dataclass(frozen=True, kw_only=True, slots=True)
class Promoted:
    """What became of an image's tags; `failure` is what kept its exact tags from being moved."""

    decisions: tuple[Decision, ...]
    failure: TfimgError | None = None


def promote(images: Sequence[Sent], publisher: Publisher, policy: Policy, tell: Tell) -> dict[str, Promoted]:
    """Promote images; returns what became of the tags of each, by identifier.

    Exact tags are moved image by image, then the aliases of all images, all or none. Raises `TagConflict` for an alias
    that another publisher moved, `PublicationIncomplete`, and what `Publisher.prove` and the registry raise.
    """
    with publisher.having([tag for one in images for _, tag in tags_of(one)]):
        table = Table(
            registry=publisher.registry,
            trusted=publisher.trusted,
            policy=policy,
            reinstates=publisher.reinstates,
        )
        ended: dict[str, Promoted] = {}
        aliases: list[Move] = []
        for one in images:
            tell(one.source.identifier, "name", one.digest)
            decisions = tuple(
                table.decide(kind, tag, digest=one.digest, release=one.release, level=one.level)
                for kind, tag in tags_of(one)
            )
            try:
                _attach(one, decisions, publisher, table)
                exact = [decision for decision in decisions if decision.kind != "alias"]
                move_tags(publisher.registry, _moves(one, exact), note=publisher.journal.note)
            except (TagConflict, WithdrawnError) as error:
                ended[one.source.identifier] = Promoted(decisions=(), failure=error)
                continue
            aliases += _moves(one, [decision for decision in decisions if decision.kind == "alias"])
            ended[one.source.identifier] = Promoted(decisions=decisions)
        tell("", "aliases", ", ".join(move.tag for move in aliases))
        move_tags(publisher.registry, aliases, note=publisher.journal.note)
        tell("", "compare", publisher.registry.repository)
        require_tags(publisher.registry, _expected(images, ended))
    return ended


def tags_of(one: Sent) -> tuple[tuple[Kind, str], ...]:
    """Return every tag that an image may have, exact tags first."""
    own: list[tuple[Kind, str]] = [
        ("build", make_build_tag(one.source.identifier, one.digest)),
        ("identifier", one.source.identifier),
    ]
    return (*own, *(("alias", alias) for alias in one.source.aliases))


def _attach(one: Sent, decisions: Sequence[Decision], publisher: Publisher, table: Table) -> None:
    """Attach the promotion of an image whose tags move, unless one is attached that an earlier run did not complete."""
    moving = [decision for decision in decisions if decision.verdict in ("move", "attest")]
    if not moving:
        return
    publisher.prove(one.digest, one.level)
    known = table.statements(one.digest)
    moves = [move for decision in moving if (move := _tag_move(decision, known, publisher.registry.repository))]
    if moves:
        earlier = [known, *(table.statements(move.previous) for move in moves if move.previous)]
        cancels = [statement for decision in moving for statement in decision.cancels]
        publisher.attach(one.digest, publisher.promotion(moves, earlier, reason="publish", cancels=cancels))


def _tag_move(decision: Decision, known: ImageStatements, repository: str) -> TagMove | None:
    """Return what a new promotion has to say of a tag; None where it stays, or an earlier promotion fits."""
    promotions = known.promotions_of(repository, decision.tag)
    if decision.verdict == "attest":
        previous = promotions[0].predicate.previous(decision.tag) if promotions else None
        return TagMove(tag=decision.tag, previous=previous)
    if can_complete(promotions, decision.tag, previous=decision.before, cancels=decision.cancels):
        return None
    return TagMove(tag=decision.tag, previous=decision.before)


def _moves(one: Sent, decisions: Sequence[Decision]) -> list[Move]:
    return [
        Move(tag=decision.tag, before=decision.before, after=one.digest)
        for decision in decisions
        if decision.verdict == "move"
    ]


def _expected(images: Sequence[Sent], ended: Mapping[str, Promoted]) -> dict[str, str]:
    return {
        decision.tag: one.digest
        for one in images
        for decision in ended[one.source.identifier].decisions
        if decision.verdict != "refuse"
    }
