"""Everything that is attached to an image → envelopes, as they lie there. Nothing is believed yet."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfimg.errors import TamperedError
from tfimg.registry.cosign_tags import ATTESTATIONS, layers_under, tag_of
from tfimg.registry.envelope import BUNDLE, DSSE, what_is_signed
from tfimg.registry.keys import VerifyingKey
from tfimg.registry.protocol import Registry

MOST_BYTES = 64 * 2**20
"""Of one document: the bill of materials of an image with 1,000 packages has half a megabyte."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """A signature, and the name of the key that it says it is by; empty where it says nothing."""

    key: str
    content: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """A DSSE envelope. `where` it was read from, in words; `hint` is what its bundle calls the key."""

    where: str
    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]
    hint: str = ""

    def signers(self, keys: Sequence[VerifyingKey]) -> tuple[VerifyingKey, ...]:
        """Those of the keys that signed it."""
        signed = what_is_signed(self.payload_type, self.payload)
        return tuple(key for key in keys if any(key.fits(one.content, signed) for one in self.signatures))

    def claimed(self, keys: Sequence[VerifyingKey]) -> tuple[VerifyingKey, ...]:
        """Those of the keys that it says it was signed by."""
        named = {one.key for one in self.signatures}
        return tuple(key for key in keys if key.identifier in named or key.hint == self.hint)


def collect(registry: Registry, digest: str) -> tuple[Envelope, ...]:
    """Bundles that refer to the image, then what is under cosign's tag that is not among them.

    Raises what the registry raises, and `TamperedError` for what cannot be read.
    """
    found: dict[tuple[bytes, tuple[Signature, ...]], Envelope] = {}
    for envelope in (*_bundles(registry, digest), *_attestations(registry, digest)):
        found.setdefault((envelope.payload, envelope.signatures), envelope)
    return tuple(found.values())


def _bundles(registry: Registry, digest: str) -> Iterator[Envelope]:
    for referrer in registry.referrers(digest):
        if referrer.artifact_type not in (BUNDLE, None):  # lists that clients keep may lack the type
            continue
        where = f"{registry.repository}@{referrer.digest}"
        manifest = registry.find(referrer.digest)
        if manifest is None or manifest.digest != referrer.digest:
            raise _unreadable(where, "it is listed, and is not what the list says")
        try:
            document = manifest.document
            if document.get("artifactType") != BUNDLE:
                continue
            (layer,) = document["layers"]
            bundle = _document(registry, layer, where)
            if "dsseEnvelope" not in bundle:
                continue  # a signature of the image's bytes says nothing of tests
            hint = bundle["verificationMaterial"].get("publicKey", {}).get("hint", "")
            yield _envelope(bundle["dsseEnvelope"], where, hint)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(where, f"it is no bundle: {error}") from None


def _attestations(registry: Registry, digest: str) -> Iterator[Envelope]:
    tag = tag_of(digest, ATTESTATIONS)
    for layer in layers_under(registry, tag):
        where = f"{registry.repository}:{tag}"
        try:
            if layer["mediaType"] == DSSE:
                yield _envelope(_document(registry, layer, where), where, "")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(where, f"it holds no envelope: {error}") from None


def _document(registry: Registry, layer: dict[str, Any], where: str) -> dict[str, Any]:
    content = bytearray()
    for piece in registry.blob(layer["digest"]):
        content += piece
        if len(content) > MOST_BYTES:
            raise _unreadable(where, f"it has more than {MOST_BYTES >> 20} MiB")
    document = json.loads(content)
    if not isinstance(document, dict):
        raise TypeError("it is no JSON object")
    return document


def _envelope(document: dict[str, Any], where: str, hint: str) -> Envelope:
    signatures = tuple(
        Signature(key=str(one.get("keyid") or ""), content=_bytes(one["sig"]))
        for one in document["signatures"]
    )
    return Envelope(
        where=where, payload_type=str(document["payloadType"]), payload=_bytes(document["payload"]),
        signatures=signatures, hint=str(hint),
    )  # fmt: skip


def _bytes(text: str) -> bytes:
    # Either alphabet is right (DSSE v1, envelope.md).
    return base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)


def _unreadable(where: str, why: str) -> TamperedError:
    return TamperedError(
        f"Evidence at {where} cannot be read: {why}.",
        next_step="Do not use the image until you know who changed its evidence.",
    )
