"""Statements, signed → beside the image in its registry, where cosign, oras and `tfimg verify` find them.

Each statement lies there twice: as a sigstore bundle that refers to the image (cosign 3, oras, and we), and in the tag
that cosign 2 looks at. Everything has one form for one input, so that doing it again sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfimg.evidence.bundle import BUNDLE, bundle, seal
from tfimg.evidence.collect import PREDICATE_TYPE, collect
from tfimg.evidence.cosign_tags import ATTESTATIONS, SIGNATURES, add, attestation, signature
from tfimg.evidence.keys import SigningKey
from tfimg.evidence.signatures import verify_signatures
from tfimg.evidence.statement import Statement, compact
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
class Attached:
    """What is there now: manifests that refer to the image, tags that cosign looks at, the signer's fingerprint."""

    referrers: tuple[Descriptor, ...]
    tags: tuple[str, ...]
    signer: str


def attach(registry: Registry, digest: str, statements: Sequence[Statement], *, key: SigningKey) -> Attached:
    """Sign statements about the manifest `digest` and put them beside it; what is there already is not sent again.

    Each as a sigstore bundle that refers to the image, all in cosign's `sha256-….att`, and the image's own signature in
    `sha256-….sig`. Interrupted, it is simply called again. Raises what the registry raises, and `NotInRegistry` where
    there is no such manifest.
    """
    subject = require_manifest(registry, digest, next_step="Push the image first.").descriptor
    known = {one.digest: one for one in registry.referrers(digest)}
    envelopes = [(one, seal(one, key)) for one in statements]
    layers = [attestation(envelope, one.predicate_type) for one, envelope in envelopes]
    signed = signature(registry.repository, digest, key)

    def tagged() -> tuple[str, str]:
        return add(registry, digest, ATTESTATIONS, layers), add(registry, digest, SIGNATURES, [signed])

    tagged()
    referrers = tuple(
        _refer(registry, one, bundle(envelope, key.verifying), subject=subject, known=known)
        for one, envelope in envelopes
    )
    # Once more: who read a tag before we wrote it has written it by now, without what is ours.
    return Attached(referrers=referrers, tags=tagged(), signer=key.verifying.identifier)


def mend(registry: Registry, digest: str, *, key: SigningKey) -> Attached:
    """Put what the key signed into every place where `attach` puts it, from whichever has it: a kill leaves some out.

    Where all is there, nothing is sent. Raises as `attach` does, and `TamperedError` for what cannot be read.
    """
    evidence = [one for one in collect(registry, digest) if one.envelope.signed_by([key.verifying])]
    if not evidence:
        return attach(registry, digest, (), key=key)
    genuine = verify_signatures(evidence, [key.verifying], image=digest, digest=digest)
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
    manifest = referrer(statement, content, subject=subject)
    if manifest.digest in known:
        return known[manifest.digest]
    registry.put_blob(NOTHING)
    registry.put_blob(content)
    return registry.refer(manifest, subject=subject.digest, artifact_type=BUNDLE)


def referrer(statement: Statement, content: bytes, *, subject: Descriptor) -> Manifest:
    """The manifest through which a bundle refers to an image (cosign, BUNDLE_SPEC.md)."""
    digest = digest_of(content)
    title = {"org.opencontainers.image.title": f"{digest.replace(':', '-')}.sigstore.json"}
    document = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": BUNDLE,
        "config": Descriptor(media_type=EMPTY, digest=digest_of(NOTHING), size=len(NOTHING)).document(),
        "layers": [Descriptor(media_type=BUNDLE, digest=digest, size=len(content), annotations=title).document()],
        "subject": subject.document(),
        "annotations": {
            "dev.sigstore.bundle.content": "dsse-envelope",
            PREDICATE_TYPE: statement.predicate_type,
        },
    }
    return Manifest(media_type=OCI_MANIFEST, content=compact(document))
