"""DSSE envelopes, and the sigstore bundles that contain them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import TamperedError
from tfimg.evidence.keys import SigningKey, VerifyingKey
from tfimg.evidence.statement import IN_TOTO, Statement, canonical_json

ENVELOPE_MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"
BUNDLE_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"

MAX_SIGNATURES = 16
"""Signatures of one envelope. Ours have one; each is checked with each trusted key."""

MAX_SIGNATURE = 16_384
"""Bytes of a signature, characters of a key identifier. ECDSA on P-256 has 72, ML-DSA-87 4,627."""


def _decode_base64(value: object) -> bytes:
    """Decode base64 of either alphabet (DSSE 1.0.2, protocol.md)."""
    try:
        if isinstance(value, str):
            return base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        pass
    raise ValueError("it is not base64")


Base64 = Annotated[bytes, BeforeValidator(_decode_base64)]


class _Signature(Document):
    keyid: Annotated[str, Field(max_length=MAX_SIGNATURE)] | None = None
    sig: Annotated[Base64, Field(max_length=MAX_SIGNATURE)]


class _EnvelopeDocument(Document):
    payload: Base64
    payload_type: str = Field(alias="payloadType", max_length=255)
    signatures: tuple[_Signature, ...] = Field(max_length=MAX_SIGNATURES)

    @property
    def envelope(self) -> Envelope:
        signatures = tuple((signature.keyid or "", signature.sig) for signature in self.signatures)
        return Envelope(payload=self.payload, payload_type=self.payload_type, signatures=signatures)


class _PublicKey(Document):
    hint: str = Field(default="", max_length=1024)


class _Material(Document):
    public_key: _PublicKey | None = Field(default=None, alias="publicKey")


class BundleDocument(Document):
    """A bundle from outside. Without an envelope it is a signature of bytes, which is not evidence."""

    document: _EnvelopeDocument | None = Field(default=None, alias="dsseEnvelope")
    material: _Material | None = Field(default=None, alias="verificationMaterial")

    @property
    def envelope(self) -> Envelope | None:
        """The decoded envelope."""
        return self.document.envelope if self.document else None

    @property
    def hint(self) -> str:
        """The bundle's name of its key; empty without one."""
        key = self.material.public_key if self.material else None
        return key.hint if key else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """A decoded envelope. `signatures` are pairs of the claimed key identifier and the signature."""

    payload: bytes
    payload_type: str
    signatures: tuple[tuple[str, bytes], ...]

    @property
    def signers(self) -> tuple[str, ...]:
        """The claimed identifiers of the signing keys; not verified, see `find_signer`."""
        return tuple(identifier for identifier, _ in self.signatures)

    def to_json(self) -> bytes:
        """Return the envelope as canonical JSON."""
        signatures = [
            {"keyid": identifier, "sig": base64.b64encode(signature).decode()}
            for identifier, signature in self.signatures
        ]
        payload = base64.b64encode(self.payload).decode()
        envelope = {"payload": payload, "payloadType": self.payload_type, "signatures": signatures}
        return json.dumps(envelope, sort_keys=True, separators=(",", ":")).encode()

    def find_signer(self, keys: Sequence[VerifyingKey]) -> VerifyingKey | None:
        """Return the first of these keys that signed it."""
        content = encode_for_signing(self.payload, self.payload_type)
        signatures = [signature for _, signature in self.signatures]
        return next((key for key in keys if any(key.has_signed(signature, content) for signature in signatures)), None)


def encode_for_signing(payload: bytes, payload_type: str) -> bytes:
    """Return the bytes that are signed: the pre-authentication encoding (DSSE 1.0.2, protocol.md)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign_envelope(payload: bytes, payload_type: str, key: SigningKey) -> bytes:
    """Sign bytes; return the envelope as JSON."""
    signature = key.sign(encode_for_signing(payload, payload_type))
    signatures = ((key.verifying_key.identifier, signature),)
    return Envelope(payload=payload, payload_type=payload_type, signatures=signatures).to_json()


def sign_statement(statement: Statement, key: SigningKey) -> bytes:
    """Sign a statement; return the envelope as JSON."""
    return sign_envelope(statement.content, IN_TOTO, key)


def parse_envelope(content: bytes) -> Envelope:
    """Return the envelope of a JSON document. Raises `TamperedError`."""
    try:
        return parse_document(_EnvelopeDocument, content).envelope
    except InvalidDocument as error:
        raise TamperedError(f"Invalid DSSE envelope: {error}.", next_step="Do not trust it.") from None


def make_bundle(envelope: bytes, key: VerifyingKey) -> bytes:
    """Return a sigstore bundle 0.3 around an envelope, signed with a key and in no transparency log."""
    material = {"publicKey": {"hint": key.hint}}
    document = {"mediaType": BUNDLE_MEDIA_TYPE, "verificationMaterial": material, "dsseEnvelope": json.loads(envelope)}
    return canonical_json(document)
