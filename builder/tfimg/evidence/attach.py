"""Statements, signed → beside the image in its registry, where cosign, oras and `tfimg verify` find them.

Each statement lies there twice: as a sigstore bundle that refers to the image (cosign 3, oras, and we), and in the tag
that cosign 2 looks at. Everything has one form for one input, so that doing it again sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfimg.evidence.collect import PREDICATE_TYPE, collect_envelopes
from tfimg.evidence.cosign_tags import (
    ATTESTATION_SUFFIX,
    SIGNATURE_SUFFIX,
    add_layers,
    make_attestation_layer,
    make_signature_layer,
)
from tfimg.evidence.dsse import BUNDLE_MEDIA_TYPE, make_bundle, sign_statement
from tfimg.evidence.keys import SigningKey
from tfimg.evidence.signatures import verify_signatures
from tfimg.evidence.statement import Statement, canonical_json
from tfimg.registry.protocol import (
    EMPTY,
    OCI_MANIFEST,
    Descriptor,
    Manifest,
    Registry,
    digest_of,
    require_manifest,
)

NOTHING = b"{}"
"""What stands where an artifact has no configuration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachment:
    """What is there now: manifests that refer to the image, tags that cosign looks at, the signer's fingerprint."""

    referrers: tuple[Descriptor, ...]
    tags: tuple[str, ...]
    signer: str


def attach(registry: Registry, digest: str, statements: Sequence[Statement], *, key: SigningKey) -> Attachment:
    """Sign statements about the manifest `digest` and put them beside it; what is there already is not sent again.

    Each as a sigstore bundle that refers to the image, all in cosign's `sha256-….att`, and the image's own signature in
    `sha256-….sig`. Interrupted, it is simply called again. Raises what the registry raises, and `NotInRegistry` where
    there is no such manifest.
    """
    subject = require_manifest(registry, digest, next_step="Push the image first.").descriptor
    known = {one.digest: one for one in registry.list_referrers(digest)}
    envelopes = [(one, sign_statement(one, key)) for one in statements]
    layers = [make_attestation_layer(envelope, one.predicate_type) for one, envelope in envelopes]
    signed = make_signature_layer(registry.repository, digest, key)

    def tagged() -> tuple[str, str]:
        return add_layers(registry, digest, ATTESTATION_SUFFIX, layers), add_layers(
            registry, digest, SIGNATURE_SUFFIX, [signed]
        )

    tagged()
    referrers = tuple(
        _refer(registry, one, make_bundle(envelope, key.verifying_key), subject=subject, known=known)
        for one, envelope in envelopes
    )
    # Once more: who read a tag before we wrote it has written it by now, without what is ours.
    return Attachment(referrers=referrers, tags=tagged(), signer=key.verifying_key.identifier)


def repair(registry: Registry, digest: str, *, key: SigningKey) -> Attachment:
    """Put what the key signed into every place where `attach` puts it, from whichever has it: a kill leaves some out.

    Where all is there, nothing is sent. Raises as `attach` does, and `TamperedError` for what cannot be read.
    """
    evidence = [one for one in collect_envelopes(registry, digest) if one.envelope.find_signer([key.verifying_key])]
    if not evidence:
        return attach(registry, digest, (), key=key)
    genuine = verify_signatures(evidence, [key.verifying_key], image=digest, digest=digest)
    statements = [Statement(predicate_type=one.predicate_type, content=one.content) for one in genuine]
    return attach(registry, digest, statements, key=key)


def _refer(
    registry: Registry,
    statement: Statement,
    content: bytes,
    *,
    subject: Descriptor,
    known: dict[str, Descriptor],
) -> Descriptor:
    manifest = make_referrer(statement, content, subject=subject)
    if manifest.digest in known:
        return known[manifest.digest]
    registry.put_blob(NOTHING)
    registry.put_blob(content)
    return registry.put_referrer(manifest, subject=subject.digest, artifact_type=BUNDLE_MEDIA_TYPE)


def make_referrer(statement: Statement, content: bytes, *, subject: Descriptor) -> Manifest:
    """The manifest through which a bundle refers to an image (cosign, BUNDLE_SPEC.md)."""
    digest = digest_of(content)
    title = {"org.opencontainers.image.title": f"{digest.replace(':', '-')}.sigstore.json"}
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": BUNDLE_MEDIA_TYPE,
        "config": Descriptor(media_type=EMPTY, digest=digest_of(NOTHING), size=len(NOTHING)).to_document(),
        "layers": [
            Descriptor(media_type=BUNDLE_MEDIA_TYPE, digest=digest, size=len(content), annotations=title).to_document()
        ],
        "subject": subject.to_document(),
        "annotations": {
            "dev.sigstore.bundle.content": "dsse-envelope",
            PREDICATE_TYPE: statement.predicate_type,
        },
    }
    return Manifest(media_type=OCI_MANIFEST, content=canonical_json(document))
