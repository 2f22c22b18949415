"""Move tags together: write each and read it back; if one cannot be moved, roll back the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tfimg.core.errors import PublicationIncomplete, TagConflict, TfimgError
from tfimg.core.process import defer_signals
from tfimg.registry.documents import Manifest, Registry, require_manifest

DELETED = "Another program deleted it. Publish it again."
"""Next step for an image that was in the registry a moment ago."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A tag that moves from the digest `before`, None for a new tag, to the digest `after`."""

    tag: str
    before: str | None
    after: str


def move_tags(registry: Registry, moves: Sequence[Move]) -> None:
    """Move all tags or none. Tags that a killed run has moved already are rolled back with the others.

    Raises `TagConflict` if a tag points neither to `before` nor to
    `after`, `PublicationIncomplete` if tags could not be rolled back, and what the registry raises.
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
        with defer_signals():
            failed = [move.tag for move in reversed(moved) if not _restore(registry, move)]
        if failed:
            raise PublicationIncomplete(
                f"{', '.join(failed)} of {registry.repository} could not be rolled back after this failure: {error}",
                next_step="Run the same command again to move the other tags too.",
            ) from error
        raise


def require_tags(registry: Registry, expected: Mapping[str, str]) -> None:
    """Read tags back. Raises `TagConflict` for another digest, `PublicationIncomplete` for a missing tag."""
    for tag, digest in expected.items():
        current = registry.find(tag)
        if current is None:
            raise PublicationIncomplete(
                f"The tag {tag} is missing from {registry.repository} after it was published.",
                next_step="Another program may delete tags there; run the same command again.",
            )
        _require_digest(tag, current, digest)


def _require_digest(tag: str, current: Manifest | None, expected: str | None) -> None:
    digest = current.digest if current else None
    if digest != expected:
        raise TagConflict(
            f"{tag} points to {digest or 'nothing'} instead of {expected or 'nothing'}: another publisher moved it.",
            next_step="Run the same command again; it decides about each tag again. `tfimg history` shows the other "
            "publisher.",
        )


def _restore(registry: Registry, move: Move) -> bool:
    """Point a tag to its digest from before, unless another publisher has moved it; return whether that succeeded."""
    with suppress(TfimgError):
        current = registry.find(move.tag)
        if current is None or current.digest != move.after:
            return True
        if move.before is None:
            return registry.delete_tag(move.tag)
        registry.put(move.tag, require_manifest(registry, move.before, next_step=DELETED))
        return True
    return False
