"""Sign statements and attach them to an image in its registry, where cosign, oras and `tfimg verify` find them.

Each statement is attached twice: as a sigstore bundle that refers to the image (cosign 3, oras, tfimg), and under the
tag that cosign 2 reads. The same input gives the same bytes, so that a repetition sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfimg.evidence import cosign_tags
from tfimg.evidence.collect import PREDICATE_TYPE, collect_envelopes
from tfimg.evidence.dsse import BUNDLE_MEDIA_TYPE, make_bundle, sign_statement
from tfimg.evidence.keys import SigningKey
from tfimg.evidence.signatures import verify_signatures
from tfimg.evidence.statement import Statement
from tfimg.registry import protocol
from tfimg.registry.protocol import Descriptor, Manifest, Registry, describe_blob, digest_of, require_manifest


def attach(
    registry: Registry, digest: str, statements: Sequence[Statement], *, key: SigningKey
) -> tuple[Descriptor, ...]:
    """Sign statements about the manifest `digest` and attach them; return their referrers.

    Each statement becomes a sigstore bundle that refers to the image and a layer of cosign's `sha256-….att`; the
    signature of the image itself goes to `sha256-….sig`. After an interruption, call it again. Raises as the registry,
    and `NotInRegistry` without the manifest.
    """
    subject = require_manifest(registry, digest, next_step="Push the image first.").descriptor
    known = {referrer.digest: referrer for referrer in registry.list_referrers(digest)}
    envelopes = [(statement, sign_statement(statement, key)) for statement in statements]
    attestations = [cosign_tags.make_attestation_layer(signed, one.predicate_type) for one, signed in envelopes]
    signature = cosign_tags.make_signature_layer(registry.repository, digest, key)

    def write_tags() -> None:
        cosign_tags.add_layers(registry, digest, cosign_tags.ATTESTATION_SUFFIX, attestations)
        cosign_tags.add_layers(registry, digest, cosign_tags.SIGNATURE_SUFFIX, [signature])

    write_tags()
    referrers = []
    for statement, envelope in envelopes:
        bundle = make_bundle(envelope, key.verifying_key)
        manifest = make_referrer(statement, bundle, subject=subject)
        if manifest.digest not in known:
            registry.put_blob(protocol.EMPTY_JSON)
            registry.put_blob(bundle)
            referrer = registry.put_referrer(manifest, subject=digest, artifact_type=BUNDLE_MEDIA_TYPE)
            known[manifest.digest] = referrer
        referrers.append(known[manifest.digest])
    write_tags()  # again: a publisher that had read a tag before our first write has overwritten it by now
    return tuple(referrers)


def repair(registry: Registry, digest: str, *, key: SigningKey) -> tuple[Descriptor, ...]:
    """Attach all that the key signed in every place again, from any place that has it, after an interrupted `attach`.

    Sends only what is missing. Raises as `attach`, and `TamperedError` for unreadable evidence.
    """
    keys = [key.verifying_key]
    evidence = [found for found in collect_envelopes(registry, digest) if found.envelope.find_signer(keys)]
    statements = verify_signatures(evidence, keys, image=digest, digest=digest) if evidence else ()
    return attach(registry, digest, statements, key=key)


def make_referrer(statement: Statement, content: bytes, *, subject: Descriptor) -> Manifest:
    """Return the manifest through which a bundle refers to an image (cosign, BUNDLE_SPEC.md)."""
    title = {"org.opencontainers.image.title": f"{digest_of(content).replace(':', '-')}.sigstore.json"}
    layer = describe_blob(content, BUNDLE_MEDIA_TYPE, title)
    annotations = {"dev.sigstore.bundle.content": "dsse-envelope", PREDICATE_TYPE: statement.predicate_type}
    return protocol.make_manifest(
        protocol.EMPTY_CONFIG,
        [layer.to_document()],
        artifactType=BUNDLE_MEDIA_TYPE,
        subject=subject.to_document(),
        annotations=annotations,
    )
