"""Search an image for secrets. Parts that cannot be read completely are findings too."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tfimg.core.documents import MAX_BYTES, InvalidDocument, parse_json, parse_object, validate
from tfimg.core.files import open_chunks, write_atomically
from tfimg.core.tar import InvalidArchive, TarReader
from tfimg.inspect.limits import Budget, Limits, UnreadableError
from tfimg.inspect.secrets.document_scan import search_document
from tfimg.inspect.secrets.findings import SecretFinding, unreadable_finding
from tfimg.inspect.secrets.layer_scan import READER_VERSION, search_layer
from tfimg.inspect.secrets.rules import RULES, Rule
from tfimg.inspect.secrets.search import Search
from tfimg.registry.images import read_blob
from tfimg.registry.protocol import Descriptor, Manifest, Registry, require_manifest

DEFAULT_LIMITS = Limits()

MAX_MANIFESTS = 1000
"""Manifests of one image. Ours have three: an index, an image, and BuildKit's attestation."""

MANIFEST_FIELDS = frozenset({"manifests", "config", "layers"})
"""Fields of which a manifest or an index has one (image specification, manifest.md and image-index.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanProgress:
    """Progress in one layer: unpacked bytes that were searched; `ended` is set once, at the end."""

    digest: str
    searched: int
    ended: bool = False
    from_cache: bool = False


OnProgress = Callable[[ScanProgress], object]


def scan_image(
    registry: Registry,
    reference: str,
    secrets: Sequence[Rule],
    *,
    cache: Path | None = None,
    on_progress: OnProgress = lambda _: None,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[SecretFinding, ...]:
    """Search every layer, configuration and annotation of every platform of an image in a registry.

    `secrets` are the values of this host (`tfimg.inspect.secrets.host_secrets`). The folder `cache` keeps the findings
    of each layer, so that shared layers are searched once for the same secrets. Raises the errors of a `Registry`.
    """
    scan = _Scan(secrets, cache, on_progress, limits)
    root = require_manifest(registry, reference)
    queue, seen = deque([root.digest]), {root.digest}
    blobs: dict[tuple[str, bool], Descriptor] = {}
    while queue:
        digest = queue.popleft()
        manifest = root if digest == root.digest else require_manifest(registry, digest)
        # Media types are not trusted: a manifest's fields decide its kind.
        children, content = scan.search_manifest(manifest)
        blobs |= {(blob.digest, is_layer): blob for blob, is_layer in content}
        new = dict.fromkeys(child.digest for child in children if child.digest not in seen)
        if len(seen) + len(new) > MAX_MANIFESTS:
            scan.add(digest, [unreadable_finding(f"the image has more than {MAX_MANIFESTS} manifests")])
            break
        seen |= set(new)
        queue.extend(new)
    for (digest, is_layer), blob in blobs.items():
        search = scan.search_layer if is_layer else scan.search_blob
        scan.add(digest, search(registry, blob))
    return tuple(scan.found)


def scan_export(
    pieces: Iterator[bytes], secrets: Sequence[Rule], *, on_progress: OnProgress = lambda _: None
) -> tuple[SecretFinding, ...]:
    """Search an image that an engine exports (`Engine.export`), before it is published.

    Each file of the export is a document or a layer.
    """
    scan = _Scan(secrets, None, on_progress, DEFAULT_LIMITS)
    reader = TarReader(open_chunks(pieces))
    try:
        for member in reader:
            scan.budget.add_member()
            if member.size:
                name = member.name.replace("blobs/sha256/", "sha256:")
                scan.add(name, scan.search_file(name, member.size, reader.content()))
    except InvalidArchive as error:
        scan.add("", [unreadable_finding(f"the engine's export cannot be read: {error}")])
    return tuple(scan.found)


class _Scan:
    """The search of one image."""

    def __init__(self, secrets: Sequence[Rule], cache: Path | None, on_progress: OnProgress, limits: Limits) -> None:
        self._search = Search([*secrets, *RULES], tokens=True)
        self._cache, self._on_progress, self.budget = cache, on_progress, Budget(limits)
        self.found: dict[SecretFinding, None] = {}

    def add(self, digest: str, findings: Sequence[SecretFinding]) -> None:
        """Add the findings in a manifest or blob."""
        self.found |= dict.fromkeys(replace(finding, digest=digest) for finding in findings)

    def search_manifest(self, manifest: Manifest) -> tuple[Sequence[Descriptor], Sequence[tuple[Descriptor, bool]]]:
        """Search a manifest or index. Return its child manifests, and its blobs with whether each is a layer."""
        self.add(manifest.digest, self._search_document(manifest.content))
        try:
            names = parse_object(manifest.content).keys()
            children = manifest.index.manifests if "manifests" in names else ()
            image = manifest.image
        except InvalidDocument as error:
            self.add(manifest.digest, [unreadable_finding(f"it is not a readable manifest: {error}")])
            return (), ()
        # Go's parser accepts names in any case.
        fields = {name for name in names if name.lower() in MANIFEST_FIELDS}
        if not fields or not fields <= MANIFEST_FIELDS:
            self.add(manifest.digest, [unreadable_finding("it is neither an image manifest nor an index")])
        configs = [(image.config, False)] if image.config else []
        return children, [*configs, *((layer, True) for layer in image.layers)]

    def search_blob(self, registry: Registry, blob: Descriptor) -> Sequence[SecretFinding]:
        """Search a document."""
        return self._search_document(read_blob(registry, blob))

    def _search_document(self, content: bytes) -> Sequence[SecretFinding]:
        try:
            return search_document(content, self._search)
        except UnreadableError as error:
            return [unreadable_finding(str(error))]

    def search_layer(self, registry: Registry, layer: Descriptor) -> Sequence[SecretFinding]:
        """Search a layer, unless an earlier scan has kept its findings."""
        kind = layer.media_type
        if "nondistributable" in kind or ".foreign." in kind:  # image specification, layer.md, "Non-distributable"
            return [unreadable_finding(f"its media type {kind} says that registries need not have it")]
        if kind.endswith("json") and layer.size <= MAX_BYTES:  # BuildKit's attestations
            return self.search_blob(registry, layer)
        file = self._cache_file(layer)
        try:
            known = validate(tuple[SecretFinding, ...], parse_json(file.read_bytes())) if file else None
        except (OSError, InvalidDocument):
            known = None
        if known is not None:
            self._on_progress(ScanProgress(digest=layer.digest, searched=0, ended=True, from_cache=True))
            return known
        found = self._search_stream(layer.digest, registry.get_blob(layer.digest), kind)
        if file and not any(finding.kind == "unread" for finding in found):
            write_atomically(file, json.dumps([asdict(finding) for finding in found]))
        return found

    def _cache_file(self, layer: Descriptor) -> Path | None:
        key = f"{layer.digest} {layer.media_type} {READER_VERSION} {self._search.fingerprint}"
        return self._cache / f"{hashlib.sha256(key.encode()).hexdigest()}.json" if self._cache else None

    def search_file(self, name: str, size: int, content: Iterator[bytes]) -> Sequence[SecretFinding]:
        """Search a file of an export: as a document, or as a layer."""
        if size > MAX_BYTES:
            return self._search_stream(name, content)
        whole = b"".join(content)
        try:
            return search_document(whole, self._search)
        except UnreadableError:
            return self._search_stream(name, iter([whole]))

    def _search_stream(self, digest: str, pieces: Iterator[bytes], media_type: str = "") -> Sequence[SecretFinding]:
        searched = 0

        def on_bytes(count: int) -> None:
            nonlocal searched
            searched += count
            self._on_progress(ScanProgress(digest=digest, searched=searched))

        found = search_layer(pieces, self._search, self.budget, on_bytes, media_type)
        self._on_progress(ScanProgress(digest=digest, searched=searched, ended=True))
        return found
