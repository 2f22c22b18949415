"""The history of tags: the promotions and withdrawals that trusted keys signed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Any, Literal

from packaging.version import Version

from tfimg.attestations.envelopes import format_time
from tfimg.attestations.keys import VerifyingKey
from tfimg.attestations.promotions import Promotion, SignedPredicate, Withdrawal, read_image_statements, walk_history
from tfimg.core.errors import NotInRegistry, UsageError
from tfimg.publish.tags import parse_tag_version
from tfimg.recipe.tags import DIGEST_DIGITS, make_build_tag
from tfimg.registry.documents import Reader, require_manifest

BUILD_TAG = re.compile(rf".+-[0-9a-f]{{{DIGEST_DIGITS}}}")


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEntry:
    """A statement about a digest, or a gap: no trusted key signed that `tag` pointed to the digest."""

    kind: Literal["promotion", "withdrawal", "gap"]
    digest: str
    signed: SignedPredicate[Promotion] | SignedPredicate[Withdrawal] | None = None
    in_force: bool | None = None
    tag: str | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that the statement names; empty if it is about all."""
        if not self.signed:
            return ()
        return tuple(tag if isinstance(tag, str) else tag.tag for tag in self.signed.predicate.tags or ())

    def to_json(self) -> dict[str, Any]:
        known = {"event": self.kind, "tag": self.tag, "digest": self.digest, "in_force": self.in_force}
        document = {name: value for name, value in known.items() if value is not None}
        if self.signed:
            document |= {
                **self.signed.predicate.model_dump(mode="json"),
                "time": format_time(self.signed.predicate.time),
                "statement": self.signed.statement,
                "signer": self.signed.signer,
            }
        return document


def tag_history(registry: Reader, tag: str, keys: Sequence[VerifyingKey], *, limit: int) -> Iterator[HistoryEntry]:
    """Yield the history of a tag, newest first, at most `limit` moves. Raises `NotInRegistry` for a missing tag."""
    present = require_manifest(registry, tag).digest
    read = cache(lambda digest: read_image_statements(registry, digest, keys, with_outcomes=False))
    listed: set[str] = set()
    cancelled: list[tuple[datetime, HistoryEntry]] = []
    for step in walk_history(registry.repository, tag, present, read, limit=limit):
        for signed in step.withdrawals:
            if signed.statement in listed:
                continue
            listed.add(signed.statement)
            is_in_force = signed in step.in_force
            entry = HistoryEntry(kind="withdrawal", digest=step.digest, signed=signed, in_force=is_in_force)
            if is_in_force:
                yield entry
            else:  # older than the promotion that cancels it
                cancelled.append((signed.predicate.time, entry))
        cancelled.sort(key=itemgetter(0), reverse=True)
        while cancelled and not (step.promotion and cancelled[0][0] < step.promotion.predicate.time):
            yield cancelled.pop(0)[1]
        if step.promotion:
            yield HistoryEntry(kind="promotion", digest=step.digest, signed=step.promotion)
        else:
            yield HistoryEntry(kind="gap", digest=step.digest, tag=tag)
    yield from (entry for _, entry in cancelled)


def repository_history(
    registry: Reader, builds: Sequence[str], keys: Sequence[VerifyingKey], *, limit: int
) -> list[HistoryEntry]:
    """Return the statements about the images of build tags, newest first."""
    entries: list[tuple[datetime, HistoryEntry]] = []
    listed: set[str] = set()
    for tag in builds:
        manifest = registry.find(tag)
        if manifest is None or tag != make_build_tag(tag[: -DIGEST_DIGITS - 1], manifest.digest):
            continue  # a build tag that was moved identifies no build
        digest = manifest.digest
        if digest in listed:
            continue  # the tag of its candidate, in a registry that deletes none
        listed.add(digest)
        statements = read_image_statements(registry, digest, keys, with_outcomes=False)
        for promotion in statements.promotions:
            entry = HistoryEntry(kind="promotion", digest=digest, signed=promotion)
            entries.append((promotion.predicate.time, entry))
        for signed in statements.withdrawals:
            repository, tags = signed.predicate.repository, signed.predicate.tags or (None,)
            is_in_force = any(signed in statements.in_force(repository, tag) for tag in tags)
            entry = HistoryEntry(kind="withdrawal", digest=digest, signed=signed, in_force=is_in_force)
            entries.append((signed.predicate.time, entry))
    return [entry for _, entry in sorted(entries, key=itemgetter(0), reverse=True)][:limit]


def build_tags(tags: Iterable[str]) -> list[str]:
    builds = (tag for tag in tags if BUILD_TAG.fullmatch(tag))
    found = [(parse_tag_version(tag.partition("-")[0]) or Version("0"), tag) for tag in builds]
    return [tag for _, tag in sorted(found, reverse=True)]


def find_build(registry: Reader, digits: str) -> str:
    """Return the digest that begins with these digits, of which there are 12 or more.

    Raises `NotInRegistry` if no build of the repository has it, `UsageError` if several have.
    """
    if len(digits) == 64:  # a whole one
        return f"sha256:{digits}"
    tags = (tag for tag in build_tags(registry.list_tags()) if tag.endswith(digits[:DIGEST_DIGITS]))
    digests = {manifest.digest for tag in tags if (manifest := registry.find(tag))}
    found = sorted(digest for digest in digests if digest.startswith(f"sha256:{digits}"))
    if not found:
        raise NotInRegistry(
            f"{registry.repository} has no build whose digest begins with {digits}.",
            next_step=f"`tfimg history {registry.repository}` lists builds; name the whole digest of another image.",
        )
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} builds of {registry.repository} have digests that begin with {digits}: {', '.join(found)}.",
            next_step="Name the whole digest.",
        )
    return found[0]
