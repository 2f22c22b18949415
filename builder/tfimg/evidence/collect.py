"""Read the envelopes that are attached to an image, without verifying their signatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tfimg.core.documents import MAX_BYTES, InvalidDocument, parse_document
from tfimg.core.errors import NotInRegistry, TamperedError
from tfimg.evidence.dsse import BUNDLE_MEDIA_TYPE, Bundle, Envelope
from tfimg.evidence.keys import VerifyingKey
from tfimg.registry.documents import EMPTY, Descriptor, Reader, read_blob

MAX_TOTAL_BYTES = 128 << 20
"""Bytes of one image's evidence after which no document is read, or 600 validations: each attaches 0.2 MB. The bill
of materials of an image with 1,000 packages has 0.5 MB."""

MAX_DOCUMENTS = 2_000
"""Manifests and bundles of one image after which no other is read, or 500 validations: each attaches four."""

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


def collect_envelopes(registry: Reader, digest: str) -> tuple[CollectedEnvelope, ...]:
    """Return each envelope of the bundles that refer to an image once.

    Raises as the registry, and `TamperedError` for malformed or too much evidence.
    """
    envelopes: dict[Envelope, CollectedEnvelope] = {}
    for found in _Reader(registry=registry, digest=digest).bundles():
        envelopes.setdefault(found.envelope, found)
    return tuple(envelopes.values())


def collect_bundles(registry: Reader, digest: str, kinds: Sequence[str]) -> Iterator[CollectedEnvelope]:
    """Yield the bundles that are annotated with one of the predicate types, or with none; skip unreadable ones."""
    return _Reader(registry=registry, digest=digest, kinds=kinds).bundles()


@dataclass(kw_only=True)
class _Reader:
    """Reads the evidence of one image, within limits: all, or that of some `kinds` without what is unreadable."""

    registry: Reader
    digest: str
    kinds: Sequence[str] = ()
    documents: int = 0
    total: int = 0

    def bundles(self) -> Iterator[CollectedEnvelope]:
        for referrer in self.registry.list_referrers(self.digest):
            # The manifest decides: lists under the fallback tag may lack the type, or have that of its empty config.
            if referrer.artifact_type in (BUNDLE_MEDIA_TYPE, EMPTY, None) and self._is_wanted(referrer):
                where = f"{self.registry.repository}@{referrer.digest}"
                with self._read_one(where):
                    yield from self._bundle(referrer, where)

    def _is_wanted(self, referrer: Descriptor) -> bool:
        return not self.kinds or referrer.annotations.get(PREDICATE_TYPE, self.kinds[0]) in self.kinds

    @contextmanager
    def _read_one(self, where: str) -> Iterator[None]:
        """Read one document. If it is unreadable, raise `TamperedError`, or skip it where only some kinds are read."""
        if self.documents >= MAX_DOCUMENTS or self.total >= MAX_TOTAL_BYTES:
            raise TamperedError(
                f"{self.registry.repository}@{self.digest} has too much evidence: more than {MAX_DOCUMENTS} documents "
                f"or {MAX_TOTAL_BYTES >> 20} MiB.",
                next_step="Another program attached it: delete its referrers in the registry.",
            )
        try:
            yield
        except (InvalidDocument, TamperedError, NotInRegistry) as error:
            if self.kinds:
                return
            if isinstance(error, InvalidDocument):
                raise _unreadable(where, f"invalid bundle: {error}") from None
            raise

    def _bundle(self, referrer: Descriptor, where: str) -> Iterator[CollectedEnvelope]:
        """Yield the envelope of a referrer that is a bundle with one. Raises `InvalidDocument`."""
        manifest = self.registry.find(referrer.digest)
        if manifest is None or manifest.digest != referrer.digest:
            raise _unreadable(where, "the registry lists it, but has other bytes or none under its digest")
        self._count(len(manifest.content))
        if manifest.document.get("artifactType") != BUNDLE_MEDIA_TYPE:
            return
        layers = manifest.image.layers
        if len(layers) != 1:
            raise InvalidDocument(f"its manifest has {len(layers)} layers, and a bundle has one")
        bundle = parse_document(Bundle, self._content(layers[0], where))
        if bundle.envelope:
            yield CollectedEnvelope(where=where, envelope=bundle.envelope, hint=bundle.hint)

    def _content(self, layer: Descriptor, where: str) -> bytes:
        if layer.size > MAX_BYTES:
            raise _unreadable(where, f"it has {layer.size} bytes, and at most {MAX_BYTES} are read")
        self._count(layer.size)
        return read_blob(self.registry, layer, layer.size)

    def _count(self, size: int) -> None:
        self.documents += 1
        self.total += size


def _unreadable(where: str, why: str) -> TamperedError:
    return TamperedError(
        f"Evidence at {where} cannot be read: {why}.",
        next_step="Do not use the image until you know who changed its evidence.",
    )
