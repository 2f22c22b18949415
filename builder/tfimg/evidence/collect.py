"""Everything that is attached to an image → envelopes, as they lie there. Nothing is believed yet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tfimg.errors import NotInRegistry, TamperedError
from tfimg.evidence.bundle import BUNDLE
from tfimg.evidence.cosign_tags import ATTESTATIONS, layers_under, tag_of
from tfimg.evidence.dsse import ENVELOPE, Envelope, opened
from tfimg.evidence.keys import VerifyingKey
from tfimg.registry.protocol import Descriptor, Registry

MOST_BYTES = 64 * 2**20
"""Of one document: the bill of materials of an image with 1,000 packages has half a megabyte."""


MAX_BUNDLES = 1000
"""Bundles that are read of one image. Five are attached when it is published, one for each move of its tags."""

PREDICATE_TYPE = "dev.sigstore.bundle.predicateType"
"""Annotation of a bundle's manifest, which a list of referrers repeats. Only a hint: it is not signed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """An envelope as it lies in the registry: `where`, in words, and `hint`, which is what its bundle calls the key."""

    where: str
    envelope: Envelope
    hint: str = ""

    def claimed(self, keys: Sequence[VerifyingKey]) -> tuple[VerifyingKey, ...]:
        """Those of the keys that it says it was signed by."""
        return tuple(key for key in keys if key.identifier in self.envelope.signers or key.hint == self.hint)


def collect(registry: Registry, digest: str) -> tuple[Found, ...]:
    """Bundles that refer to the image, then what is under cosign's tag that is not among them.

    Raises what the registry raises, and `TamperedError` for what cannot be read.
    """
    found: dict[Envelope, Found] = {}
    for one in (*_bundles(registry, digest), *_attestations(registry, digest)):
        found.setdefault(one.envelope, one)
    return tuple(found.values())


def collect_bundles(registry: Registry, digest: str, kinds: Sequence[str]) -> Iterator[Found]:
    """Yield the bundles of some predicate types, by their annotation, and those without one.

    What cannot be read is passed over. Raises what the registry raises.
    """
    referrers = [
        one for one in registry.referrers(digest) if one.annotations.get(PREDICATE_TYPE, kinds[0]) in kinds
    ]
    if len(referrers) > MAX_BUNDLES:
        raise _unreadable(
            f"{registry.repository}@{digest}", f"more than {MAX_BUNDLES} bundles are attached to it"
        )
    for referrer in referrers:
        with suppress(TamperedError, NotInRegistry):
            if found := _bundle(registry, referrer):
                yield found


def collect_attestations(registry: Registry, digest: str, kinds: Sequence[str]) -> Iterator[Found]:
    """Yield the envelopes of some predicate types under cosign's tag, as `collect_bundles` does."""
    tag = tag_of(digest, ATTESTATIONS)
    with suppress(TamperedError, NotInRegistry):
        for layer in layers_under(registry, tag):
            annotations = layer.get("annotations")
            kind = annotations.get("predicateType", kinds[0]) if isinstance(annotations, dict) else kinds[0]
            if kind in kinds:
                with suppress(TamperedError, NotInRegistry):
                    yield from _attestation(registry, layer, f"{registry.repository}:{tag}")


def _bundles(registry: Registry, digest: str) -> Iterator[Found]:
    return filter(None, (_bundle(registry, referrer) for referrer in registry.referrers(digest)))


def _bundle(registry: Registry, referrer: Descriptor) -> Found | None:
    if referrer.artifact_type not in (BUNDLE, None):  # lists that clients keep may lack the type
        return None
    where = f"{registry.repository}@{referrer.digest}"
    manifest = registry.find(referrer.digest)
    if manifest is None or manifest.digest != referrer.digest:
        raise _unreadable(where, "it is listed, and is not what the list says")
    try:
        document = manifest.document
        if document.get("artifactType") != BUNDLE:
            return None
        (layer,) = document["layers"]
        bundle = json.loads(_content(registry, layer, where))
        if bundle.get("dsseEnvelope") is None:
            return None  # a signature of the image's bytes says nothing of tests
        hint = bundle["verificationMaterial"].get("publicKey", {}).get("hint", "")
        envelope = _opened(json.dumps(bundle["dsseEnvelope"]).encode(), where)
        return Found(where=where, envelope=envelope, hint=str(hint))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(where, f"it is no bundle: {error}") from None


def _attestations(registry: Registry, digest: str) -> Iterator[Found]:
    tag = tag_of(digest, ATTESTATIONS)
    for layer in layers_under(registry, tag):
        yield from _attestation(registry, layer, f"{registry.repository}:{tag}")


def _attestation(registry: Registry, layer: dict[str, Any], where: str) -> Iterator[Found]:
    try:
        if layer["mediaType"] == ENVELOPE:
            yield Found(where=where, envelope=_opened(_content(registry, layer, where), where))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(where, f"it holds no envelope: {error}") from None


def _opened(content: bytes, where: str) -> Envelope:
    try:
        return opened(content)
    except TamperedError:
        raise _unreadable(where, "it is no envelope") from None


def _content(registry: Registry, layer: dict[str, Any], where: str) -> bytes:
    content = bytearray()
    for piece in registry.blob(layer["digest"]):
        content += piece
        if len(content) > MOST_BYTES:
            raise _unreadable(where, f"it has more than {MOST_BYTES >> 20} MiB")
    return bytes(content)


def _unreadable(where: str, why: str) -> TamperedError:
    return TamperedError(
        f"Evidence at {where} cannot be read: {why}.",
        next_step="Do not use the image until you know who changed its evidence.",
    )
