"""Tags moved together: each is read, written and read again; where one cannot be moved, those that were go back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tfimg.errors import NotInRegistry, PublicationIncomplete, TagMoved, TfimgError
from tfimg.process import uninterrupted
from tfimg.registry.protocol import Manifest, Registry


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A tag that is to lead to the digest `after`; `before` is where it leads now, None where it does not exist."""

    tag: str
    before: str | None
    after: str


class Note(Protocol):
    """Where it is written what will happen next, before it does: `Journal.note`."""

    def __call__(self, event: str, **fields: object) -> None:
        """Returns when it is on the disk."""


def move_all(registry: Registry, moves: Sequence[Move], *, note: Note) -> None:
    """Move all of the tags, or none. Those that a killed run has moved are not moved again, and go back with the rest.

    Raises `TagMoved` where one leads neither to where it did nor to where it is to, what the registry raises, and
    `PublicationIncomplete` where tags could not go back either; then the journal knows them.
    """
    moved: list[Move] = []
    try:
        manifests = {digest: _manifest(registry, digest) for digest in sorted({move.after for move in moves})}
        # Those that are new last: a registry that lets no tag be taken away could not undo them.
        for move in sorted(moves, key=lambda one: one.before is None):
            found = registry.find(move.tag)
            if found is None or found.digest != move.after:
                require(move.tag, found, move.before)
                note("tag", tag=move.tag, before=move.before, after=move.after)
            moved.append(move)
            if found is None or found.digest != move.after:
                registry.put(move.tag, manifests[move.after])
    except BaseException as error:
        lead_back(registry, moved, note=note, why=error)
        raise


def lead_back(registry: Registry, moves: Sequence[Move], *, note: Note, why: BaseException) -> None:
    """Lead tags to where they led before, but for those that somebody else has moved since, and note that.

    Raises `PublicationIncomplete` where that cannot be done for all; `why` it was to be is told in it.
    """
    with uninterrupted():
        left = [move.tag for move in reversed(moves) if not _went_back(registry, move)]
    if left:
        raise PublicationIncomplete(
            f"{', '.join(left)} of {registry.repository} could not be led back to where they did, after this: {why}",
            next_step="Run the same command again: it knows them, and finishes.",
        ) from why
    note("moved-back", tags=[move.tag for move in moves])


def require(tag: str, found: Manifest | None, expected: str | None) -> None:
    """Raises `TagMoved` where a tag leads elsewhere than it did."""
    digest = found.digest if found else None
    if digest != expected:
        raise TagMoved(
            f"Somebody else moved {tag} from {expected or 'nowhere'} to {digest or 'nowhere'}.",
            next_step="Run it again: it is decided anew what may be moved; `tfimg history` shows who was here.",
        )


def _went_back(registry: Registry, move: Move) -> bool:
    """Lead a tag to where it did; whether it does. One that somebody else has moved since is his."""
    with suppress(TfimgError):
        found = registry.find(move.tag)
        if found is None or found.digest != move.after:
            return True
        if move.before is None:
            return registry.untag(move.tag)
        registry.put(move.tag, _manifest(registry, move.before))
        return True
    return False


def _manifest(registry: Registry, digest: str) -> Manifest:
    manifest = registry.find(digest)
    if manifest is None:
        raise NotInRegistry(
            f"{registry.repository}@{digest} is not there any more.",
            next_step="Somebody removed it from the registry. Publish it again.",
        )
    return manifest
