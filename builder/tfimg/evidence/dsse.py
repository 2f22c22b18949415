"""Signed bytes in DSSE's envelope: what was signed, what kind of thing it is, and by whom."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

from tfimg.errors import TamperedError
from tfimg.evidence.keys import SigningKey, VerifyingKey

ENVELOPE = "application/vnd.dsse.envelope.v1+json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """An envelope that was opened. `signatures` are pairs of the key's identifier, as it says, and the signature."""

    payload: bytes
    payload_type: str
    signatures: tuple[tuple[str, bytes], ...]

    @property
    def signers(self) -> tuple[str, ...]:
        """Identifiers of the keys that it says it is signed by. It may lie: see `signed_by`."""
        return tuple(identifier for identifier, _ in self.signatures)

    def to_json(self) -> bytes:
        """Return the envelope's JSON, in one form only."""
        envelope = {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": self.payload_type,
            "signatures": [
                {"keyid": identifier, "sig": base64.b64encode(signature).decode()}
                for identifier, signature in self.signatures
            ],
        }
        return json.dumps(envelope, sort_keys=True, separators=(",", ":")).encode()

    def signed_by(self, keys: Sequence[VerifyingKey]) -> VerifyingKey | None:
        """The first of these keys that signed it."""
        content = authenticated(self.payload, self.payload_type)
        return next(
            (key for key in keys for _, signature in self.signatures if key.fits(signature, content)), None
        )


def authenticated(payload: bytes, payload_type: str) -> bytes:
    """What is signed in the payload's stead: its pre-authentication encoding (DSSE 1.0.2, protocol.md)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sealed(payload: bytes, payload_type: str, key: SigningKey) -> bytes:
    """Sign bytes: the envelope as JSON."""
    signature = key.sign(authenticated(payload, payload_type))
    envelope = Envelope(
        payload=payload, payload_type=payload_type, signatures=((key.verifying.identifier, signature),)
    )
    return envelope.to_json()


def opened(content: bytes) -> Envelope:
    """An envelope's JSON → the envelope. Raises `TamperedError` for bytes that are none."""
    try:
        told = json.loads(content)
        str(told["payloadType"]).encode()  # JSON has texts that are none, and no signature is over those
        return Envelope(
            payload=base64.b64decode(told["payload"]),
            payload_type=str(told["payloadType"]),
            signatures=tuple(
                (str(one.get("keyid", "")), base64.b64decode(one["sig"])) for one in told["signatures"]
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TamperedError(
            "What should be a signed envelope is none.", next_step="Do not trust it."
        ) from None
