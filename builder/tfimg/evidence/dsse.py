"""DSSE envelopes, and the sigstore bundles that contain them."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import TamperedError
from tfimg.core.text import canonical_json
from tfimg.evidence.keys import SigningKey, VerifyingKey
from tfimg.evidence.statement import IN_TOTO, Statement
from tfimg.registry.documents import null_means

BUNDLE_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"

MAX_SIGNATURES = 16
"""Signatures of one envelope. Ours have one; each is checked with each trusted key."""

MAX_SIGNATURE = 16_384
"""Bytes of a signature, characters of a key identifier. ECDSA on P-256 has 72, ML-DSA-87 4,627."""


def _decode_base64(value: object) -> bytes:
    """Decode base64 of either alphabet (DSSE 1.0.2, protocol.md); bytes are decoded already."""
    if isinstance(value, bytes):
        return value
    try:
        if isinstance(value, str):
            return base64.b64decode(value.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        pass
    raise ValueError("it is not base64")


Base64 = Annotated[
    bytes, BeforeValidator(_decode_base64), PlainSerializer(lambda content: base64.b64encode(content).decode())
]


class Signature(Document):
    """A signature with the claimed identifier of its key."""

    keyid: Annotated[str, null_means(""), Field(max_length=MAX_SIGNATURE)] = ""
    sig: Annotated[Base64, Field(max_length=MAX_SIGNATURE)]


class Envelope(Document):
    """A DSSE envelope, decoded."""

    payload: Base64
    payload_type: str = Field(alias="payloadType", max_length=255)
    signatures: tuple[Signature, ...] = Field(max_length=MAX_SIGNATURES)

    @property
    def signers(self) -> tuple[str, ...]:
        """The claimed identifiers of the signing keys; not verified, see `find_signer`."""
        return tuple(signature.keyid for signature in self.signatures)

    def to_json(self) -> bytes:
        """Return the envelope as canonical JSON."""
        return canonical_json(self.model_dump(by_alias=True))

    def find_signer(self, keys: Sequence[VerifyingKey]) -> VerifyingKey | None:
        """Return the first of these keys that signed it."""
        content = encode_for_signing(self.payload, self.payload_type)
        return next((key for key in keys for one in self.signatures if key.has_signed(one.sig, content)), None)


class _PublicKey(Document):
    hint: str = Field(default="", max_length=1024)


class _Material(Document):
    public_key: _PublicKey | None = Field(default=None, alias="publicKey")


class Bundle(Document):
    """A sigstore bundle. Without an envelope it is a signature of bytes, which is not evidence."""

    envelope: Envelope | None = Field(default=None, alias="dsseEnvelope")
    material: _Material | None = Field(default=None, alias="verificationMaterial")

    @property
    def hint(self) -> str:
        """The bundle's name of its key; empty without one."""
        key = self.material.public_key if self.material else None
        return key.hint if key else ""


def encode_for_signing(payload: bytes, payload_type: str) -> bytes:
    """Return the bytes that are signed: the pre-authentication encoding (DSSE 1.0.2, protocol.md)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign_envelope(payload: bytes, payload_type: str, key: SigningKey) -> bytes:
    """Sign bytes; return the envelope as JSON."""
    signature = Signature(keyid=key.verifying_key.identifier, sig=key.sign(encode_for_signing(payload, payload_type)))
    return Envelope(payload=payload, payloadType=payload_type, signatures=(signature,)).to_json()


def sign_statement(statement: Statement, key: SigningKey) -> bytes:
    """Sign a statement; return the envelope as JSON."""
    return sign_envelope(statement.content, IN_TOTO, key)


def parse_envelope(content: bytes) -> Envelope:
    """Return the envelope of a JSON document. Raises `TamperedError`."""
    try:
        return parse_document(Envelope, content)
    except InvalidDocument as error:
        raise TamperedError(f"Invalid DSSE envelope: {error}.", next_step="Do not trust it.") from None


def make_bundle(envelope: bytes, key: VerifyingKey) -> bytes:
    """Return a sigstore bundle 0.3 around an envelope, signed with a key and in no transparency log."""
    material = {"publicKey": {"hint": key.hint}}
    document = {"mediaType": BUNDLE_MEDIA_TYPE, "verificationMaterial": material, "dsseEnvelope": json.loads(envelope)}
    return canonical_json(document)
