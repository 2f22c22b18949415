"""sigstore bundles: a DSSE envelope with a hint at its key, in one form for one input."""

from __future__ import annotations

import json

from pydantic import Field

from tfimg.core.documents import Document
from tfimg.evidence.dsse import EnvelopeDocument, sealed
from tfimg.evidence.keys import SigningKey, VerifyingKey
from tfimg.evidence.statement import IN_TOTO, Statement, compact

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"


class _PublicKey(Document):
    hint: str = Field(default="", max_length=1024)


class _Material(Document):
    public_key: _PublicKey | None = Field(default=None, alias="publicKey")


class BundleDocument(Document):
    """A bundle from outside. One without an envelope holds a signature of bytes, which states nothing."""

    envelope: EnvelopeDocument | None = Field(default=None, alias="dsseEnvelope")
    material: _Material | None = Field(default=None, alias="verificationMaterial")

    @property
    def hint(self) -> str:
        """What the bundle calls its key; empty where it names none."""
        key = self.material.public_key if self.material else None
        return key.hint if key else ""


def seal(statement: Statement, key: SigningKey) -> bytes:
    """Sign a statement; return the envelope as JSON."""
    return sealed(statement.content, IN_TOTO, key)


def bundle(envelope: bytes, key: VerifyingKey) -> bytes:
    """Return a sigstore bundle 0.3 around an envelope: signed with a key, and in no transparency log."""
    material = {"publicKey": {"hint": key.hint}}
    return compact({"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": json.loads(envelope)})
