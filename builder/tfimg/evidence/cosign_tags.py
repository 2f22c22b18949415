"""The tags in which cosign 2 keeps an image's evidence: `sha256-….att` and `sha256-….sig`.

Each is a manifest with a layer for every envelope or signature (cosign, SIGNATURE_SPEC.md, ATTESTATION_SPEC.md). Layers
of other programs are kept.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from tfimg.core.documents import Document, InvalidDocument, validate
from tfimg.core.errors import TagConflict, TamperedError
from tfimg.evidence.dsse import ENVELOPE_MEDIA_TYPE
from tfimg.evidence.keys import SigningKey
from tfimg.evidence.statement import canonical_json
from tfimg.registry.protocol import (
    MAX_LAYERS,
    OCI_CONFIG,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    Registry,
    digest_of,
)

ATTESTATION_SUFFIX, SIGNATURE_SUFFIX = "att", "sig"

SIGNATURE = "dev.cosignproject.cosign/signature"
SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"

ATTEMPTS = 5
"""Other publishers may write the tag at the same time: a registry has no conditional write."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CosignLayer:
    """A layer of such a manifest with its bytes."""

    descriptor: Descriptor
    content: bytes


class _Layers(Document):
    layers: tuple[Descriptor, ...] = Field(max_length=MAX_LAYERS)


def cosign_tag(digest: str, suffix: str) -> str:
    """Return `sha256-….att` for an image's digest."""
    return f"{digest.replace(':', '-')}.{suffix}"


def make_attestation_layer(envelope: bytes, predicate_type: str) -> CosignLayer:
    """Return an envelope as a layer; the signature is inside the envelope, and its annotation is empty."""
    return _make_layer(envelope, ENVELOPE_MEDIA_TYPE, {SIGNATURE: "", "predicateType": predicate_type})


def make_signature_layer(repository: str, digest: str, key: SigningKey) -> CosignLayer:
    """Return the signature of the image itself, over its description in the format of simple signing."""
    critical = {
        "identity": {"docker-reference": repository},
        "image": {"docker-manifest-digest": digest},
        "type": "cosign container image signature",
    }
    payload = canonical_json({"critical": critical, "optional": None})
    return _make_layer(payload, SIMPLE_SIGNING, {SIGNATURE: base64.b64encode(key.sign(payload)).decode()})


def add_layers(registry: Registry, digest: str, suffix: str, layers: Sequence[CosignLayer]) -> None:
    """Add layers to those under an image's tag until they stay there.

    Raises `TagConflict` if other publishers keep writing, `TamperedError` for other content under the tag.
    """
    tag = cosign_tag(digest, suffix)
    for _ in range(ATTEMPTS):
        present = read_layers(registry, tag)
        missing = [layer for layer in layers if layer.descriptor.to_document() not in present]
        if not missing:
            return
        for layer in missing:
            registry.put_blob(layer.content)
        try:
            _put(registry, tag, [*present, *(layer.descriptor.to_document() for layer in missing)])
        except TagConflict:
            continue  # the other publisher may have left our layers out: read it again
    raise TagConflict(
        f"Another publisher keeps overwriting {registry.repository}:{tag}: after {ATTEMPTS} attempts our evidence is "
        "not there.",
        next_step="Try again when the other publisher has finished.",
    )


def read_layers(registry: Registry, tag: str) -> list[dict[str, Any]]:
    """Return the layers under such a tag as they are written, each a valid `Descriptor`; empty without the tag.

    Raises `TamperedError` for anything but a manifest of such layers.
    """
    manifest = registry.find(tag)
    if manifest is None:
        return []
    try:
        document = manifest.document
        validate(_Layers, document)
    except InvalidDocument as error:
        raise TamperedError(
            f"{registry.repository}:{tag} is not a manifest of cosign's evidence: {error}.",
            next_step="Find out who wrote it; delete the tag if it is not needed.",
        ) from None
    return list(document["layers"])


def _put(registry: Registry, tag: str, layers: list[dict[str, Any]]) -> None:
    rootfs = {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}
    config = canonical_json({"architecture": "", "config": {}, "os": "", "rootfs": rootfs})
    registry.put_blob(config)
    descriptor = Descriptor(media_type=OCI_CONFIG, digest=digest_of(config), size=len(config))
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": descriptor.to_document(),
        "layers": layers,
    }
    registry.put(tag, Manifest(media_type=OCI_MANIFEST, content=canonical_json(document)))


def _make_layer(content: bytes, media_type: str, annotations: dict[str, str]) -> CosignLayer:
    descriptor = Descriptor(
        media_type=media_type, digest=digest_of(content), size=len(content), annotations=annotations
    )
    return CosignLayer(descriptor=descriptor, content=content)
