"""Read the envelopes that are attached to an image, without verifying their signatures."""

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
    """An envelope with its place for messages (`where`), and its bundle's `hint` at the key."""

    where: str
    envelope: Envelope
    hint: str = ""

    def claimed_keys(self, keys: Sequence[VerifyingKey]) -> tuple[VerifyingKey, ...]:
        """Return those of the keys that it claims to be signed by."""
        return tuple(key for key in keys if key.identifier in self.envelope.signers or key.hint == self.hint)


def collect_envelopes(registry: Registry, digest: str) -> tuple[CollectedEnvelope, ...]:
    """Return each envelope of an image once: of the bundles that refer to it, then of cosign's tag.

    Raises as the registry, and `TamperedError` for malformed or too much evidence.
    """
    reader = _Reader(registry=registry, digest=digest)
    envelopes: dict[Envelope, CollectedEnvelope] = {}
    for referrer in registry.list_referrers(digest):
        for found in reader.read_bundle(referrer):
            envelopes.setdefault(found.envelope, found)
    for layer in reader.attestation_layers():
        for found in reader.read_attestation(layer):
            envelopes.setdefault(found.envelope, found)
    return tuple(envelopes.values())


def collect_bundles(registry: Registry, digest: str, kinds: Sequence[str]) -> Iterator[CollectedEnvelope]:
    """Yield the bundles that are annotated with one of the predicate types, or with none; skip unreadable ones."""
    reader = _Reader(registry=registry, digest=digest)
    for referrer in registry.list_referrers(digest):
        if referrer.annotations.get(PREDICATE_TYPE, kinds[0]) in kinds:
            reader.check_limits()
            with suppress(TamperedError, NotInRegistry):
                yield from reader.read_bundle(referrer)


def collect_attestations(registry: Registry, digest: str, kinds: Sequence[str]) -> Iterator[CollectedEnvelope]:
    """Yield the envelopes of some predicate types under cosign's tag, as `collect_bundles`."""
    reader = _Reader(registry=registry, digest=digest)
    layers: tuple[Descriptor, ...] = ()
    with suppress(TamperedError, NotInRegistry):
        layers = reader.attestation_layers()
    for layer in layers:
        if layer.annotations.get("predicateType", kinds[0]) in kinds:
            reader.check_limits()
            with suppress(TamperedError, NotInRegistry):
                yield from reader.read_attestation(layer)


@dataclass(kw_only=True)
class _Reader:
    """Reads the evidence of one image, within limits."""

    registry: Registry
    digest: str
    documents: int = 0
    total: int = 0

    def read_bundle(self, referrer: Descriptor) -> Iterator[CollectedEnvelope]:
        """Yield the envelope of a referrer that is a bundle with one."""
        if referrer.artifact_type not in (BUNDLE_MEDIA_TYPE, None):  # lists under the fallback tag may lack the type
            return
        where = f"{self.registry.repository}@{referrer.digest}"
        try:
            layer = self._bundle_layer(referrer, where)
            bundle = parse_document(BundleDocument, self._content(layer, where)) if layer else None
        except InvalidDocument as error:
            raise _unreadable(where, f"invalid bundle: {error}") from None
        if bundle and bundle.envelope:
            yield CollectedEnvelope(where=where, envelope=bundle.envelope, hint=bundle.hint)

    def attestation_layers(self) -> tuple[Descriptor, ...]:
        """Return the layers under cosign's tag."""
        tag = cosign_tag(self.digest, ATTESTATION_SUFFIX)
        try:
            return tuple(validate(Descriptor, layer) for layer in read_layers(self.registry, tag))
        except InvalidDocument as error:
            raise _unreadable(f"{self.registry.repository}:{tag}", str(error)) from None

    def read_attestation(self, layer: Descriptor) -> Iterator[CollectedEnvelope]:
        """Yield the envelope in a layer, if it is one."""
        where = f"{self.registry.repository}:{cosign_tag(self.digest, ATTESTATION_SUFFIX)}"
        if layer.media_type == ENVELOPE_MEDIA_TYPE:
            try:
                yield CollectedEnvelope(where=where, envelope=parse_envelope(self._content(layer, where)))
            except TamperedError as error:
                raise _unreadable(where, error.what) from None

    def check_limits(self) -> None:
        """Raise `TamperedError` at the limits, for callers that skip the same error of a single document."""
        if self.documents >= MAX_DOCUMENTS or self.total >= MAX_TOTAL_BYTES:
            raise TamperedError(
                f"{self.registry.repository}@{self.digest} has too much evidence: more than {self.documents} "
                f"documents or {self.total >> 20} MiB.",
                next_step="Another program attached it: delete its referrers in the registry.",
            )

    def _bundle_layer(self, referrer: Descriptor, where: str) -> Descriptor | None:
        """Return the layer with the bundle; None for a referrer of another type. Raises `InvalidDocument`."""
        manifest = self.registry.find(referrer.digest)
        if manifest is None or manifest.digest != referrer.digest:
            raise _unreadable(where, "the registry lists it, but has other bytes or none under its digest")
        self._count(len(manifest.content), where)
        if manifest.document.get("artifactType") != BUNDLE_MEDIA_TYPE:
            return None
        layers = manifest.image.layers
        if len(layers) != 1:
            raise InvalidDocument(f"its manifest has {len(layers)} layers, and a bundle has one")
        return layers[0]

    def _content(self, layer: Descriptor, where: str) -> bytes:
        if layer.size > MAX_BYTES:
            raise _unreadable(where, f"it has {layer.size} bytes, and at most {MAX_BYTES} are read")
        self._count(layer.size, where)
        content = bytearray()
        for chunk in self.registry.get_blob(layer.digest):
            content += chunk
            if len(content) > layer.size:
                raise _unreadable(where, f"it has more than the {layer.size} bytes that its manifest states")
        return bytes(content)

    def _count(self, size: int, where: str) -> None:
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
