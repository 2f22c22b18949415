"""A repository whose images are signed: read, verify and lock its tags."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from tfimg import __version__
from tfimg.attestations import envelopes, keys, promotions, verify
from tfimg.attestations.attach import attach
from tfimg.attestations.policy import Policy
from tfimg.core import cancellation, documents, errors, events, files
from tfimg.core.levels import Level
from tfimg.core.text import read_clock
from tfimg.publish.indexes import PlatformTags
from tfimg.recipe.tags import find_shared_tag
from tfimg.registry.documents import Registry

INSUFFICIENT = (errors.UnsignedError, errors.TamperedError, errors.PolicyViolation, errors.StaleAttestations)
"""Errors that mean that an image lacks attestations, not that the registry failed."""


@dataclass(frozen=True, kw_only=True)
class SignedRepository:
    """A registry repository, and the identity that publishes to it.

    `key` signs; statements of `key`, of `other_keys` and of the policy's keys count. `state` is the folder for
    locks, `publisher` this machine's name in statements. With `reinstate`, promotions cancel withdrawals.
    `warn` gets what does not stop a command: a wrong clock. Raises `InvalidKey` for a key that the policy refuses.
    """

    registry: Registry
    key: keys.SigningKey
    state: Path
    policy: Policy = field(default_factory=Policy)
    other_keys: tuple[keys.VerifyingKey, ...] = ()
    publisher: str = field(default_factory=lambda: os.uname().nodename)
    reinstate: bool = False
    now: Callable[[], datetime] = read_clock
    warn: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self.policy.accepted_keys([self.key.verifying_key])

    @cached_property
    def trusted(self) -> tuple[keys.VerifyingKey, ...]:
        """Public keys whose statements count."""
        return self.policy.accepted_keys((self.key.verifying_key, *self.other_keys, *self.policy.trusted_keys))

    @cached_property
    def tags(self) -> PlatformTags:
        """The registry whose tags mean the image of one platform each."""
        return PlatformTags(self.registry, self.trusted)

    @property
    def name(self) -> str:
        """REGISTRY/NAME, without a tag."""
        return self.registry.repository

    @cached_property
    def candidate_prefix(self) -> str:
        """Beginning of the tags that images have before they are promoted; those of this machine and repository alone.

        The machine is known by its publisher's name and its state folder.
        """
        place = f"{self.publisher}\n{self.state.absolute()}\n{self.name}"
        return f"candidate-{hashlib.sha256(place.encode()).hexdigest()[:8]}-"

    @contextmanager
    def lock_tags(self, tags: Iterable[str], on_event: events.OnEvent = events.ignore) -> Iterator[None]:
        """Hold the locks of tags on this machine, one for all platforms; wait for other processes to release them."""
        notes = iter([events.InfoEvent(text=f"Waiting for another process that writes to {self.name}.")])

        def wait() -> None:
            cancellation.raise_if_cancelled()
            for note in notes:  # once
                on_event(note)

        with ExitStack() as stack:
            for tag in sorted(set(map(find_shared_tag, tags))):  # in one order, to avoid deadlocks
                stack.enter_context(files.wait_for_lock(self.lock_file(tag), wait))
            yield

    def lock_file(self, tag: str) -> Path:
        """Return the file whose lock a process of this machine holds while it writes a tag."""
        return self.state / "publish" / quote(self.name, safe="") / tag

    def statements(self, digest: str) -> promotions.ImageStatements:
        """Read what trusted keys signed about a digest."""
        return promotions.read_image_statements(self.registry, digest, self.trusted)

    def require_level(self, digest: str, level: Level, *, of_any_age: bool = False) -> Level:
        """Return the level that the attestations of a digest prove. Raises as `verify` does if that is below `level`.

        Withdrawn images are refused unless they are reinstated. `of_any_age`: for an image that was promoted once,
        whatever this machine's clock shows.
        """
        policy = replace(
            self.policy, level=max(level, Level.BUILT), gpu=None, driver=None, allow_withdrawn=self.reinstate
        )
        now = self.now()
        if of_any_age:
            policy = replace(policy, max_age=None)
            now = max([now, *(outcome.ended for outcome in self.statements(digest).outcomes)])
        return verify.verify(self.registry, digest, self.trusted, policy, now=now).outcome.proven_level

    def warn_of_age(self, digest: str, known: promotions.ImageStatements) -> None:
        """Warn if users refuse an image because its newest test result is too old."""
        now, max_age = self.now(), self.policy.max_age
        tested = max((outcome.ended for outcome in known.outcomes), default=now)
        if max_age and now - tested > max_age:
            self.warn(
                f"{self.name}@{digest} was last tested at {envelopes.format_time(tested)}, and the clock of this "
                f"machine shows {envelopes.format_time(now)}: if that is right, users refuse the image until `tfimg "
                "publish --renew` renews it."
            )

    def next_time(self, earlier: Iterable[promotions.ImageStatements]) -> datetime:
        """Return the time of a new statement after `earlier` ones; warn if they are later than this machine's clock."""
        now = self.now()
        time = promotions.next_time(now, earlier)
        if time - now > verify.MAX_CLOCK_SKEW:
            self.warn(
                f"The clock of this machine shows {envelopes.format_time(now)}, which is before the newest signed "
                f"statement, of {envelopes.format_time(time)}: the new one is dated after that. Set the clock."
            )
        return time

    def promotion(
        self,
        tags: Sequence[promotions.TagMove],
        earlier: Iterable[promotions.ImageStatements],
        *,
        reason: promotions.Reason,
        cancels: Iterable[str] = (),
    ) -> promotions.Promotion:
        """Return a promotion that follows the `earlier` statements on the same digest and tags."""
        return promotions.Promotion(
            repository=self.name,
            tags=tuple(tags),
            publisher=self.publisher,
            reason=reason,
            time=self.next_time(earlier),
            tfimg=__version__,
            cancels=tuple(sorted(set(cancels))),
        )

    def attach(self, digest: str, predicate: promotions.Promotion | promotions.Withdrawal) -> None:
        """Sign a predicate, attach it to a digest and read it back; skip what is attached already.

        Raises `PublicationIncomplete` if the registry does not return it afterwards.
        """
        statement = promotions.make_predicate_statement(envelopes.Subject(name=self.name, digest=digest), predicate)
        attach(self.registry, digest, [statement], key=self.key)
        found = self.statements(digest)
        known = {one.statement for one in found.promotions} | {one.statement for one in found.withdrawals}
        if documents.digest_of(statement.content) not in known:
            raise errors.PublicationIncomplete(
                f"A statement about the tags of {self.name}@{digest} was attached, but the registry does not return "
                "it.",
                next_step="Run the same command again; if it fails again, look for what deletes referrers there.",
            )
