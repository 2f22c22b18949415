"""Sign statements and attach them to an image in its registry, where cosign 3, oras and `tfimg verify` find them.

Each statement is a sigstore bundle that refers to the image (cosign, BUNDLE_SPEC.md). The same input gives the same
bytes, so that a repetition sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfimg.evidence.collect import PREDICATE_TYPE
from tfimg.evidence.dsse import BUNDLE_MEDIA_TYPE, make_bundle, sign_statement
from tfimg.evidence.keys import SigningKey
from tfimg.evidence.statement import Statement
from tfimg.registry.documents import (
    EMPTY_CONFIG,
    EMPTY_JSON,
    Descriptor,
    Manifest,
    Registry,
    describe_blob,
    digest_of,
    make_manifest,
    require_manifest,
)


def attach(
    registry: Registry, digest: str, statements: Sequence[Statement], *, key: SigningKey, list_later: bool = False
) -> None:
    """Sign statements about the manifest `digest` and attach them, in this order; skip what is attached already.

    `list_later` is that of `put_referrers`. Raises as the registry, and `NotInRegistry` without the manifest.
    """
    subject = require_manifest(registry, digest, next_step="Push the image first.").descriptor
    known = {referrer.digest for referrer in registry.list_referrers(digest)}
    new = []
    for statement in statements:
        bundle = make_bundle(sign_statement(statement, key), key.verifying_key)
        manifest = make_referrer(statement, bundle, subject=subject)
        if manifest.digest not in known:
            registry.put_blob(bundle)
            new.append(manifest)
    if new:
        registry.put_blob(EMPTY_JSON)
        registry.put_referrers(new, subject=digest, list_later=list_later)


def make_referrer(statement: Statement, content: bytes, *, subject: Descriptor) -> Manifest:
    """Return the manifest through which a bundle refers to an image."""
    title = {"org.opencontainers.image.title": f"{digest_of(content).replace(':', '-')}.sigstore.json"}
    layer = describe_blob(content, BUNDLE_MEDIA_TYPE, title)
    annotations = {"dev.sigstore.bundle.content": "dsse-envelope", PREDICATE_TYPE: statement.predicate_type}
    return make_manifest(
        EMPTY_CONFIG,
        [layer.to_document()],
        artifactType=BUNDLE_MEDIA_TYPE,
        subject=subject.to_document(),
        annotations=annotations,
    )
