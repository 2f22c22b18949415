"""Statement → DSSE envelope, and what holds one: a sigstore bundle.

The envelope's two fields that matter are signed in one piece, so that neither can be taken for the other
(DSSE v1, protocol.md). securesystemslib reads what is written here; it cannot write it, see `tfimg.registry.keys`.
"""

from __future__ import annotations

import base64
from typing import Any

from tfimg.registry.keys import SigningKey, VerifyingKey
from tfimg.registry.statement import Statement, compact

IN_TOTO = "application/vnd.in-toto+json"
"""Payload type of statements."""

DSSE = "application/vnd.dsse.envelope.v1+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


def what_is_signed(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %b %d %b" % (len(payload_type), payload_type.encode(), len(payload), payload)


def seal(statement: Statement, key: SigningKey) -> dict[str, Any]:
    """The envelope's document: the same statement and key give the same one."""
    signature = key.sign(what_is_signed(IN_TOTO, statement.content))
    return {
        "payloadType": IN_TOTO,
        "payload": base64.b64encode(statement.content).decode(),
        "signatures": [{"keyid": key.verifying.identifier, "sig": base64.b64encode(signature).decode()}],
    }


def bundle(envelope: dict[str, Any], key: VerifyingKey) -> bytes:
    """A sigstore bundle 0.3 around an envelope: signed with a key, and in no transparency log."""
    material = {"publicKey": {"hint": key.hint}}
    return compact({"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope})
