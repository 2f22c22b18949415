"""Images → a registry that has them, with evidence, and tags that lead to them: exact ones first, aliases last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tfimg.errors import (
    LeakFound,
    LockError,
    PublicationIncomplete,
    TagMoved,
    TfimgError,
    UnfitHost,
    ValidationBroken,
    ValidationCrashed,
    ValidationFailed,
    ValidationIncomplete,
    ValidationTimedOut,
)
from tfimg.evidence.policy import Policy
from tfimg.publishing.decide import Decision, Kind, Question, decide
from tfimg.publishing.ledger import Ledger, Step
from tfimg.publishing.ledger_store import read
from tfimg.publishing.promotion import Desk, Promotion, promote
from tfimg.publishing.release import Release, held, is_image
from tfimg.publishing.sending import Hands, Sent, Source, clear, send
from tfimg.recipe.describe import Level
from tfimg.recipe.tags import build_tag
from tfimg.registry.protocol import Registry

OF_THE_IMAGE = (
    ValidationFailed, ValidationBroken, ValidationCrashed, ValidationTimedOut, ValidationIncomplete, UnfitHost,
    LeakFound, TagMoved, LockError,
)  # fmt: skip
"""What stops one image, and no other: of anything else the others would die too."""

Status = Literal["planned", "published", "there", "failed"]
"""`there`: nothing had to be sent, and its own tags led to it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """How one image ended. `decisions` are about each of its tags; `reused`: its report is of an earlier run."""

    identifier: str
    status: Status
    decisions: tuple[Decision, ...] = ()
    digest: str | None = None
    level: Level | None = None
    reused: bool = False
    failure: TfimgError | None = None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "identifier": self.identifier,
            "status": self.status,
            "digest": self.digest,
            "level": self.level,
            "reused": self.reused,
            "tags": [decision.to_json() for decision in self.decisions],
            "error": type(self.failure).__name__ if self.failure else None,
            "exit_code": self.failure.exit_code if self.failure else 0,
            "reason": str(self.failure) if self.failure else None,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """A run's end: each image's, and the candidates that the registry does not let go of."""

    images: tuple[Published, ...]
    candidates: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """What tags are decided by, at one moment."""

    registry: Registry
    ledger: Ledger
    policy: Policy
    signed: bool

    def decide(self, kind: Kind, tag: str, *, digest: str | None, release: Release, level: Level) -> Decision:
        """What is to become of a tag."""
        question = Question(
            tag=tag, kind=kind, digest=digest, release=release, level=level, holder=held(self.registry, tag),
            ledger=self.ledger, promise=self.policy.promise(tag), signed=self.signed,
        )  # fmt: skip
        return decide(question)


def publish(sources: Sequence[Source], desk: Desk, hands: Hands, policy: Policy) -> Publication:
    """Publish images, one after the other, then move all of their aliases together, and look at what is there.

    One image's failure is told with it; what would stop the others too is raised, and the same run again goes on.
    Raises `PublicationIncomplete` where the registry lacks what was published, `TagMoved` where an alias was lost.
    """
    ended: dict[str, Published] = {}
    sent: list[Sent] = []
    for source in sources:
        try:
            one = send(source, desk, hands)
            hands.tell(source.identifier, "name", one.digest)
            exact = _named(desk, [one], policy, ("build", "identifier"), name=source.identifier)
        except OF_THE_IMAGE as error:
            ended[source.identifier] = Published(identifier=source.identifier, status="failed", failure=error)
            continue
        sent.append(one)
        ended[source.identifier] = _ended(one, exact)
    left = clear(desk, hands)
    hands.tell("", "aliases", ", ".join(alias for one in sent for alias in one.source.aliases))
    aliases = _named(desk, sent, policy, ("alias",), name="aliases")
    images = tuple(_with(ended[source.identifier], aliases, source) for source in sources)
    hands.tell("", "compare", desk.registry.repository)
    compare(desk.registry, images)
    desk.journal.note("finished")
    return Publication(images=images, candidates=left)


def planned(
    sources: Sequence[Source], registry: Registry, policy: Policy, *, signed: bool
) -> tuple[Published, ...]:
    """What publishing would do, as far as that can be known before: the level is the most that can be shown here."""
    table = Table(registry=registry, ledger=read(registry), policy=policy, signed=signed)
    return tuple(_planned(source, table) for source in sources)


def compare(registry: Registry, images: Sequence[Published]) -> None:
    """Raises `PublicationIncomplete` where the registry's tags are not what was published."""
    listed = set(registry.tags())
    wrong = [
        f"{decision.tag} {'leads elsewhere' if decision.tag in listed else 'is missing'}"
        for image in images
        for decision in image.decisions
        if decision.verdict != "refuse" and not _leads(registry, listed, decision.tag, image.digest)
    ]
    if wrong:
        raise PublicationIncomplete(
            f"{registry.repository} does not have what was published: {', '.join(wrong)}.",
            next_step="Somebody else may write to it; run it again.",
        )


def _leads(registry: Registry, listed: set[str], tag: str, digest: str | None) -> bool:
    found = registry.find(tag) if tag in listed else None
    return found is not None and found.digest == digest


def _named(
    desk: Desk, images: Sequence[Sent], policy: Policy, kinds: Sequence[Kind], *, name: str
) -> tuple[tuple[str, Decision], ...]:
    """Decide on tags of these kinds, and move those that may be, together; each with its image's identifier."""
    wanted = [(one, kind, tag) for one in images for kind, tag in _tags(one, kinds)]
    with desk.having([tag for _, _, tag in wanted]):
        ledger = desk.ledger()
        table = Table(registry=desk.registry, ledger=ledger, policy=policy, signed=desk.key is not None)
        found = [
            (one, table.decide(kind, tag, digest=one.digest, release=one.release, level=one.level))
            for one, kind, tag in wanted
        ]
        steps = tuple(_step(one, decision) for one, decision in found if decision.verdict == "move")
        if steps:
            time = desk.now().isoformat(timespec="seconds")
            promote(desk, Promotion(name=name, reason="publish", time=time, ends=ledger.ends, steps=steps))
    return tuple((one.source.identifier, decision) for one, decision in found)


def _tags(one: Sent, kinds: Sequence[Kind]) -> list[tuple[Kind, str]]:
    tags: Mapping[Kind, tuple[str, ...]] = {
        "build": (build_tag(one.source.identifier, one.digest),),
        "identifier": (one.source.identifier,),
        "alias": one.source.aliases,
    }
    return [(kind, tag) for kind in kinds for tag in tags[kind]]


def _step(one: Sent, decision: Decision) -> Step:
    return Step(
        tag=decision.tag,
        before=decision.before,
        after=one.digest,
        identifier=one.source.identifier,
        level=one.level,
    )


def _ended(one: Sent, exact: Sequence[tuple[str, Decision]]) -> Published:
    decisions = tuple(decision for _, decision in exact)
    new = one.pushed or any(decision.verdict == "move" for decision in decisions)
    return Published(
        identifier=one.source.identifier, status="published" if new else "there", decisions=decisions,
        digest=one.digest, level=one.level, reused=one.reused,
    )  # fmt: skip


def _with(image: Published, aliases: Sequence[tuple[str, Decision]], source: Source) -> Published:
    """An image with what became of its aliases."""
    own = tuple(decision for identifier, decision in aliases if identifier == source.identifier)
    return replace(image, decisions=(*image.decisions, *own))


def _planned(source: Source, table: Table) -> Published:
    there = held(table.registry, source.identifier)
    same = there if there and is_image(there.manifest, source.digest) else None
    digest = same.digest if same else source.digest if table.registry.find(source.digest) else None
    release = (
        same.release
        if same and same.release
        else Release(identifier=source.identifier, tensorflow=source.tensorflow)
    )
    tags: list[tuple[Kind, str]] = [
        ("identifier", source.identifier),
        *(("alias", tag) for tag in source.aliases),
    ]
    if digest:
        tags.insert(0, ("build", build_tag(source.identifier, digest)))
    decisions = tuple(
        table.decide(kind, tag, digest=digest, release=release, level=source.level) for kind, tag in tags
    )
    return Published(
        identifier=source.identifier, status="there" if same else "planned", decisions=decisions,
        digest=digest, level=source.level,
    )  # fmt: skip
