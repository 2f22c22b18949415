"""Search an image for what must not leave this machine. What was not read to its end is not clean: it is a finding."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, cast

from tfimg.core.documents import MAX_BYTES, InvalidDocument, parse_json, parse_object, validate
from tfimg.core.errors import LeakFound
from tfimg.core.paths import write_atomically
from tfimg.core.streams import as_file
from tfimg.core.text import plain
from tfimg.inspect.secrets.archive import Archive
from tfimg.inspect.secrets.limits import Budget, Limits, UnreadableError
from tfimg.inspect.secrets.places import (
    READER,
    Searches,
    Trace,
    lies_elsewhere,
    read_document,
    search_document,
    search_layer,
    unread,
)
from tfimg.inspect.secrets.rules import Rule
from tfimg.registry.images import read_blob
from tfimg.registry.protocol import Descriptor, Manifest, Registry, require_manifest

DEFAULT_LIMITS = Limits()

MAX_MANIFESTS = 1000
"""Manifests that one image may have. Ours have three: an index, an image, and BuildKit's attestation."""

PARTS = frozenset({"manifests", "config", "layers"})
"""What makes a document a manifest or an index (image specification, manifest.md and image-index.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretFinding:
    """A trace, and the blob or manifest that it is in."""

    digest: str
    trace: Trace

    @property
    def text(self) -> str:
        """One line for people; the secret itself is not in it."""
        trace = self.trace
        where = " ".join(filter(None, (trace.place, self.digest[:19], trace.path)))
        return plain(f"{where}: {trace.what} {trace.shown}")


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
    """Search an image in a registry: every layer, configuration and annotation of every platform.

    `secrets` are this machine's own values (`tfimg.inspect.secrets.host_secrets`). What was found in a layer
    is kept in the folder `cache`, so that a layer which images share is read once for the same secrets. Raises what a
    `Registry` does.
    """
    return _Scan(secrets, cache, on_progress, limits).image(registry, reference)


def scan_export(
    pieces: Iterator[bytes],
    secrets: Sequence[Rule],
    *,
    on_progress: OnProgress = lambda _: None,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[SecretFinding, ...]:
    """Search an image that an engine exports (`Engine.export`), before it goes anywhere."""
    return _Scan(secrets, None, on_progress, limits).export(pieces)


class _Scan:
    """The scan of one image."""

    def __init__(self, secrets: Sequence[Rule], cache: Path | None, on_progress: OnProgress, limits: Limits) -> None:
        self._searches = Searches(secrets)
        self._cache, self._on_progress, self._budget = cache, on_progress, Budget(limits)
        self._found: dict[SecretFinding, None] = {}

    def image(self, registry: Registry, reference: str) -> tuple[SecretFinding, ...]:
        """Read an image in a registry. What a manifest is, its content tells: of its type, registries may lie."""
        root = require_manifest(registry, reference)
        waiting, seen = deque([root.digest]), {root.digest}
        blobs: dict[tuple[str, bool], Descriptor] = {}
        while waiting:
            digest = waiting.popleft()
            manifest = root if digest == root.digest else require_manifest(registry, digest)
            children, content = self._manifest(manifest)
            blobs |= {(blob.digest, is_layer): blob for blob, is_layer in content}
            new = dict.fromkeys(child.digest for child in children if child.digest not in seen)
            if len(seen) + len(new) > MAX_MANIFESTS:
                self._add(digest, [unread(f"the image has more than {MAX_MANIFESTS} manifests")])
                break
            seen |= set(new)
            waiting.extend(new)
        for (digest, is_layer), blob in blobs.items():
            self._add(digest, self._layer(registry, blob) if is_layer else self._config(registry, blob))
        return tuple(self._found)

    def export(self, pieces: Iterator[bytes]) -> tuple[SecretFinding, ...]:
        """Read an image that an engine exports: files in any order, of which each is a document or a layer."""
        archive = Archive(cast("BinaryIO", as_file(pieces)), self._budget)
        try:
            for member in archive:
                if member.size:
                    name = member.name.decode("utf-8", "backslashreplace").replace("blobs/sha256/", "sha256:")
                    self._add(name, self._file(name, member.size, archive.content()))
        except UnreadableError as problem:
            self._add("", [unread(f"the engine's export cannot be read: {problem}")])
        return tuple(self._found)

    def _add(self, digest: str, traces: Sequence[Trace]) -> None:
        self._found |= dict.fromkeys(SecretFinding(digest=digest, trace=trace) for trace in traces)

    def _manifest(self, manifest: Manifest) -> tuple[Sequence[Descriptor], Sequence[tuple[Descriptor, bool]]]:
        """Search a manifest, an index, or what is both. Return the manifests and the blobs that it names."""
        self._add(manifest.digest, self._document(manifest.content))
        try:
            names = parse_object(manifest.content).keys()
            index = manifest.index.manifests if "manifests" in names else ()
            image = manifest.image
        except InvalidDocument as error:
            self._add(manifest.digest, [unread(f"it is not a readable manifest: {error}")])
            return (), ()
        exact = {name for name in names if name.lower() in PARTS}
        if not exact or not exact <= PARTS:
            # Go's parser takes names in any case.
            self._add(manifest.digest, [unread("it is neither an image manifest nor an index")])
        configs = [(image.config, False)] if image.config else []
        return index, [*configs, *((layer, True) for layer in image.layers)]

    def _config(self, registry: Registry, config: Descriptor) -> Sequence[Trace]:
        return self._document(read_blob(registry, config))

    def _document(self, content: bytes) -> Sequence[Trace]:
        try:
            return search_document(content, read_document(content), self._searches)
        except UnreadableError as problem:
            return [unread(str(problem))]

    def _layer(self, registry: Registry, layer: Descriptor) -> Sequence[Trace]:
        if reason := lies_elsewhere(layer.media_type):
            return [unread(reason)]
        if layer.media_type.endswith("json") and layer.size <= MAX_BYTES:  # BuildKit's attestations
            return self._document(read_blob(registry, layer))
        told = f"{layer.digest} {layer.media_type} {READER} {self._searches.everywhere.fingerprint}"
        key = hashlib.sha256(told.encode()).hexdigest()
        place = self._cache / f"{key}.json" if self._cache else None
        if place and (known := _read(place)) is not None:
            self._on_progress(ScanProgress(digest=layer.digest, searched=0, ended=True, from_cache=True))
            return known
        found = self._search(layer.digest, registry.blob(layer.digest), layer.media_type)
        if place and not any(trace.kind == "unread" for trace in found):
            write_atomically(place, json.dumps([asdict(trace) for trace in found]))
        return found

    def _file(self, name: str, size: int, content: Iterator[bytes]) -> Sequence[Trace]:
        if size > MAX_BYTES:
            return self._search(name, content)
        whole = b"".join(content)
        try:
            return search_document(whole, read_document(whole), self._searches)
        except UnreadableError:
            return self._search(name, iter([whole]))

    def _search(self, digest: str, pieces: Iterator[bytes], media_type: str = "") -> Sequence[Trace]:
        searched = 0

        def on_bytes(count: int) -> None:
            nonlocal searched
            searched += count
            self._on_progress(ScanProgress(digest=digest, searched=searched))

        found = search_layer(pieces, self._searches.everywhere, self._budget, on_bytes, media_type)
        self._on_progress(ScanProgress(digest=digest, searched=searched, ended=True))
        return found


def require_clean(image: str, findings: Sequence[SecretFinding]) -> None:
    """Raise `LeakFound` with every finding, unless there is none."""
    if not findings:
        return
    listed = "\n".join(f"  {finding.text}" for finding in findings)
    unread_parts = sum(finding.trace.kind == "unread" for finding in findings)
    counts = (
        (len(findings) - unread_parts, "thing", "that must not leave this machine"),
        (unread_parts, "part", "that cannot be read completely"),
    )
    held = " and ".join(f"{n} {noun}{'' if n == 1 else 's'} {what}" for n, noun, what in counts if n)
    error = LeakFound(
        f"{image} holds {held}:\n{listed}\n",
        next_step="Take it out of where it came from and build again: what a later layer deletes is still there. "
        "A secret that has been in an image elsewhere must be replaced. A part that cannot be read may hold anything: "
        "build its layer as a tar archive, compressed with gzip or zstd.",
    )
    error.details = {"findings": [document(finding) for finding in findings]}
    raise error


def document(finding: SecretFinding) -> dict[str, str]:
    """A finding as a JSON object."""
    return {"digest": finding.digest, **asdict(finding.trace)}


def _read(place: Path) -> Sequence[Trace] | None:
    try:
        return validate(tuple[Trace, ...], parse_json(place.read_bytes()))
    except (OSError, InvalidDocument):
        return None
