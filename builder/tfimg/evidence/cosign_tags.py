"""The tags beside an image in which cosign 2 keeps evidence: `sha256-….att` and `sha256-….sig`.

One manifest under each tag, a layer for each envelope or signature (cosign, SIGNATURE_SPEC.md, ATTESTATION_SPEC.md).
What others have put there stays.
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
"""What the tags end in."""

SIGNATURE = "dev.cosignproject.cosign/signature"
SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"

ATTEMPTS = 5
"""Others may write the same tag at the same time: a registry compares nothing before it writes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CosignLayer:
    """A layer of such a manifest, and its bytes."""

    descriptor: Descriptor
    content: bytes


class _Layers(Document):
    layers: tuple[Descriptor, ...] = Field(max_length=MAX_LAYERS)


def cosign_tag(digest: str, ending: str) -> str:
    """`sha256-….att` of an image's digest."""
    return f"{digest.replace(':', '-')}.{ending}"


def make_attestation_layer(envelope: bytes, predicate_type: str) -> CosignLayer:
    """An envelope as a layer; its signature is inside, and the annotation empty."""
    return _layer(envelope, ENVELOPE_MEDIA_TYPE, {SIGNATURE: "", "predicateType": predicate_type})


def make_signature_layer(repository: str, digest: str, key: SigningKey) -> CosignLayer:
    """The image's own signature, over what containers' simple signing says of it."""
    payload = canonical_json(
        {
            "critical": {
                "identity": {"docker-reference": repository},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": None,
        }
    )
    return _layer(payload, SIMPLE_SIGNING, {SIGNATURE: base64.b64encode(key.sign(payload)).decode()})


def add_layers(registry: Registry, digest: str, ending: str, layers: Sequence[CosignLayer]) -> str:
    """Put layers under an image's tag beside those that are there, and see them there. Returns the tag.

    Raises `TagConflict` where others write all the time, `TamperedError` where something else is under the tag.
    """
    tag = cosign_tag(digest, ending)
    for _ in range(ATTEMPTS):
        present = read_layers(registry, tag)
        missing = [one for one in layers if one.descriptor.to_document() not in present]
        if not missing:
            return tag
        for layer in missing:
            registry.put_blob(layer.content)
        try:
            _put(registry, tag, [*present, *(one.descriptor.to_document() for one in missing)])
        except TagConflict:
            continue  # the other writer may have left our layers out: read it again
    raise TagConflict(
        f"Another publisher keeps overwriting {registry.repository}:{tag}: after {ATTEMPTS} attempts our evidence is "
        "not there.",
        next_step="Try again when the other publisher has finished.",
    )


def read_layers(registry: Registry, tag: str) -> list[dict[str, Any]]:
    """Return the layers of the manifest under such a tag as they are written; empty where there is no such tag.

    Each is a valid `Descriptor`. Raises `TamperedError` for anything but a manifest of such layers.
    """
    found = registry.find(tag)
    if found is None:
        return []
    try:
        document = found.document
        validate(_Layers, document)
    except InvalidDocument as error:
        raise TamperedError(
            f"{registry.repository}:{tag} is not a manifest of cosign's evidence: {error}.",
            next_step="Find out who wrote it; remove the tag if it is of no use.",
        ) from None
    return list(document["layers"])


def _put(registry: Registry, tag: str, layers: list[dict[str, Any]]) -> None:
    config = canonical_json(
        {
            "architecture": "",
            "config": {},
            "os": "",
            "rootfs": {"type": "layers", "diff_ids": [one["digest"] for one in layers]},
        }
    )
    registry.put_blob(config)
    described = Descriptor(media_type=OCI_CONFIG, digest=digest_of(config), size=len(config))
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": described.to_document(),
        "layers": layers,
    }
    registry.put(tag, Manifest(media_type=OCI_MANIFEST, content=canonical_json(document)))


def _layer(content: bytes, media_type: str, annotations: dict[str, str]) -> CosignLayer:
    described = Descriptor(media_type=media_type, digest=digest_of(content), size=len(content), annotations=annotations)
    return CosignLayer(descriptor=described, content=content)
