"""Statements that trusted keys signed about an image, and errors for forged ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import TamperedError, UnsignedError
from tfimg.core.text import to_plain_text
from tfimg.evidence.collect import CollectedEnvelope
from tfimg.evidence.keys import VerifyingKey, fingerprints
from tfimg.evidence.statement import IN_TOTO, read_statement
from tfimg.registry.protocol import digest_of

DO_NOT_USE = "Do not use the image until you know who changed its evidence."

MAX_LISTED = 5
"""Keys that a message names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifiedStatement:
    """A statement about the image that a trusted key signed; `signer` is the key's fingerprint.

    `subjects` are the names that the statement gives the image: repositories. `content` is what was signed.
    """

    predicate_type: str
    predicate: dict[str, Any]
    signer: str
    subjects: tuple[str, ...]
    content: bytes

    @property
    def statement(self) -> str:
        """Return the SHA-256 of what was signed, by which other statements name this one."""
        return digest_of(self.content)


def verify_signatures(
    evidence: Sequence[CollectedEnvelope], keys: Sequence[VerifyingKey], *, image: str, digest: str
) -> tuple[VerifiedStatement, ...]:
    """Return the statements that the keys signed about the manifest `digest`, each once; others' are left out.

    `image` is its name in messages. Raises `TamperedError` for evidence that claims one of the keys and was not signed
    by it, or was signed for another image; `UnsignedError` when the keys signed nothing.
    """
    signed = [(one, key) for one in evidence if (key := one.envelope.find_signer(keys))]
    genuine = [one for one, _ in signed]
    for one in evidence:
        if one not in genuine and one.claimed(keys):
            raise _tampered(one, genuine, keys)
    if not genuine:
        raise _unsigned(evidence, keys, image)
    statements = {
        one.envelope.payload: _statement(one, key, digest)
        for one, key in signed
        if one.envelope.payload_type == IN_TOTO
    }
    return tuple(statements.values())


def filter_verified(
    evidence: Iterable[CollectedEnvelope], keys: Sequence[VerifyingKey], *, digest: str
) -> Iterator[VerifiedStatement]:
    """Yield the statements that the keys signed about the manifest `digest`, and pass over everything else."""
    for one in evidence:
        if one.envelope.payload_type == IN_TOTO and (key := one.envelope.find_signer(keys)):
            with suppress(TamperedError):
                yield _statement(one, key, digest)


def _statement(one: CollectedEnvelope, signer: VerifyingKey, digest: str) -> VerifiedStatement:
    try:
        document = read_statement(one.envelope.payload)
    except InvalidDocument as error:
        raise TamperedError(
            f"The signed evidence at {one.where} is not an in-toto statement: {error}.", next_step=DO_NOT_USE
        ) from None
    if digest not in document.digests:
        about = ", ".join(document.digests[:MAX_LISTED]) or "nothing with a SHA-256 digest"
        raise TamperedError(
            f"The evidence at {one.where} was signed for another image: it is about {about}, and is attached to "
            f"{digest}.",
            next_step=DO_NOT_USE,
        )
    names = tuple(subject.name for subject in document.subject if subject.sha256 == digest)
    return VerifiedStatement(
        predicate_type=document.predicate_type,
        predicate=document.predicate,
        signer=signer.identifier,
        subjects=names,
        content=one.envelope.payload,
    )


def _tampered(
    one: CollectedEnvelope, genuine: Sequence[CollectedEnvelope], keys: Sequence[VerifyingKey]
) -> TamperedError:
    """Tell which half was changed, where the other half is attached once more as it was signed."""
    signatures = {signature for other in genuine for _, signature in other.envelope.signatures}
    if any(one.envelope.payload == other.envelope.payload for other in genuine):
        what = "its signature was replaced: the same content is attached elsewhere with the genuine signature"
    elif any(signature in signatures for _, signature in one.envelope.signatures):
        what = "its content was changed: the signature belongs to other content, which is attached elsewhere"
    else:
        what = "its content or its signature was changed after it was signed"
    return TamperedError(
        f"The evidence at {one.where} claims the signature of {fingerprints(one.claimed(keys))}, and that key did not "
        f"sign it: {what}.",
        next_step=DO_NOT_USE,
    )


def _unsigned(evidence: Sequence[CollectedEnvelope], keys: Sequence[VerifyingKey], image: str) -> UnsignedError:
    if not evidence:
        return UnsignedError(
            f"{image} has no evidence attached.",
            next_step="Publish it with `tfimg publish`, or ask its publisher for signed evidence.",
        )
    # Not verified: anyone who can write to the registry chooses these names.
    others = sorted(
        {" ".join(to_plain_text(key).split())[:100] for one in evidence for key in one.envelope.signers if key}
    )
    more = f" and {len(others) - MAX_LISTED} more" if len(others) > MAX_LISTED else ""
    by = f" ({', '.join(others[:MAX_LISTED])}{more})" if others else ""
    return UnsignedError(
        f"{image} has evidence that another key signed{by}, and none that {fingerprints(keys)} signed.",
        next_step="Check which key its publisher uses, and name that with --public-key.",
    )
