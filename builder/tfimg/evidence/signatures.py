"""Verify the signatures of an image's evidence, and read the statements that trusted keys signed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import TamperedError, UnsignedError
from tfimg.core.text import list_first, to_plain_text
from tfimg.evidence.collect import CollectedEnvelope
from tfimg.evidence.keys import VerifyingKey, fingerprints
from tfimg.evidence.statement import IN_TOTO, Statement, read_statement
from tfimg.registry.documents import digest_of

DO_NOT_USE = "Do not use the image until you know who changed its evidence."

MAX_LISTED = 5
"""Keys or digests that a message names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifiedStatement(Statement):
    """A statement about the image that a trusted key signed. `signer`: the key's fingerprint, `content`: signed bytes.

    `subjects` are the names that the statement gives the image: repositories.
    """

    predicate: dict[str, Any]
    signer: str
    subjects: tuple[str, ...]

    @property
    def statement(self) -> str:
        """The SHA-256 of the signed bytes, by which other statements name this one."""
        return digest_of(self.content)


def verify_signatures(
    evidence: Sequence[CollectedEnvelope], keys: Sequence[VerifyingKey], *, image: str, digest: str
) -> tuple[VerifiedStatement, ...]:
    """Return each statement that the keys signed about the manifest `digest`; those of other keys are ignored.

    `image` is its name in messages. Raises `TamperedError` for evidence that claims one of the keys and was not signed
    by it, or was signed for another image; `UnsignedError` if the keys signed nothing.
    """
    signed = [(envelope, key) for envelope in evidence if (key := envelope.envelope.find_signer(keys))]
    genuine = [envelope for envelope, _ in signed]
    for envelope in evidence:
        if envelope not in genuine and envelope.claimed_keys(keys):
            raise _tampered(envelope, genuine, keys)
    if not genuine:
        raise _unsigned(evidence, keys, image)
    statements = {
        found.envelope.payload: _read_signed(found, key, digest)
        for found, key in signed
        if found.envelope.payload_type == IN_TOTO
    }
    return tuple(statements.values())


def filter_verified(
    evidence: Iterable[CollectedEnvelope], keys: Sequence[VerifyingKey], *, digest: str
) -> Iterator[VerifiedStatement]:
    """Yield the statements that the keys signed about the manifest `digest`, and skip everything else."""
    for found in evidence:
        if found.envelope.payload_type == IN_TOTO and (key := found.envelope.find_signer(keys)):
            with suppress(TamperedError):
                yield _read_signed(found, key, digest)


def _read_signed(found: CollectedEnvelope, signer: VerifyingKey, digest: str) -> VerifiedStatement:
    try:
        document = read_statement(found.envelope.payload)
    except InvalidDocument as error:
        raise TamperedError(
            f"The signed evidence at {found.where} is not an in-toto statement: {error}.", next_step=DO_NOT_USE
        ) from None
    if digest not in document.digests:
        about = ", ".join(document.digests[:MAX_LISTED]) or "nothing with a SHA-256 digest"
        raise TamperedError(
            f"The evidence at {found.where} was signed for another image: it is about {about}, but attached to "
            f"{digest}.",
            next_step=DO_NOT_USE,
        )
    return VerifiedStatement(
        predicate_type=document.predicate_type,
        predicate=document.predicate,
        signer=signer.identifier,
        subjects=tuple(subject.name for subject in document.subject if subject.sha256 == digest),
        content=found.envelope.payload,
    )


def _tampered(
    found: CollectedEnvelope, genuine: Sequence[CollectedEnvelope], keys: Sequence[VerifyingKey]
) -> TamperedError:
    """Return the error for a forged signature; genuine evidence with the same half shows which half was changed."""
    signatures = {signature.sig for other in genuine for signature in other.envelope.signatures}
    if any(found.envelope.payload == other.envelope.payload for other in genuine):
        change = "its signature was replaced: the same content is attached elsewhere with the genuine signature"
    elif any(signature.sig in signatures for signature in found.envelope.signatures):
        change = "its content was changed: the signature belongs to other content, which is attached elsewhere"
    else:
        change = "its content or its signature was changed after it was signed"
    return TamperedError(
        f"The evidence at {found.where} claims the signature of {fingerprints(found.claimed_keys(keys))}, and that key "
        f"did not sign it: {change}.",
        next_step=DO_NOT_USE,
    )


def _unsigned(evidence: Sequence[CollectedEnvelope], keys: Sequence[VerifyingKey], image: str) -> UnsignedError:
    if not evidence:
        return UnsignedError(
            f"{image} has no evidence attached.",
            next_step="Publish it with `tfimg publish`, or ask its publisher for signed evidence.",
        )
    # Not verified: anyone who can write to the registry chooses these names.
    claimed = (key for found in evidence for key in found.envelope.signers if key)
    others = sorted({" ".join(to_plain_text(key).split())[:100] for key in claimed})
    by = f" ({list_first(others, MAX_LISTED)})" if others else ""
    return UnsignedError(
        f"{image} has evidence that another key signed{by}, and none that {fingerprints(keys)} signed.",
        next_step="Check which key its publisher uses, and name that with --public-key.",
    )
