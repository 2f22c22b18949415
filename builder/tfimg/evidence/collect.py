"""Read everything that is attached to an image as envelopes. Signatures are verified elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tfimg.core.documents import MAX_BYTES, InvalidDocument, parse_document, validate
from tfimg.core.errors import NotInRegistry, TamperedError
from tfimg.evidence.cosign_tags import ATTESTATION_SUFFIX, cosign_tag, read_layers
from tfimg.evidence.dsse import BUNDLE_MEDIA_TYPE, ENVELOPE_MEDIA_TYPE, BundleDocument, Envelope, parse_envelope
from tfimg.evidence.keys import VerifyingKey
from tfimg.registry.protocol import Descriptor, Registry

MAX_TOTAL_BYTES = 128 << 20
"""Bytes of evidence that are read of one image, or 300 validations: each attaches 0.2 MB twice. The bill of materials
of an image with 1,000 packages has 0.5 MB."""

MAX_DOCUMENTS = 2_000
"""Manifests, bundles and envelopes that are read of one image, or 330 validations: each attaches six."""

PREDICATE_TYPE = "dev.sigstore.bundle.predicateType"
"""Annotation of a bundle's manifest, which a list of referrers repeats. Only a hint: it is not signed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectedEnvelope:
    """An envelope in the registry: `where` it lies, for messages, and the `hint` at its key that its bundle gives."""

    where: str
    envelope: Envelope
    hint: str = ""

    def claimed(self, keys: Sequence[VerifyingKey]) -> tuple[VerifyingKey, ...]:
        """Return those of the keys that it claims to be signed by."""
        return tuple(key for key in keys if key.identifier in self.envelope.signers or key.hint == self.hint)


def collect_envelopes(registry: Registry, digest: str) -> tuple[CollectedEnvelope, ...]:
    """Return the bundles that refer to an image, then what cosign's tag has beside them, each envelope once.

    Raises what the registry raises, and `TamperedError` for evidence that is malformed or more than is read.
    """
    reader = _Reader(registry=registry)
    found: dict[Envelope, CollectedEnvelope] = {}
    for one in (*reader.bundles(digest), *reader.attestations(digest)):
        found.setdefault(one.envelope, one)
    return tuple(found.values())


def collect_bundles(registry: Registry, digest: str, kinds: Sequence[str]) -> Iterator[CollectedEnvelope]:
    """Yield the bundles of some predicate types, by their annotation, and those without one.

    What cannot be read is passed over. Raises what the registry raises.
    """
    reader = _Reader(registry=registry)
    for referrer in registry.list_referrers(digest):
        if referrer.annotations.get(PREDICATE_TYPE, kinds[0]) in kinds:
            reader.require_room(digest)
            with suppress(TamperedError, NotInRegistry):
                yield from reader.bundle(referrer)


def collect_attestations(registry: Registry, digest: str, kinds: Sequence[str]) -> Iterator[CollectedEnvelope]:
    """Yield the envelopes of some predicate types under cosign's tag, as `collect_bundles` does."""
    reader = _Reader(registry=registry)
    layers: tuple[Descriptor, ...] = ()
    with suppress(TamperedError, NotInRegistry):
        layers = reader.layers(digest)
    for layer in layers:
        if layer.annotations.get("predicateType", kinds[0]) in kinds:
            reader.require_room(digest)
            with suppress(TamperedError, NotInRegistry):
                yield from reader.attestation(layer, digest)


@dataclass(kw_only=True)
class _Reader:
    """Reads evidence of one image, and counts what it has read."""

    registry: Registry
    documents: int = 0
    total: int = 0

    def bundles(self, digest: str) -> Iterator[CollectedEnvelope]:
        """Yield the envelopes of the sigstore bundles that refer to the image."""
        for referrer in self.registry.list_referrers(digest):
            yield from self.bundle(referrer)

    def bundle(self, referrer: Descriptor) -> Iterator[CollectedEnvelope]:
        """Yield the envelope of a referrer that is a bundle with one."""
        if referrer.artifact_type not in (BUNDLE_MEDIA_TYPE, None):  # lists that clients keep may lack the type
            return
        where = f"{self.registry.repository}@{referrer.digest}"
        try:
            layer = self._bundle_layer(referrer, where)
            document = parse_document(BundleDocument, self._content(layer, where)) if layer else None
        except InvalidDocument as error:
            raise _unreadable(where, f"invalid bundle: {error}") from None
        if document and document.envelope:
            yield CollectedEnvelope(where=where, envelope=document.envelope.envelope, hint=document.hint)

    def attestations(self, digest: str) -> Iterator[CollectedEnvelope]:
        """Yield the envelopes under cosign's tag."""
        for layer in self.layers(digest):
            yield from self.attestation(layer, digest)

    def layers(self, digest: str) -> tuple[Descriptor, ...]:
        """Return the layers under cosign's tag."""
        tag = cosign_tag(digest, ATTESTATION_SUFFIX)
        try:
            return tuple(validate(Descriptor, one) for one in read_layers(self.registry, tag))
        except InvalidDocument as error:
            raise _unreadable(f"{self.registry.repository}:{tag}", str(error)) from None

    def attestation(self, layer: Descriptor, digest: str) -> Iterator[CollectedEnvelope]:
        """Yield the envelope in a layer, if it is one."""
        where = f"{self.registry.repository}:{cosign_tag(digest, ATTESTATION_SUFFIX)}"
        if layer.media_type == ENVELOPE_MEDIA_TYPE:
            try:
                yield CollectedEnvelope(where=where, envelope=parse_envelope(self._content(layer, where)))
            except TamperedError as error:
                raise _unreadable(where, error.what) from None

    def require_room(self, digest: str) -> None:
        """Raise `TamperedError` where the image has more evidence than is read, which a reader must not pass over."""
        if self.documents >= MAX_DOCUMENTS or self.total >= MAX_TOTAL_BYTES:
            raise TamperedError(
                f"{self.registry.repository}@{digest} has more evidence than is read: {self.documents} documents, "
                f"{self.total >> 20} MiB.",
                next_step="Another program attached it: delete its referrers in the registry.",
            )

    def _bundle_layer(self, referrer: Descriptor, where: str) -> Descriptor | None:
        """Return the layer with the bundle; None for a referrer of another type. Raises `InvalidDocument`."""
        manifest = self.registry.find(referrer.digest)
        if manifest is None or manifest.digest != referrer.digest:
            raise _unreadable(where, "the registry lists it, and has other bytes or none under its digest")
        self._count(len(manifest.content), where)
        if manifest.document.get("artifactType") != BUNDLE_MEDIA_TYPE:
            return None
        layers = manifest.image.layers
        if len(layers) != 1:
            raise InvalidDocument(f"its manifest has {len(layers)} layers, and a bundle has one")
        return layers[0]

    def _content(self, layer: Descriptor, where: str) -> bytes:
        """Read one document, within the limits."""
        if layer.size > MAX_BYTES:
            raise _unreadable(where, f"it has {layer.size} bytes, and at most {MAX_BYTES} are read")
        self._count(layer.size, where)
        content = bytearray()
        for piece in self.registry.get_blob(layer.digest):
            content += piece
            if len(content) > layer.size:
                raise _unreadable(where, f"it has more than the {layer.size} bytes that its manifest states")
        return bytes(content)

    def _count(self, size: int, where: str) -> None:
        """Count a document that is to be read. Raises `TamperedError` where the image has more than is read."""
        self.documents += 1
        self.total += size
        if self.documents > MAX_DOCUMENTS:
            raise _unreadable(where, f"the image has more than {MAX_DOCUMENTS} documents")
        if self.total > MAX_TOTAL_BYTES:
            raise _unreadable(where, f"the image has more than {MAX_TOTAL_BYTES >> 20} MiB of evidence")


def _unreadable(where: str, why: str) -> TamperedError:
    return TamperedError(
        f"Evidence at {where} cannot be read: {why}.",
        next_step="Do not use the image until you know who changed its evidence.",
    )
