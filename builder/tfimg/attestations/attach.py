"""Make the attestations of an image, sign them, and attach them in a registry.

Each statement is a sigstore bundle that refers to the image (cosign, BUNDLE_SPEC.md). The same input gives the same
bytes, so that a repetition sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tfimg.attestations import envelopes
from tfimg.attestations.keys import SigningKey, VerifyingKey, fingerprints
from tfimg.core.documents import MAX_BYTES, InvalidDocument, digest_of, parse_document
from tfimg.core.errors import NotInRegistry, TamperedError, UnsignedError
from tfimg.core.text import list_first, to_plain_text
from tfimg.registry import documents

DO_NOT_USE = "Do not use the image until you know who changed its attestations."

MAX_TOTAL_BYTES = 128 << 20
"""Bytes of one image's attestations after which no document is read, or 600 validations: each attaches 0.2 MB. The bill
of materials of an image with 1,000 packages has 0.5 MB."""

MAX_DOCUMENTS = 2_000
"""Manifests and bundles of one image after which no other is read, or 500 validations: each attaches four."""

MAX_LISTED = 5  # keys or digests that a message names

PREDICATE_TYPE = "dev.sigstore.bundle.predicateType"
"""Annotation of a bundle's manifest, which a list of referrers repeats. Only a hint: it is not signed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectedEnvelope:
    """An envelope with its place for messages (`where`), and its bundle's `hint` at the key."""

    where: str
    envelope: envelopes.Envelope
    hint: str = ""

    def claimed_keys(self, keys: Sequence[VerifyingKey]) -> tuple[VerifyingKey, ...]:
        return tuple(key for key in keys if key.identifier in self.envelope.signers or key.hint == self.hint)


def collect_envelopes(registry: documents.Reader, digest: str) -> tuple[CollectedEnvelope, ...]:
    """Return each envelope of the bundles that refer to an image once.

    Raises as the registry, and `TamperedError` for malformed or too many attestations.
    """
    collected: dict[envelopes.Envelope, CollectedEnvelope] = {}
    for found in collect_bundles(registry, digest):
        collected.setdefault(found.envelope, found)
    return tuple(collected.values())


def collect_bundles(registry: documents.Reader, digest: str, kinds: Sequence[str] = ()) -> Iterator[CollectedEnvelope]:
    """Yield all bundles, or those that are annotated with one of the predicate types, or with none.

    An unreadable one is a `TamperedError`, or skipped where only some kinds are read.
    """
    sizes: list[int] = []
    for referrer in registry.list_referrers(digest):
        is_wanted = not kinds or referrer.annotations.get(PREDICATE_TYPE, kinds[0]) in kinds
        # The manifest decides: lists under the fallback tag may lack the type, or have that of its empty config.
        is_wanted &= referrer.artifact_type in (envelopes.BUNDLE_MEDIA_TYPE, documents.EMPTY, None)
        if not is_wanted:
            continue
        if len(sizes) >= MAX_DOCUMENTS or sum(sizes) >= MAX_TOTAL_BYTES:
            raise TamperedError(
                f"{registry.repository}@{digest} has too many attestations: more than {MAX_DOCUMENTS} documents or "
                f"{MAX_TOTAL_BYTES >> 20} MiB.",
                next_step="Another program attached it: delete its referrers in the registry.",
            )
        where = f"{registry.repository}@{referrer.digest}"
        try:
            bundle = _read_bundle(registry, referrer, where, sizes)
        except (InvalidDocument, TamperedError, NotInRegistry) as error:
            if kinds:
                continue
            if isinstance(error, InvalidDocument):
                raise _unreadable(where, f"invalid bundle: {error}") from None
            raise
        if bundle and bundle.envelope:
            yield CollectedEnvelope(where=where, envelope=bundle.envelope, hint=bundle.hint)


def _read_bundle(
    registry: documents.Reader, referrer: documents.Descriptor, where: str, sizes: list[int]
) -> envelopes.Bundle | None:
    """Return a referrer that is a bundle, and add the sizes of what is read. Raises `InvalidDocument`."""
    manifest = registry.find(referrer.digest)
    if manifest is None or manifest.digest != referrer.digest:
        raise _unreadable(where, "the registry lists it, but has other bytes or none under its digest")
    sizes.append(len(manifest.content))
    if manifest.document.get("artifactType") != envelopes.BUNDLE_MEDIA_TYPE:
        return None
    layers = manifest.image.layers
    if len(layers) != 1:
        raise InvalidDocument(f"its manifest has {len(layers)} layers, and a bundle has one")
    if layers[0].size > MAX_BYTES:
        raise _unreadable(where, f"it has {layers[0].size} bytes, and at most {MAX_BYTES} are read")
    sizes.append(layers[0].size)
    return parse_document(envelopes.Bundle, documents.read_blob(registry, layers[0], layers[0].size))


def _unreadable(where: str, why: str) -> TamperedError:
    return TamperedError(f"Attestations at {where} cannot be read: {why}.", next_step=DO_NOT_USE)


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifiedStatement(envelopes.Statement):
    """A statement about the image that a trusted key signed; `signer` is its fingerprint, `content` the signed text."""

    predicate: dict[str, Any]
    signer: str

    @property
    def statement(self) -> str:
        """The SHA-256 of the signed bytes, by which other statements name this one."""
        return digest_of(self.content)


def verify_signatures(
    attestations: Sequence[CollectedEnvelope], keys: Sequence[VerifyingKey], *, image: str, digest: str
) -> tuple[VerifiedStatement, ...]:
    """Return each statement that the keys signed about the manifest `digest`; those of other keys are ignored.

    `image` is its name in messages. Raises `TamperedError` for one that claims one of the keys and was not signed
    by it, or was signed for another image; `UnsignedError` if the keys signed nothing.
    """
    signed = [(envelope, key) for envelope in attestations if (key := envelope.envelope.find_signer(keys))]
    genuine = [envelope for envelope, _ in signed]
    for envelope in attestations:
        if envelope not in genuine and envelope.claimed_keys(keys):
            raise _tampered(envelope, genuine, keys)
    if not attestations:
        raise UnsignedError(
            f"{image} has no attestations attached.",
            next_step="Publish it with `tfimg publish`, or ask its publisher for signed attestations.",
        )
    if not genuine:
        # Not verified: anyone who can write to the registry chooses these names.
        claimed = (key for found in attestations for key in found.envelope.signers if key)
        others = sorted({" ".join(to_plain_text(key).split())[:100] for key in claimed})
        by = f" ({list_first(others, MAX_LISTED)})" if others else ""
        raise UnsignedError(
            f"{image} has attestations that another key signed{by}, and none that {fingerprints(keys)} signed.",
            next_step="Check which key its publisher uses, and name that with --public-key.",
        )
    statements = {
        found.envelope.payload: _read_signed(found, key, digest)
        for found, key in signed
        if found.envelope.payload_type == envelopes.IN_TOTO
    }
    return tuple(statements.values())


def filter_verified(
    attestations: Iterable[CollectedEnvelope], keys: Sequence[VerifyingKey], *, digest: str
) -> Iterator[VerifiedStatement]:
    """Yield the statements that the keys signed about the manifest `digest`, and skip everything else."""
    for found in attestations:
        if found.envelope.payload_type == envelopes.IN_TOTO and (key := found.envelope.find_signer(keys)):
            with suppress(TamperedError):
                yield _read_signed(found, key, digest)


def _read_signed(found: CollectedEnvelope, signer: VerifyingKey, digest: str) -> VerifiedStatement:
    try:
        document = parse_document(envelopes.StatementDocument, found.envelope.payload)
    except InvalidDocument as error:
        raise TamperedError(
            f"The signed attestation at {found.where} is not an in-toto statement: {error}.", next_step=DO_NOT_USE
        ) from None
    if digest not in document.digests:
        about = ", ".join(document.digests[:MAX_LISTED]) or "nothing with a SHA-256 digest"
        raise TamperedError(
            f"The attestation at {found.where} was signed for another image: it is about {about}, but attached to "
            f"{digest}.",
            next_step=DO_NOT_USE,
        )
    return VerifiedStatement(
        predicate_type=document.predicate_type,
        predicate=document.predicate,
        signer=signer.identifier,
        content=found.envelope.payload,
    )


def _tampered(
    found: CollectedEnvelope, genuine: Sequence[CollectedEnvelope], keys: Sequence[VerifyingKey]
) -> TamperedError:
    """Return the error for a forged signature; a genuine one with the same half shows which half was changed."""
    signatures = {signature.sig for other in genuine for signature in other.envelope.signatures}
    if any(found.envelope.payload == other.envelope.payload for other in genuine):
        change = "its signature was replaced: the same content is attached elsewhere with the genuine signature"
    elif any(signature.sig in signatures for signature in found.envelope.signatures):
        change = "its content was changed: the signature belongs to other content, which is attached elsewhere"
    else:
        change = "its content or its signature was changed after it was signed"
    return TamperedError(
        f"The attestation at {found.where} claims the signature of {fingerprints(found.claimed_keys(keys))}, and that "
        f"key did not sign it: {change}.",
        next_step=DO_NOT_USE,
    )


def attach(
    registry: documents.Registry,
    digest: str,
    statements: Sequence[envelopes.Statement],
    *,
    key: SigningKey,
    list_later: bool = False,
) -> None:
    """Sign statements about the manifest `digest` and attach them, in this order; skip what is attached already.

    `list_later` is that of `put_referrers`. Raises as the registry, and `NotInRegistry` without the manifest.
    """
    subject = documents.require_manifest(registry, digest, next_step="Push the image first.").descriptor
    known = {referrer.digest for referrer in registry.list_referrers(digest)}
    new = []
    for statement in statements:
        bundle = envelopes.make_bundle(envelopes.sign_statement(statement, key), key.verifying_key)
        manifest = make_referrer(statement, bundle, subject=subject)
        if manifest.digest not in known:
            registry.put_blob(bundle)
            new.append(manifest)
    if new:
        registry.put_blob(documents.EMPTY_JSON)
        registry.put_referrers(new, subject=digest, list_later=list_later)


def make_referrer(
    statement: envelopes.Statement, content: bytes, *, subject: documents.Descriptor
) -> documents.Manifest:
    title = {"org.opencontainers.image.title": f"{digest_of(content).replace(':', '-')}.sigstore.json"}
    layer = documents.describe_blob(content, envelopes.BUNDLE_MEDIA_TYPE, title)
    annotations = {"dev.sigstore.bundle.content": "dsse-envelope", PREDICATE_TYPE: statement.predicate_type}
    return documents.make_manifest(
        documents.EMPTY_CONFIG,
        [layer.to_document()],
        artifactType=envelopes.BUNDLE_MEDIA_TYPE,
        subject=subject.to_document(),
        annotations=annotations,
    )
