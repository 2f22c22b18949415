"""Publish images: send each with its evidence, promote all of them, read their tags back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tfimg.core.errors import (
    LockError,
    SecretFound,
    TagConflict,
    TfimgError,
    UnsuitableHost,
    ValidationAborted,
    ValidationCrashed,
    ValidationFailed,
    ValidationIncomplete,
    ValidationTimedOut,
    WithdrawnError,
)
from tfimg.core.levels import Level
from tfimg.evidence.policy import Policy
from tfimg.publish.decide import Decision, Kind
from tfimg.publish.promote import Promoted, Table, promote
from tfimg.publish.publisher import Publisher
from tfimg.publish.release import Release, is_image, release_of
from tfimg.publish.send import Hands, Sent, Source, clear, send
from tfimg.recipe.tags import make_build_tag

OF_THE_IMAGE = (
    ValidationFailed,
    ValidationAborted,
    ValidationCrashed,
    ValidationTimedOut,
    ValidationIncomplete,
    UnsuitableHost,
    SecretFound,
    TagConflict,
    LockError,
    WithdrawnError,
)
"""Errors of one image, after which the others go on; any other would stop them too."""

Status = Literal["planned", "published", "there", "failed"]
"""`there`: nothing was sent, and no tag was moved."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What became of one image. `decisions` are about each of its tags; `reused`: its report is of an earlier run."""

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
            "tags": [decision.to_json() for decision in self.decisions],
            "error": type(self.failure).__name__ if self.failure else None,
            "exit_code": self.failure.exit_code if self.failure else 0,
            "reason": str(self.failure) if self.failure else None,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """What became of each image, and the candidates' tags that the registry does not delete."""

    images: tuple[Published, ...]
    candidates: tuple[str, ...]


def publish(sources: Sequence[Source], publisher: Publisher, hands: Hands, policy: Policy) -> Publication:
    """Send images, one after the other, then promote all of them.

    The failure of one image is returned with it; any other is raised, and the same run again goes on from there.
    Raises what `promote` does.
    """
    failed: dict[str, TfimgError] = {}
    sent: list[Sent] = []
    for source in sources:
        try:
            sent.append(send(source, publisher, hands))
        except OF_THE_IMAGE as error:
            failed[source.identifier] = error
    promoted = promote(sent, publisher, policy, hands.tell)
    candidates = clear(publisher, hands)
    publisher.journal.note("finished")
    ended = {one.source.identifier: _published(one, promoted[one.source.identifier]) for one in sent}
    images = (ended.get(source.identifier) or _failed(source, failed) for source in sources)
    return Publication(images=tuple(images), candidates=candidates)


def planned(sources: Sequence[Source], table: Table) -> tuple[Published, ...]:
    """Return what publishing would do, as far as that is known before: the level is the highest possible here."""
    return tuple(_planned(source, table) for source in sources)


def _published(one: Sent, promoted: Promoted) -> Published:
    new = one.pushed or any(decision.verdict in ("move", "attest") for decision in promoted.decisions)
    return Published(
        identifier=one.source.identifier,
        decisions=promoted.decisions,
        digest=one.digest,
        level=one.level,
        status="failed" if promoted.failure else "published" if new else "there",
        reused=one.reused,
        failure=promoted.failure,
    )


def _failed(source: Source, failed: dict[str, TfimgError]) -> Published:
    return Published(identifier=source.identifier, status="failed", failure=failed[source.identifier])


def _planned(source: Source, table: Table) -> Published:
    manifest = table.registry.find(source.identifier)
    same = manifest if manifest and is_image(manifest, source.digest) else None
    digest = same.digest if same else source.digest if table.registry.find(source.digest) else None
    release = release_of(table.registry, same) if same else None
    tags: list[tuple[Kind, str]] = [
        ("identifier", source.identifier),
        *(("alias", tag) for tag in source.aliases),
    ]
    if digest:
        tags.insert(0, ("build", make_build_tag(source.identifier, digest)))
    decisions = tuple(
        table.decide(
            kind,
            tag,
            digest=digest,
            level=source.level,
            release=release or Release(identifier=source.identifier, tensorflow=source.tensorflow),
        )
        for kind, tag in tags
    )
    return Published(
        identifier=source.identifier,
        status="there" if same else "planned",
        decisions=decisions,
        digest=digest,
        level=source.level,
    )
