"""The publisher of a run: its registry, journal, keys and locks, and how it attaches promotions and withdrawals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import PublicationIncomplete
from tfimg.core.files import wait_for_lock
from tfimg.core.journal import Journal
from tfimg.core.levels import Level
from tfimg.evidence.attach import attach
from tfimg.evidence.keys import SigningKey, VerifyingKey
from tfimg.evidence.promotions import (
    ImageStatements,
    Promotion,
    Reason,
    TagMove,
    Withdrawal,
    next_time,
    predicate_statement,
    read_image_statements,
)
from tfimg.evidence.statement import Subject
from tfimg.registry.protocol import Registry, digest_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Publisher:
    """What tags are moved with.

    `trusted` are the keys whose statements count, that of `key` among them; `name` is the publisher's in statements.
    `locks` is a folder. `prove` returns the level that evidence of a digest shows, and raises where that is below the
    level asked for; it refuses withdrawn images unless `reinstates`, which lets promotions cancel withdrawals.
    """

    registry: Registry
    journal: Journal
    run: str
    key: SigningKey
    trusted: tuple[VerifyingKey, ...]
    name: str
    version: str
    locks: Path
    prove: Callable[[str, Level], Level]
    now: Callable[[], datetime]
    reinstates: bool = False

    @contextmanager
    def having(self, tags: Sequence[str]) -> Iterator[None]:
        """Hold the locks of tags on this machine; wait until no other process has them."""
        with ExitStack() as stack:
            for tag in sorted(set(tags)):  # in one order, so that no two wait for each other
                stack.enter_context(wait_for_lock(self.locks / tag, raise_if_cancelled))
            yield

    def statements(self, digest: str) -> ImageStatements:
        """Read what trusted keys signed about a digest."""
        return read_image_statements(self.registry, digest, self.trusted)

    def promotion(
        self,
        tags: Sequence[TagMove],
        earlier: Iterable[ImageStatements],
        *,
        reason: Reason,
        cancels: Iterable[str] = (),
    ) -> Promotion:
        """Return a promotion of this run, which follows the `earlier` statements on the same digest and tags."""
        return Promotion(
            repository=self.registry.repository,
            tags=tuple(tags),
            publisher=self.name,
            reason=reason,
            time=next_time(self.now(), earlier),
            run=self.run,
            tfimg=self.version,
            cancels=tuple(sorted(set(cancels))),
        )

    def attach(self, digest: str, predicate: Promotion | Withdrawal) -> None:
        """Sign a predicate, attach it to a digest and read it back. What is attached already is not sent again.

        Raises `PublicationIncomplete` where the registry does not have it afterwards.
        """
        signed = predicate_statement(Subject(name=self.registry.repository, digest=digest), predicate)
        attach(self.registry, digest, [signed], key=self.key)
        found = self.statements(digest)
        known = [one.statement for one in found.promotions] + [one.statement for one in found.withdrawals]
        if digest_of(signed.content) not in known:
            raise PublicationIncomplete(
                f"The statement about the tags of {self.registry.repository}@{digest} was attached, and the registry "
                "does not have it.",
                next_step="Run the same command again; if it fails again, look for what deletes referrers there.",
            )
