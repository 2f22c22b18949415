"""What a rollback or withdrawal does, as values and as a record of a journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from tfimg.core.journal import Record
from tfimg.evidence.promotions import Promotion, Withdrawal
from tfimg.matrix.schema import Platform
from tfimg.publish.tags import Move


@dataclass(frozen=True, kw_only=True, slots=True)
class RetractionRequest:
    """The command that a user gave. `image` is a tag to roll back or a digest to withdraw, also of an index."""

    command: Literal["rollback", "withdraw"]
    image: str
    to: str | None = None
    tags: tuple[str, ...] = ()
    platform: Platform | None = None

    def __str__(self) -> str:
        return " ".join(filter(None, (self.command, self.image, self.to, *self.tags, self.platform)))


@dataclass(frozen=True, kw_only=True)
class RetractedImage:
    """An image that loses tags. `withdrawal` is None if an equal one is in force.

    `unmoved` says of each tag that still points to the image why it cannot be moved.
    """

    digest: str
    withdrawal: Withdrawal | None
    moves: tuple[Move, ...]
    unmoved: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return what was done as a JSON object."""
        return {
            "digest": self.digest,
            "moves": [asdict(move) for move in self.moves],
            "left": self.unmoved,
            "withdrawal": self.withdrawal.model_dump(mode="json") if self.withdrawal else None,
        }


@dataclass(frozen=True, kw_only=True)
class Retraction:
    """What a rollback or withdrawal does: to one image, or to each of an index. `promotions` are by digest."""

    request: RetractionRequest
    images: tuple[RetractedImage, ...]
    promotions: dict[str, Promotion]

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves of all tags."""
        return tuple(move for image in self.images for move in image.moves)


RETRACTION = TypeAdapter(Retraction)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetractionStarted(Record):
    """A retraction that is about to be performed, as JSON."""

    event = "retract"
    retraction: Mapping[str, Any]
