"""Read everything that is attached to an image as envelopes. Signatures are verified elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfimg.documents import MAX_BYTES, InvalidDocument, parse_document, validate
from tfimg.errors import TamperedError
from tfimg.evidence.bundle import BUNDLE, BundleDocument
from tfimg.evidence.cosign_tags import ATTESTATIONS, layers_under, tag_of
from tfimg.evidence.dsse import ENVELOPE, Envelope, opened
from tfimg.evidence.keys import VerifyingKey
from tfimg.registry.protocol import Descriptor, Registry

MAX_TOTAL_BYTES = 128 << 20
"""Bytes of evidence that are read of one image, or 300 validations: each attaches 0.2 MB twice. The bill of materials
of an image with 1,000 packages has 0.5 MB."""

MAX_DOCUMENTS = 2_000
"""Manifests, bundles and envelopes that are read of one image, or 330 validations: each attaches six."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """An envelope in the registry: `where` it lies, for messages, and the `hint` at its key that its bundle gives."""

    where: str
    envelope: Envelope
    hint: str = ""

    def claimed(self, keys: Sequence[VerifyingKey]) -> tuple[VerifyingKey, ...]:
        """Return those of the keys that it claims to be signed by."""
        return tuple(key for key in keys if key.identifier in self.envelope.signers or key.hint == self.hint)


def collect(registry: Registry, digest: str) -> tuple[Found, ...]:
    """Return the bundles that refer to an image, then what cosign's tag has beside them, each envelope once.

    Raises what the registry raises, and `TamperedError` for evidence that is malformed or more than is read.
    """
    reader = _Reader(registry=registry)
    found: dict[Envelope, Found] = {}
    for one in (*reader.bundles(digest), *reader.attestations(digest)):
        found.setdefault(one.envelope, one)
    return tuple(found.values())


@dataclass(kw_only=True)
class _Reader:
    """Reads evidence of one image, and counts what it has read."""

    registry: Registry
    documents: int = 0
    total: int = 0

    def bundles(self, digest: str) -> Iterator[Found]:
        """Yield the envelopes of the sigstore bundles that refer to the image."""
        for referrer in self.registry.referrers(digest):
            if referrer.artifact_type not in (BUNDLE, None):  # lists that clients keep may lack the type
                continue
            where = f"{self.registry.repository}@{referrer.digest}"
            try:
                layer = self._bundle_layer(referrer, where)
                document = parse_document(BundleDocument, self._content(layer, where)) if layer else None
            except InvalidDocument as error:
                raise _unreadable(where, f"invalid bundle: {error}") from None
            if document and document.envelope:
                yield Found(where=where, envelope=document.envelope.envelope, hint=document.hint)

    def attestations(self, digest: str) -> Iterator[Found]:
        """Yield the envelopes under cosign's tag."""
        tag = tag_of(digest, ATTESTATIONS)
        where = f"{self.registry.repository}:{tag}"
        for layer in (validate(Descriptor, one) for one in layers_under(self.registry, tag)):
            if layer.media_type == ENVELOPE:
                try:
                    yield Found(where=where, envelope=opened(self._content(layer, where)))
                except TamperedError as error:
                    raise _unreadable(where, error.what) from None

    def _bundle_layer(self, referrer: Descriptor, where: str) -> Descriptor | None:
        """Return the layer with the bundle; None for a referrer of another type. Raises `InvalidDocument`."""
        manifest = self.registry.find(referrer.digest)
        if manifest is None or manifest.digest != referrer.digest:
            raise _unreadable(where, "the registry lists it, and has other bytes or none under its digest")
        self._count(len(manifest.content), where)
        if manifest.document.get("artifactType") != BUNDLE:
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
        for piece in self.registry.blob(layer.digest):
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
