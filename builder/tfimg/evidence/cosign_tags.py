"""The tags in which cosign 2 keeps an image's evidence: `sha256-….att` and `sha256-….sig`.

Each is a manifest with a layer for every envelope or signature (cosign, SIGNATURE_SPEC.md, ATTESTATION_SPEC.md). Layers
of other programs are kept.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from tfimg.core.documents import Document, InvalidDocument, validate
from tfimg.core.errors import TagConflict, TamperedError
from tfimg.core.text import canonical_json
from tfimg.evidence.dsse import ENVELOPE_MEDIA_TYPE
from tfimg.evidence.keys import SigningKey
from tfimg.registry.protocol import MAX_LAYERS, OCI_CONFIG, Descriptor, Reader, Registry, describe_blob, make_manifest

ATTESTATION_SUFFIX, SIGNATURE_SUFFIX = "att", "sig"

SIGNATURE = "dev.cosignproject.cosign/signature"
SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"

ATTEMPTS = 5
"""Other publishers may write the tag at the same time: a registry has no conditional write."""


CosignLayer = tuple[Descriptor, bytes]
"""A layer of such a manifest, and its bytes."""


class _Layers(Document):
    layers: tuple[Descriptor, ...] = Field(max_length=MAX_LAYERS)


def cosign_tag(digest: str, suffix: str) -> str:
    """Return `sha256-….att` for an image's digest."""
    return f"{digest.replace(':', '-')}.{suffix}"


def make_attestation_layer(envelope: bytes, predicate_type: str) -> CosignLayer:
    """Return an envelope as a layer; the signature is inside the envelope, and its annotation is empty."""
    annotations = {SIGNATURE: "", "predicateType": predicate_type}
    return describe_blob(envelope, ENVELOPE_MEDIA_TYPE, annotations), envelope


def make_signature_layer(repository: str, digest: str, key: SigningKey) -> CosignLayer:
    """Return the signature of the image itself, over its description in the format of simple signing."""
    critical = {
        "identity": {"docker-reference": repository},
        "image": {"docker-manifest-digest": digest},
        "type": "cosign container image signature",
    }
    payload = canonical_json({"critical": critical, "optional": None})
    annotations = {SIGNATURE: base64.b64encode(key.sign(payload)).decode()}
    return describe_blob(payload, SIMPLE_SIGNING, annotations), payload


def add_layers(registry: Registry, digest: str, suffix: str, layers: Sequence[CosignLayer]) -> None:
    """Add layers to those under an image's tag until they stay there.

    Raises `TagConflict` if other publishers keep writing, `TamperedError` for other content under the tag.
    """
    tag = cosign_tag(digest, suffix)
    new = [(descriptor.to_document(), content) for descriptor, content in layers]
    for _ in range(ATTEMPTS):
        present = read_layers(registry, tag)
        missing = [(document, content) for document, content in new if document not in present]
        if not missing:
            return
        written = [*present, *(document for document, _ in missing)]
        rootfs = {"type": "layers", "diff_ids": [layer["digest"] for layer in written]}
        config = canonical_json({"architecture": "", "config": {}, "os": "", "rootfs": rootfs})
        for content in (*(content for _, content in missing), config):
            registry.put_blob(content)
        try:
            registry.put(tag, make_manifest(describe_blob(config, OCI_CONFIG), written))
        except TagConflict:
            continue  # the other publisher may have left our layers out: read it again
    raise TagConflict(
        f"Another publisher keeps overwriting {registry.repository}:{tag}: after {ATTEMPTS} attempts the evidence of "
        "this run is still missing.",
        next_step="Try again when the other publisher has finished.",
    )


def read_layers(registry: Reader, tag: str) -> list[dict[str, Any]]:
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
