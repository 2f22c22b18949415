"""Withdraw the images that publications have replaced, because of advisories."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tfimg.core.documents import InvalidDocument
from tfimg.core.events import Message, OnEvent, ignore
from tfimg.core.text import list_first
from tfimg.evidence.collect import collect_bundles
from tfimg.evidence.promotions import TagHistoryEntry, walk_history
from tfimg.evidence.signatures import filter_verified
from tfimg.evidence.statement import CYCLONEDX
from tfimg.inspect.contents import parse_bill_of_materials
from tfimg.publish.earlier_image import MAX_STEPS
from tfimg.publish.promote import PublishResult
from tfimg.publish.repository import SignedRepository
from tfimg.publish.retract import RetractedImage, withdraw

MAX_NAMED = 5
"""Images that a message names."""


def format_reason(advisories: Sequence[str], reason: str | None = None) -> str:
    """Return the reason of a withdrawal because of advisories, which `verify` and `pull` print."""
    return ": ".join(filter(None, (", ".join(advisories) and f"vulnerable to {', '.join(advisories)}", reason)))


def withdraw_superseded(
    repository: SignedRepository,
    results: Sequence[PublishResult],
    advisories: Sequence[str],
    on_event: OnEvent = ignore,
) -> tuple[RetractedImage, ...]:
    """Withdraw the images that each published one has replaced under its identifier, and name the new one instead.

    The images are those of the signed history, so that a repeated command does what a killed one did not. Raises as
    `withdraw` does.
    """
    reason, images = format_reason(advisories), list[RetractedImage]()
    for result in results:
        for before in find_superseded(repository, result, on_event):
            images += withdraw(repository, before, reason=reason, replacement=result.digest)
    return tuple(images)


def find_superseded(repository: SignedRepository, result: PublishResult, on_event: OnEvent = ignore) -> tuple[str, ...]:
    """Return the digests that an identifier's tag pointed to before the published image and that have the defect.

    The image before has it, as the user says. Of earlier ones, which may be too old for the defect, those have it whose
    signed bills of materials list every package that the fix replaced; a message names the others.
    """
    if result.failure or not result.digest:
        return ()
    history = walk_history(repository.name, result.identifier, result.digest, repository.statements, limit=MAX_STEPS)
    entries: dict[str, TagHistoryEntry] = {}
    for entry in history:
        entries.setdefault(entry.digest, entry)
    present, *before = entries
    if not before:
        return ()
    fixed = _read_packages(repository, before[0]) - _read_packages(repository, present)
    # A rollback withdraws an image for its tag alone: by digest and under other tags, users still get it.
    open_ones = [digest for digest in before[1:] if all(one.predicate.tags for one in entries[digest].in_force)]
    vulnerable = [digest for digest in open_ones if fixed and fixed <= _read_packages(repository, digest)]
    if others := [digest for digest in open_ones if digest not in vulnerable]:
        names = list_first([f"{repository.name}@{digest}" for digest in others], MAX_NAMED)
        why = (
            "they do not have all packages that the fix replaced"
            if fixed
            else f"the bills of materials of {before[0]} and of the fix do not tell which packages it replaced"
        )
        on_event(
            Message(
                text=f"Not withdrawn, because {why}: {names}. "
                "`tfimg audit --published IMAGE` tells whether they are vulnerable."
            )
        )
    return (before[0], *vulnerable)


def _read_packages(repository: SignedRepository, digest: str) -> frozenset[tuple[str, str]]:
    """Return the names and versions in the bill of materials that a trusted key signed; none without one."""
    found = collect_bundles(repository.registry, digest, [CYCLONEDX])
    for bill in filter_verified(found, repository.trusted, digest=digest):
        if bill.predicate_type == CYCLONEDX:
            with suppress(InvalidDocument):
                contents = parse_bill_of_materials(bill.predicate)
                packages = (contents.libraries, contents.python, contents.debian)
                return frozenset(item for part in packages for item in part.items())
    return frozenset()
