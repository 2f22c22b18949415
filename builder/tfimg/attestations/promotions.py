"""Promotions and withdrawals: the signed statements that move an image's tags, and what follows from them.

Both are in-toto statements about the image's digest. A *promotion* names tags with the digest that each pointed to
before; a *withdrawal* names tags, or the whole digest, and a reason. The history of a tag is the chain of `previous`
digests from its present one. Each statement is later than those on the image that it follows (`next_time`). A promotion
cancels the earlier withdrawals that it names by the SHA-256 of their payloads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import AfterValidator, Field, StringConstraints

from tfimg.attestations import attach, envelopes
from tfimg.attestations.keys import VerifyingKey
from tfimg.attestations.predicates import SignedResult, read_result
from tfimg.core import documents, errors, text
from tfimg.registry.documents import Reader
from tfimg.registry.reference import parse_repository

MAX_TAGS = 100  # tags in one statement. An image has at most six: its build, its identifier and four aliases


def _require_repository(text: str) -> str:
    try:
        parse_repository(text)
    except errors.UsageError as error:
        raise ValueError(error.what) from None
    return text


Tag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
Repository = Annotated[str, AfterValidator(_require_repository)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Reason = Literal["publish", "rollback"]


class TagMove(documents.Document):
    """A tag that is to point to the image; `previous` is the digest that it pointed to, None for a new tag."""

    tag: Tag
    previous: documents.Digest | None


class Promotion(documents.Document):
    """The predicate of a promotion. `tfimg` is the version that made it."""

    repository: Repository
    tags: Annotated[tuple[TagMove, ...], Field(min_length=1, max_length=MAX_TAGS)]
    time: envelopes.Time
    publisher: Text
    reason: Reason
    tfimg: Text
    cancels: Annotated[tuple[documents.Digest, ...], Field(max_length=MAX_TAGS)] = ()

    def previous(self, tag: str) -> str | None:
        return next(move.previous for move in self.tags if move.tag == tag)


class Withdrawal(documents.Document):
    """The predicate of a withdrawal. `tags` is None for the whole digest, whatever its repository."""

    repository: Repository
    tags: Annotated[tuple[Tag, ...], Field(min_length=1, max_length=MAX_TAGS)] | None
    reason: Text
    replacement: documents.Digest | None
    time: envelopes.Time
    publisher: Text

    def covers(self, repository: str, tag: str | None) -> bool:
        """Return whether it is about the whole digest, or about this tag of this repository."""
        return self.tags is None or (repository == self.repository and tag in self.tags)


Predicate = TypeVar("Predicate", Promotion, Withdrawal)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedPredicate(Generic[Predicate]):
    """The predicate of a signed statement; `statement` is the SHA-256 of its payload."""

    statement: str
    signer: str
    predicate: Predicate


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageStatements:
    """What trusted keys signed about one digest, each kind with the latest first."""

    promotions: tuple[SignedPredicate[Promotion], ...] = ()
    withdrawals: tuple[SignedPredicate[Withdrawal], ...] = ()
    outcomes: tuple[SignedResult, ...] = ()

    def promotions_of(self, repository: str, tag: str) -> tuple[SignedPredicate[Promotion], ...]:
        return tuple(
            promotion
            for promotion in self.promotions
            if promotion.predicate.repository == repository
            and any(move.tag == tag for move in promotion.predicate.tags)
        )

    def has_promoted(
        self, repository: str, move: TagMove, *, after: ImageStatements, cancels: Collection[str] = ()
    ) -> bool:
        """Return whether a promotion says of a tag what a new one would say: a killed run attached it.

        It is later than those of the image that the tag points to, `after`: an older one was completed once.
        """
        completed = after.promotions_of(repository, move.tag)
        return any(
            one.predicate.previous(move.tag) == move.previous
            and {*cancels} <= {*one.predicate.cancels}
            and all(one.predicate.time > other.predicate.time for other in completed)
            for one in self.promotions_of(repository, move.tag)
        )

    def in_force(self, repository: str, tag: str | None) -> tuple[SignedPredicate[Withdrawal], ...]:
        """Return the withdrawals for a tag, or for the digest alone, that no promotion cancels.

        A promotion cancels a withdrawal of tags only for the tags that it promotes.
        """
        return tuple(
            withdrawal
            for withdrawal in self.withdrawals
            if withdrawal.predicate.covers(repository, tag)
            and not any(
                withdrawal.statement in promotion.predicate.cancels
                and withdrawal.predicate.time < promotion.predicate.time  # equal times go to the withdrawal
                for promotion in (
                    self.promotions if withdrawal.predicate.tags is None else self.promotions_of(repository, str(tag))
                )
            )
        )


def next_time(now: datetime, earlier: Iterable[ImageStatements]) -> datetime:
    """Return the time of a new promotion or withdrawal: now, or just after every statement that it follows.

    So a second withdrawal is never the same bytes as a first one, which a promotion has cancelled. Raises `WrongClock`.
    """
    times = [one.predicate.time for statements in earlier for one in statements.promotions]
    times += [one.predicate.time for statements in earlier for one in statements.withdrawals]
    return envelopes.require_time(max([now, *(time + timedelta.resolution for time in times)]))


def make_predicate_statement(subject: envelopes.Subject, predicate: Promotion | Withdrawal) -> envelopes.Statement:
    """Return the statement of a predicate: the same input gives the same bytes."""
    kind = envelopes.PROMOTION if isinstance(predicate, Promotion) else envelopes.WITHDRAWAL
    return envelopes.make_statement(subject, kind, predicate.model_dump(mode="json"))


def read_statements(genuine: Iterable[attach.VerifiedStatement], *, image: str) -> ImageStatements:
    """Sort the statements that trusted keys signed. Raises `TamperedError` for an invalid predicate."""
    found = tuple(genuine)
    outcomes = (read_result(one.predicate, image=image) for one in found if one.predicate_type == envelopes.TEST_RESULT)
    return ImageStatements(
        promotions=_signed(Promotion, envelopes.PROMOTION, found, image),
        withdrawals=_signed(Withdrawal, envelopes.WITHDRAWAL, found, image),
        outcomes=tuple(sorted(outcomes, key=lambda one: one.ended, reverse=True)),
    )


def read_image_statements(
    registry: Reader, digest: str, keys: Sequence[VerifyingKey], *, with_outcomes: bool = True
) -> ImageStatements:
    """Read the statements of trusted keys about the tags and tests of a digest, and skip everything else.

    Only `verify` refuses an image for changed attestations: here, that would let everyone with write access to the
    registry block a rollback. Without outcomes, this makes three requests for a digest with one promotion.
    """
    kinds = [envelopes.PROMOTION, envelopes.WITHDRAWAL, *([envelopes.TEST_RESULT] if with_outcomes else [])]
    found = attach.filter_verified(attach.collect_bundles(registry, digest, kinds), keys, digest=digest)
    return read_statements({one.statement: one for one in found}.values(), image=f"{registry.repository}@{digest}")


def export_withdrawals(registry: Reader, digest: str, keys: Sequence[VerifyingKey]) -> tuple[bytes, ...]:
    """Return the signed withdrawals of a digest, and the promotions that cancel them, as DSSE envelopes."""
    kinds = (envelopes.PROMOTION, envelopes.WITHDRAWAL)
    genuine = {
        statement.statement: found.envelope
        for found in attach.collect_bundles(registry, digest, kinds)
        for statement in attach.filter_verified([found], keys, digest=digest)
        if statement.predicate_type == envelopes.WITHDRAWAL or statement.predicate.get("cancels")
    }
    return tuple(envelope.to_json() for envelope in genuine.values())


def read_withdrawals(content: bytes, keys: Sequence[VerifyingKey]) -> tuple[attach.CollectedEnvelope, ...]:
    """Read JSON lines of DSSE envelopes, as `export_withdrawals` returns them.

    A file without a line means that nothing was withdrawn. Raises `TamperedError` for a line that is not an envelope,
    `UnsignedError` if the keys signed none of them.
    """
    found = tuple(
        attach.CollectedEnvelope(where=f"line {number}", envelope=envelopes.parse_envelope(line))
        for number, line in enumerate(content.splitlines(), start=1)
        if line.strip()
    )
    if found and not any(one.envelope.find_signer(keys) for one in found):
        raise errors.UnsignedError(
            "The file of withdrawals has no statement that a trusted key signed.",
            next_step="Get it from the image's publisher: `tfimg history REPOSITORY --withdrawals FILE` writes it.",
        )
    return found


def _signed(
    model: type[Predicate], kind: str, genuine: Iterable[attach.VerifiedStatement], image: str
) -> tuple[SignedPredicate[Predicate], ...]:
    try:
        found = [
            SignedPredicate(
                statement=one.statement, signer=one.signer, predicate=documents.validate_model(model, one.predicate)
            )
            for one in genuine
            if one.predicate_type == kind
        ]
    except documents.InvalidDocument as error:
        raise errors.TamperedError(
            f"A {kind.rpartition(':')[2]} of {image} is invalid: {error}.",
            next_step="A newer tfimg may have signed it: read it with that version.",
        ) from None
    return tuple(sorted(found, key=lambda one: (one.predicate.time, one.statement), reverse=True))


def require_not_withdrawn(statements: ImageStatements, *, image: str, repository: str, tag: str | None) -> None:
    """Raise `WithdrawnError` if the whole image or this tag of the repository is withdrawn."""
    if withdrawals := statements.in_force(repository, tag):
        raise withdrawn_error(withdrawals[0].predicate, image=image)


def withdrawn_error(withdrawal: Withdrawal, *, image: str) -> errors.WithdrawnError:
    """Return the error for a withdrawn image, with the publisher's reason and replacement."""
    of = "" if withdrawal.tags is None else f" as {', '.join(withdrawal.tags)}"
    replacement = withdrawal.replacement
    return errors.WithdrawnError(
        f"{image} was withdrawn{of} at {envelopes.format_time(withdrawal.time)} by "
        f"{text.to_plain_text(withdrawal.publisher)}: {text.to_plain_text(withdrawal.reason)}",
        next_step=f"Use {withdrawal.repository}@{replacement} instead." if replacement else "Use another image.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TagHistoryEntry:
    """A digest in the history of a tag. `promotion` is None for a gap: no signed statement gave it the tag.

    `withdrawals` are those for the tag, `in_force` those of them that are not cancelled.
    """

    digest: str
    promotion: SignedPredicate[Promotion] | None
    withdrawals: tuple[SignedPredicate[Withdrawal], ...]
    in_force: tuple[SignedPredicate[Withdrawal], ...]


def walk_history(
    repository: str, tag: str, present: str, read: Callable[[str], ImageStatements], *, limit: int
) -> Iterator[TagHistoryEntry]:
    """Yield the history of a tag from its present digest back, at most `limit` steps.

    After rollbacks a digest occurs several times: the latest promotion before the one that replaced it counts, and
    later ones were never completed. The history ends with the tag's first promotion, or with a gap.
    """
    digest: str | None = present
    before = envelopes.LATEST
    while digest and limit > 0:
        statements = read(digest)
        promotions = statements.promotions_of(repository, tag)
        promotion = next((one for one in promotions if one.predicate.time < before), None)
        yield TagHistoryEntry(
            digest=digest,
            promotion=promotion,
            withdrawals=tuple(one for one in statements.withdrawals if one.predicate.covers(repository, tag)),
            in_force=statements.in_force(repository, tag),
        )
        if promotion is None:
            return
        digest, before, limit = promotion.predicate.previous(tag), promotion.predicate.time, limit - 1
