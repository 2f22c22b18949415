"""Envelopes → the statements that our keys signed about an image, or the error that says what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfimg.errors import TamperedError, UnsignedError
from tfimg.registry.collect import Envelope
from tfimg.registry.envelope import IN_TOTO
from tfimg.registry.keys import VerifyingKey, told
from tfimg.registry.statement import digests

DO_NOT_USE = "Do not use the image until you know who changed its evidence."


@dataclass(frozen=True, kw_only=True, slots=True)
class Genuine:
    """A statement that a key signed about the image."""

    predicate_type: str
    predicate: dict[str, Any]
    signer: str


def believe(
    envelopes: Sequence[Envelope], keys: Sequence[VerifyingKey], *, image: str, digest: str
) -> tuple[Genuine, ...]:
    """What the keys signed about the manifest `digest`; what others signed is passed over.

    Raises `TamperedError` for what says that one of the keys signed it, and did not, or signed it for another image;
    `UnsignedError` when nothing is left. `image` is what the messages call it.
    """
    signed = [(envelope, signers) for envelope in envelopes if (signers := envelope.signers(keys))]
    genuine = [envelope for envelope, _ in signed]
    for envelope in envelopes:
        if envelope not in genuine and envelope.claimed(keys):
            raise _tampered(envelope, genuine, keys)
    if not genuine:
        raise _unsigned(envelopes, keys, image)
    statements = {
        envelope.payload: _statement(envelope, signers[0], digest)
        for envelope, signers in signed
        if envelope.payload_type == IN_TOTO
    }
    return tuple(statements.values())


def _statement(envelope: Envelope, signer: VerifyingKey, digest: str) -> Genuine:
    try:
        document = json.loads(envelope.payload)
        subjects = [dict(one["digest"]) for one in document["subject"]]
        kind, predicate = str(document["predicateType"]), dict(document["predicate"])
    except (ValueError, KeyError, TypeError) as error:
        raise TamperedError(
            f"What is signed at {envelope.where} is no statement about an image: {error}.",
            next_step=DO_NOT_USE,
        ) from None
    if not any(one.items() >= digests(digest).items() for one in subjects):
        about = ", ".join(f"sha256:{one.get('sha256', '?')}" for one in subjects)
        raise TamperedError(
            f"The evidence at {envelope.where} was signed for another image: it is about {about}, and is attached to "
            f"{digest}.",
            next_step=DO_NOT_USE,
        )
    return Genuine(predicate_type=kind, predicate=predicate, signer=signer.identifier)


def _tampered(envelope: Envelope, genuine: Sequence[Envelope], keys: Sequence[VerifyingKey]) -> TamperedError:
    """Which half was changed shows where the other half is attached once more, as it was signed."""
    if any(envelope.payload == one.payload for one in genuine):
        what = "its signature was replaced: the same words are attached elsewhere with the true one"
    elif any(set(envelope.signatures) & set(one.signatures) for one in genuine):
        what = "its content was changed: the signature belongs to other words, which are attached elsewhere"
    else:
        what = "its content or its signature was changed after it was signed"
    named = told(envelope.claimed(keys))
    return TamperedError(
        f"The evidence at {envelope.where} says that {named} signed it, and that key did not sign this: {what}.",
        next_step=DO_NOT_USE,
    )


def _unsigned(envelopes: Sequence[Envelope], keys: Sequence[VerifyingKey], image: str) -> UnsignedError:
    if not envelopes:
        return UnsignedError(
            f"{image} has no evidence attached.",
            next_step="Publish it with `tfimg publish`, or ask its publisher for signed evidence.",
        )
    others = sorted({one.key for envelope in envelopes for one in envelope.signatures if one.key})
    by = f" by {', '.join(others)}" if others else ""
    return UnsignedError(
        f"{image} has evidence that another key signed{by}, and none that {told(keys)} signed.",
        next_step="Check whose key you were given, and name the publisher's with --key.",
    )
