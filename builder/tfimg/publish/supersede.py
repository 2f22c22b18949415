"""Withdraw the images that publications have replaced, because of advisories."""

from __future__ import annotations

from collections.abc import Sequence

from tfimg.core.events import OnEvent, ignore
from tfimg.publish.promote import PublishResult
from tfimg.publish.repository import SignedRepository
from tfimg.publish.retract import withdraw
from tfimg.publish.retraction import Retraction


def format_reason(advisories: Sequence[str], reason: str | None = None) -> str:
    """Return the reason of a withdrawal because of advisories, which `verify` and `pull` print."""
    return ": ".join(filter(None, (", ".join(advisories) and f"vulnerable to {', '.join(advisories)}", reason)))


def withdraw_superseded(
    repository: SignedRepository,
    results: Sequence[PublishResult],
    advisories: Sequence[str],
    on_event: OnEvent = ignore,
) -> tuple[Retraction, ...]:
    """Withdraw the image that each published one has replaced under its identifier, and name the new one instead.

    The image before is the one that the signed promotion names, so that a repeated command does what a killed one did
    not. Raises as `withdraw` does.
    """
    reason, retractions = format_reason(advisories), []
    for result in results:
        before = None if result.failure else find_superseded(repository, result)
        if before:
            retractions.append(
                withdraw(repository, before, reason=reason, replacement=result.digest, on_event=on_event)
            )
    return tuple(retractions)


def find_superseded(repository: SignedRepository, result: PublishResult) -> str | None:
    """Return the digest that an identifier's tag pointed to before the published image; None for a first one."""
    digest, identifier = result.digest, result.identifier
    promotions = repository.statements(digest).promotions_of(repository.name, identifier) if digest else ()
    previous = promotions[0].predicate.previous(identifier) if promotions else None
    return previous if previous != digest else None
