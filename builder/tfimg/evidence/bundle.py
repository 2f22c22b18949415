"""Statement → DSSE envelope → sigstore bundle, in one form for one input."""

from __future__ import annotations

import json

from tfimg.evidence.dsse import sealed
from tfimg.evidence.keys import SigningKey, VerifyingKey
from tfimg.evidence.statement import Statement, compact

IN_TOTO = "application/vnd.in-toto+json"
"""Payload type of statements."""

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


def seal(statement: Statement, key: SigningKey) -> bytes:
    """A statement in an envelope."""
    return sealed(statement.content, IN_TOTO, key)


def bundle(envelope: bytes, key: VerifyingKey) -> bytes:
    """A sigstore bundle 0.3 around an envelope: signed with a key, and in no transparency log."""
    material = {"publicKey": {"hint": key.hint}}
    return compact(
        {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": json.loads(envelope)}
    )
