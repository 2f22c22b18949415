"""Tags moved together: each is read, written and read again; where one cannot be moved, those that were go back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tfimg.errors import PublicationIncomplete, TagMoved, TfimgError
from tfimg.registry.protocol import Manifest, Registry


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A tag that is to lead to `after`; `before` is the digest that it leads to now, None where it does not exist."""

    tag: str
    before: str | None
    after: Manifest


class Note(Protocol):
    """Where it is written what will happen next, before it does: `Journal.note`."""

    def __call__(self, event: str, **fields: object) -> None:
        """Returns when it is on the disk."""


def move_all(registry: Registry, moves: Sequence[Move], *, note: Note) -> None:
    """Move all of the tags, or none. Those that a killed run has moved are not moved again, and go back with the rest.

    Raises `TagMoved` where one leads neither to where it did nor to where it is to, what the registry raises, and
    `PublicationIncomplete` where tags could not go back either; then the journal knows them.
    """
    moved: list[tuple[Move, Manifest | None]] = []
    try:
        # Those that are new last: a registry that lets no tag be taken away could not undo them.
        for move in sorted(moves, key=lambda one: one.before is None):
            before = registry.find(move.tag)
            if before is not None and before.digest == move.after.digest:
                moved.append((move, registry.find(move.before) if move.before else None))
                continue
            require(move.tag, before, move.before)
            note("tag", tag=move.tag, before=move.before, after=move.after.digest)
            moved.append((move, before))
            registry.put(move.tag, move.after)
    except BaseException as error:
        left = [move.tag for move, before in reversed(moved) if not _went_back(registry, move, before)]
        if left:
            raise _half(registry, left, error) from error
        note("moved-back", tags=[move.tag for move, _ in moved])
        raise


def require(tag: str, found: Manifest | None, expected: str | None) -> None:
    """Raises `TagMoved` where a tag leads elsewhere than it did."""
    digest = found.digest if found else None
    if digest != expected:
        raise TagMoved(
            f"Somebody else moved {tag} from {expected or 'nowhere'} to {digest or 'nowhere'}.",
            next_step="Run it again: it is decided anew what may be moved; `tfimg history` shows who was here.",
        )


def _went_back(registry: Registry, move: Move, before: Manifest | None) -> bool:
    """Lead a tag to where it did; whether it does. One that somebody else has moved since is his."""
    with suppress(TfimgError):
        found = registry.find(move.tag)
        if found is None or found.digest != move.after.digest:
            return True
        if before is not None:
            registry.put(move.tag, before)
            return True
        if move.before is None:
            registry.untag(move.tag)
            return registry.find(move.tag) is None
    return False


def _half(registry: Registry, left: Sequence[str], error: BaseException) -> PublicationIncomplete:
    return PublicationIncomplete(
        f"{', '.join(left)} of {registry.repository} could not be led back to where they did, after this: {error}",
        next_step="Run the same command again: it knows them, and finishes.",
    )
