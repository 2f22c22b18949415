"""Signed envelopes (DSSE) and statements (in-toto)."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, PlainSerializer, StringConstraints

from tfimg.attestations.keys import SigningKey, VerifyingKey
from tfimg.core.documents import Document, InvalidDocument, null_means, parse_document
from tfimg.core.errors import TamperedError, WrongClock
from tfimg.core.text import SET_CLOCK, canonical_json, to_strict_json

STATEMENT = "https://in-toto.io/Statement/v1"

IN_TOTO = "application/vnd.in-toto+json"
"""Media type of a statement (in-toto attestation framework, spec/v1/README.md), and payload type of its envelope."""

TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
PROVENANCE = "https://slsa.dev/provenance/v1"
CYCLONEDX = "https://cyclonedx.org/bom"
REPORT = "urn:tfimg:validation-report"
"""Of the validation report itself: its JSON, as images/report.schema.json describes it."""
PROMOTION = "urn:tfimg:promotion"
WITHDRAWAL = "urn:tfimg:withdrawal"

_NAMES = {
    TEST_RESULT: "test result",
    REPORT: "validation report",
    PROVENANCE: "SLSA provenance",
    CYCLONEDX: "CycloneDX bill of materials",
    PROMOTION: "promotion",
    WITHDRAWAL: "withdrawal",
}

MAX_SUBJECTS = 100  # subjects of one statement, and digests of one subject. Ours have one

EARLIEST, LATEST = datetime(2015, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
"""Bounds of a statement's times: from TensorFlow's first release, and far from the end of the calendar."""


def _require_text(value: object) -> object:
    if not isinstance(value, str | datetime):  # pydantic also takes seconds since 1970
        raise ValueError("it is not an RFC 3339 time")
    return value


Time = Annotated[
    AwareDatetime,
    BeforeValidator(_require_text),
    Field(ge=EARLIEST, lt=LATEST),
    AfterValidator(lambda time: time.astimezone(UTC)),
]
"""A time of a statement, in UTC."""


def require_time(time: datetime) -> datetime:
    """Return the time of a new statement, in UTC. Raises `WrongClock` for one that no reader accepts."""
    if not EARLIEST <= time < LATEST:
        raise WrongClock(
            f"A statement of {time.isoformat(timespec='seconds')} cannot be signed: its time must be from "
            f"{EARLIEST.year} to {LATEST.year - 1}.",
            next_step=SET_CLOCK,
        )
    return time.astimezone(UTC)


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """An image: the repository without its tag, and the manifest's digest, `sha256:…`."""

    name: str
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A statement's bytes, as they are signed, and its predicate type."""

    predicate_type: str
    content: bytes


class _SubjectDocument(Document):
    name: str = ""
    digest: dict[str, str] = Field(max_length=MAX_SUBJECTS)


class StatementDocument(Document):
    """A statement from outside. cosign 2 writes version 0.1 of the form, which has the same fields."""

    type: Literal["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"] = Field(alias="_type")
    subject: tuple[_SubjectDocument, ...] = Field(max_length=MAX_SUBJECTS)
    predicate_type: Annotated[str, StringConstraints(min_length=1, max_length=255)] = Field(alias="predicateType")
    predicate: dict[str, Any]

    @property
    def digests(self) -> tuple[str, ...]:
        """The SHA-256 digests of its subjects, `sha256:…`."""
        return tuple(f"sha256:{value}" for one in self.subject if (value := one.digest.get("sha256")))


def name_predicate(predicate_type: str) -> str:
    """Return a predicate type in words; one that is not known as it is."""
    return _NAMES.get(predicate_type, predicate_type)


def make_statement(subject: Subject, predicate_type: str, predicate: Mapping[str, Any]) -> Statement:
    """Return a statement: the same input gives the same bytes."""
    document = {
        "_type": STATEMENT,
        "subject": [{"name": subject.name, "digest": digest_set(subject.digest)}],
        "predicateType": predicate_type,
        "predicate": to_strict_json(predicate),
    }
    return Statement(predicate_type=predicate_type, content=canonical_json(document))


def digest_set(digest: str) -> dict[str, str]:
    """Return `sha256:…` as in-toto's digest set: the value by its algorithm."""
    algorithm, _, value = digest.partition(":")
    return {algorithm: value}


def format_time(time: datetime) -> str:
    """Return a time as RFC 3339 text in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


BUNDLE_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MAX_SIGNATURES = 16  # signatures of one envelope. Ours have one; each is checked with each trusted key
MAX_SIGNATURE = 16_384  # bytes of a signature, characters of a key identifier. ECDSA on P-256 has 72, ML-DSA-87 4,627


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
    """A sigstore bundle. Without an envelope it is a signature of bytes, which is no attestation."""

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


def sign_statement(statement: Statement, key: SigningKey, payload_type: str = IN_TOTO) -> bytes:
    """Return the envelope of a statement in JSON."""
    payload = statement.content
    signature = Signature(keyid=key.verifying_key.identifier, sig=key.sign(encode_for_signing(payload, payload_type)))
    return Envelope(payload=payload, payloadType=payload_type, signatures=(signature,)).to_json()


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
