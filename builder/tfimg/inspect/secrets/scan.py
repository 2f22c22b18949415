"""Search the image that an engine exports, before it is pushed. Parts that cannot be read are findings too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tfimg.core.documents import MAX_BYTES, InvalidDocument
from tfimg.core.files import open_chunks
from tfimg.core.tar import InvalidArchive, TarReader
from tfimg.engine.export import saved_image
from tfimg.inspect.limits import Budget, Limits, UnreadableError
from tfimg.inspect.secrets.document_scan import search_document
from tfimg.inspect.secrets.findings import SecretFinding, make_unread_finding
from tfimg.inspect.secrets.layer_scan import search_layer
from tfimg.inspect.secrets.search import Search, Secret

MANIFEST = "manifest.json"
"""The file of an export that names the layers of its image."""

MAX_SHOWN_PATH = 300
"""Characters of a file's name in a finding."""

OnBytes = Callable[[str, int], object]
"""Gets the name of a blob, and how many of its unpacked bytes have been searched."""


def scan_export(
    pieces: Iterator[bytes],
    secrets: Sequence[Secret],
    *,
    on_bytes: OnBytes = lambda *_: None,
    limits: Limits | None = None,
) -> tuple[SecretFinding, ...]:
    """Search every layer, configuration, manifest and annotation of an exported image (`Engine.export`).

    Each file of the export is a document or a layer. A containerd store exports the blobs that it pushes, a classic
    store the archives that it compresses when it pushes. A layer that the export lacks is a finding.
    """
    search, budget = Search(secrets), Budget(limits or Limits())
    found: dict[SecretFinding, None] = {}
    names: set[str] = set()
    layers: Sequence[str] = ()
    reader = TarReader(open_chunks(pieces))
    try:
        for member in reader:
            budget.add_member()
            names.add(member.name)
            blob = member.name.replace("blobs/sha256/", "sha256:")
            whole = reader.read(MAX_BYTES) if member.size <= MAX_BYTES else None
            if member.name == MANIFEST:
                layers = saved_image(whole or b"").layers
            content = reader.content() if whole is None else iter([whole])
            findings = _search_file(whole, content, search, budget, _count(blob, on_bytes)) if member.size else ()
            for finding in findings:
                path = search.hide(finding.path)[:MAX_SHOWN_PATH]
                found[replace(finding, path=path, digest=blob)] = None
        if missing := [name for name in (MANIFEST, *layers) if name not in names]:
            raise InvalidArchive(f"it lacks {missing[0]}")
    except (InvalidArchive, InvalidDocument) as error:
        found[make_unread_finding(f"the engine's export cannot be read: {error}")] = None
    return tuple(found)


def _search_file(
    whole: bytes | None, content: Iterator[bytes], search: Search, budget: Budget, on_bytes: Callable[[int], None]
) -> Sequence[SecretFinding]:
    if whole is not None:
        try:
            return search_document(whole, search)
        except UnreadableError:
            pass
    return search_layer(content, search, budget, on_bytes)


def _count(blob: str, on_bytes: OnBytes) -> Callable[[int], None]:
    """Return a function that adds up the bytes of a blob."""
    searched = 0

    def add(count: int) -> None:
        nonlocal searched
        searched += count
        on_bytes(blob, searched)

    return add
