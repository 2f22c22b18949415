"""Envelopes → the statements that our keys signed about an image, or the error that says what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tfimg.errors import TamperedError, UnsignedError
from tfimg.evidence.bundle import IN_TOTO
from tfimg.evidence.collect import Found
from tfimg.evidence.keys import VerifyingKey, told
from tfimg.evidence.statement import digests
from tfimg.registry.protocol import digest_of
from tfimg.validation.text import plain

DO_NOT_USE = "Do not use the image until you know who changed its evidence."


@dataclass(frozen=True, kw_only=True, slots=True)
class Genuine:
    """A statement that a key signed about the image; `statement` is the SHA-256 of its payload."""

    predicate_type: str
    predicate: dict[str, Any]
    signer: str
    statement: str


def believe(
    evidence: Sequence[Found], keys: Sequence[VerifyingKey], *, image: str, digest: str
) -> tuple[Genuine, ...]:
    """What the keys signed about the manifest `digest`; what others signed is passed over.

    Raises `TamperedError` for what says that one of the keys signed it, and did not, or signed it for another image;
    `UnsignedError` when nothing is left. `image` is what the messages call it.
    """
    signed = [(one, key) for one in evidence if (key := one.envelope.signed_by(keys))]
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


def genuine_among(
    evidence: Iterable[Found], keys: Sequence[VerifyingKey], *, digest: str
) -> Iterator[Genuine]:
    """Yield the statements that the keys signed about the manifest `digest`, and pass over everything else."""
    for one in evidence:
        if one.envelope.payload_type == IN_TOTO and (key := one.envelope.signed_by(keys)):
            with suppress(TamperedError):
                yield _statement(one, key, digest)


def _statement(one: Found, signer: VerifyingKey, digest: str) -> Genuine:
    try:
        document = json.loads(one.envelope.payload)
        subjects = [dict(subject["digest"]) for subject in document["subject"]]
        kind, predicate = str(document["predicateType"]), dict(document["predicate"])
    except (ValueError, KeyError, TypeError) as error:
        raise TamperedError(
            f"What is signed at {one.where} is no statement about an image: {error}.", next_step=DO_NOT_USE
        ) from None
    if not any(subject.items() >= digests(digest).items() for subject in subjects):
        about = ", ".join(f"sha256:{subject.get('sha256', '?')}" for subject in subjects) or "nothing"
        raise TamperedError(
            f"The evidence at {one.where} was signed for another image: it is about {about}, and is attached to "
            f"{digest}.",
            next_step=DO_NOT_USE,
        )
    return Genuine(
        predicate_type=kind,
        predicate=predicate,
        signer=signer.identifier,
        statement=digest_of(one.envelope.payload),
    )


def _tampered(one: Found, genuine: Sequence[Found], keys: Sequence[VerifyingKey]) -> TamperedError:
    """Which half was changed shows where the other half is attached once more, as it was signed."""
    signatures = {signature for other in genuine for _, signature in other.envelope.signatures}
    if any(one.envelope.payload == other.envelope.payload for other in genuine):
        what = "its signature was replaced: the same words are attached elsewhere with the true one"
    elif any(signature in signatures for _, signature in one.envelope.signatures):
        what = "its content was changed: the signature belongs to other words, which are attached elsewhere"
    else:
        what = "its content or its signature was changed after it was signed"
    return TamperedError(
        f"The evidence at {one.where} says that {told(one.claimed(keys))} signed it, and that key did not sign this: "
        f"{what}.",
        next_step=DO_NOT_USE,
    )


def _unsigned(evidence: Sequence[Found], keys: Sequence[VerifyingKey], image: str) -> UnsignedError:
    if not evidence:
        return UnsignedError(
            f"{image} has no evidence attached.",
            next_step="Publish it with `tfimg publish`, or ask its publisher for signed evidence.",
        )
    # Anybody may have written these, and anything.
    others = sorted({" ".join(plain(key).split()) for one in evidence for key in one.envelope.signers if key})
    by = f" ({', '.join(others)})" if others else ""
    return UnsignedError(
        f"{image} has evidence that another key signed{by}, and none that {told(keys)} signed.",
        next_step="Check whose key you were given, and name the publisher's with --key.",
    )
