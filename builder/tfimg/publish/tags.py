"""Move tags together: each is read, written and read again; where one cannot be moved, the others are rolled back."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tfimg.core.errors import PublicationIncomplete, TagConflict, TfimgError
from tfimg.core.process import defer_signals
from tfimg.registry.protocol import Manifest, Registry, require_manifest

DELETED = "Another program deleted it. Publish it again."
"""Next step for an image that was in the registry a moment ago."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A tag that is to point to the digest `after`, and points to `before` now; None where it does not exist."""

    tag: str
    before: str | None
    after: str


class Note(Protocol):
    """`Journal.note`."""

    def __call__(self, event: str, **fields: object) -> None:
        """Return when the record is on the disk."""


def move_tags(registry: Registry, moves: Sequence[Move], *, note: Note) -> None:
    """Move all of the tags, or none. Tags that a killed run has moved already are rolled back with the others.

    Raises `TagConflict` where a tag points neither to `before` nor to `after`, what the registry raises, and
    `PublicationIncomplete` where tags could not be rolled back.
    """
    moved: list[Move] = []
    try:
        manifests = {
            digest: require_manifest(registry, digest, next_step=DELETED)
            for digest in sorted({move.after for move in moves})
        }
        # New tags last: a registry that deletes no tags could not undo them.
        for move in sorted(moves, key=lambda one: one.before is None):
            found = registry.find(move.tag)
            if found is None or found.digest != move.after:
                _require(move.tag, found, move.before)
                note("tag", tag=move.tag, before=move.before, after=move.after)
            moved.append(move)
            if found is None or found.digest != move.after:
                registry.put(move.tag, manifests[move.after])
    except BaseException as error:
        _roll_back(registry, moved, why=error)
        raise


def require_tags(registry: Registry, expected: dict[str, str]) -> None:
    """Read tags back. Raises `TagConflict` for one that points elsewhere, `PublicationIncomplete` for a missing one."""
    for tag, digest in expected.items():
        found = registry.find(tag)
        if found is None:
            raise PublicationIncomplete(
                f"{registry.repository} does not have what was published: {tag} is missing.",
                next_step="Another program may delete tags there; run the same command again.",
            )
        _require(tag, found, digest)


def _require(tag: str, found: Manifest | None, expected: str | None) -> None:
    digest = found.digest if found else None
    if digest != expected:
        raise TagConflict(
            f"{tag} points to {digest or 'nothing'}, and not to {expected or 'nothing'} any more: another publisher "
            "moved it.",
            next_step="Run the same command again: it decides anew which tags may be moved. `tfimg history` shows the "
            "other publisher.",
        )


def _roll_back(registry: Registry, moves: Sequence[Move], *, why: BaseException) -> None:
    """Point tags to where they pointed before, except those that another publisher has moved since."""
    with defer_signals():
        left = [move.tag for move in reversed(moves) if not _went_back(registry, move)]
    if left:
        raise PublicationIncomplete(
            f"{', '.join(left)} of {registry.repository} could not be rolled back after this failure: {why}",
            next_step="Run the same command again: it moves the other tags too.",
        ) from why


def _went_back(registry: Registry, move: Move) -> bool:
    with suppress(TfimgError):
        found = registry.find(move.tag)
        if found is None or found.digest != move.after:
            return True
        if move.before is None:
            return registry.delete_tag(move.tag)
        registry.put(move.tag, require_manifest(registry, move.before, next_step=DELETED))
        return True
    return False
