"""An image → what in it must not leave this machine. Nothing is judged to be clean that was not read to its end."""

from __future__ import annotations

import hashlib
import itertools
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from tfimg.cancellation import check
from tfimg.contents.images import LARGEST_DOCUMENT, open_image, read_blob
from tfimg.contents.unpack import PIECE
from tfimg.engine.pieces import as_file
from tfimg.errors import LeakFound
from tfimg.leaks.places import Trace, in_document, in_layer, read_document
from tfimg.leaks.rules import RULES, SETTINGS, Rule
from tfimg.leaks.search import Search
from tfimg.registry.protocol import Descriptor, Registry
from tfimg.validation.text import plain
from tfimg.workspace import write_atomically


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
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
class Scanned:
    """How far a scan is: bytes of a layer that were searched, unpacked; `ended` once, `kept` where it was before."""

    digest: str
    searched: int
    ended: bool = False
    kept: bool = False


Told = Callable[[Scanned], object]


class _Searches:
    """What is looked for in layers, and, beside that, in documents."""

    def __init__(self, secrets: Sequence[Rule]) -> None:
        self.layers = Search([*secrets, *RULES])
        self.documents = Search([*secrets, *RULES, *SETTINGS])


def scan(
    registry: Registry,
    reference: str,
    secrets: Sequence[Rule],
    *,
    kept: Path | None = None,
    told: Told = lambda _: None,
) -> tuple[Finding, ...]:
    """Search an image in a registry: every layer, configuration and annotation of every platform.

    `secrets` are this machine's own values (`tfimg.leaks.own`). What was found in a layer is kept in the
    folder `kept`, so that a layer which images share is read once for the same secrets. Raises what a `Registry` does.
    """
    image, searches = open_image(registry, reference), _Searches(secrets)
    found: list[Finding] = []
    for manifest in (*image.indexes, *(one.manifest for one in image.images)):
        found += _in(manifest.digest, in_document(manifest.document, searches.documents))
    done: set[str] = set()
    for one in image.images:
        if one.configured:
            found += _in(one.configured.digest, in_document(one.config, searches.documents))
        for layer in one.layers:
            if layer.digest not in done:
                done.add(layer.digest)
                found += _in(layer.digest, _layer(registry, layer, searches, kept, told))
    return tuple(dict.fromkeys(found))


def scan_archive(
    pieces: Iterator[bytes], secrets: Sequence[Rule], *, told: Told = lambda _: None
) -> tuple[Finding, ...]:
    """Search an image that an engine exports (`Engine.export`), before it goes anywhere."""
    searches, found = _Searches(secrets), []
    with as_file(pieces) as source, tarfile.open(fileobj=source, mode="r|", bufsize=PIECE) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            name = member.name.replace("blobs/sha256/", "sha256:")
            content = _of_file(file)
            first = next(content, b"")
            document = read_document(first) if member.size <= LARGEST_DOCUMENT else None
            if document is not None:
                found += _in(name, in_document(document, searches.documents))
            else:
                whole = itertools.chain([first], content)
                found += _in(name, _searched(name, whole, searches.layers, told))
    return tuple(dict.fromkeys(found))


def require_clean(image: str, findings: Sequence[Finding]) -> None:
    """Raises `LeakFound` with every finding, unless there is none."""
    if not findings:
        return
    listed = "\n".join(f"  {finding.text}" for finding in findings)
    count = "1 thing" if len(findings) == 1 else f"{len(findings)} things"
    error = LeakFound(
        f"{image} holds {count} that must not leave this machine:\n{listed}\n",
        next_step="Take it out of where it came from and build again: what a later layer deletes is still there. "
        "A secret that has been in an image elsewhere must be replaced.",
    )
    error.details = {"findings": [document(finding) for finding in findings]}
    raise error


def document(finding: Finding) -> dict[str, str]:
    """A finding as a JSON object."""
    return {"digest": finding.digest, **asdict(finding.trace)}


def _in(digest: str, traces: Sequence[Trace]) -> list[Finding]:
    return [Finding(digest=digest, trace=trace) for trace in traces]


def _layer(
    registry: Registry, layer: Descriptor, searches: _Searches, kept: Path | None, told: Told
) -> Sequence[Trace]:
    if layer.media_type.endswith("json") and layer.size <= LARGEST_DOCUMENT:  # BuildKit's attestations
        content = read_blob(registry, layer)
        if (attestation := read_document(content)) is not None:
            return in_document(attestation, searches.documents)
    key = hashlib.sha256(f"{layer.digest} {searches.layers.fingerprint}".encode()).hexdigest()
    place = kept / f"{key}.json" if kept else None
    if place and (known := _read(place)) is not None:
        told(Scanned(digest=layer.digest, searched=0, ended=True, kept=True))
        return known
    found = _searched(layer.digest, registry.blob(layer.digest), searches.layers, told)
    if place:
        write_atomically(place, json.dumps([asdict(trace) for trace in found]))
    return found


def _searched(digest: str, pieces: Iterator[bytes], search: Search, told: Told) -> Sequence[Trace]:
    searched = 0

    def on_bytes(count: int) -> None:
        nonlocal searched
        check()
        searched += count
        told(Scanned(digest=digest, searched=searched))

    found = in_layer(pieces, search, on_bytes)
    told(Scanned(digest=digest, searched=searched, ended=True))
    return found


def _read(place: Path) -> Sequence[Trace] | None:
    try:
        return tuple(Trace(**trace) for trace in json.loads(place.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _of_file(file: IO[bytes]) -> Iterator[bytes]:
    """A file's content; the first piece of it is a whole document, where it is one."""
    yield file.read(LARGEST_DOCUMENT)
    while piece := file.read(PIECE):
        yield piece
