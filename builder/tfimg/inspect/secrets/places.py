"""Where to look in an image: in every byte of its layers, and in every text of its documents."""

from __future__ import annotations

import base64
import binascii
import itertools
import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from tfimg.core.documents import InvalidDocument, parse_json
from tfimg.core.streams import as_file
from tfimg.inspect.secrets.archive import Archive, Member
from tfimg.inspect.secrets.compression import MAGIC, PIECE, Compression, recognise, unpack
from tfimg.inspect.secrets.limits import Budget, LimitReached, UnreadableError
from tfimg.inspect.secrets.rules import RULES, SETTINGS, Kind, Rule, classify_file_name, public
from tfimg.inspect.secrets.search import MAX_MATCHES, Match, Search, StreamSearch
from tfimg.inspect.secrets.tokens import TokenSearch

Place = Literal["layer", "environment", "label", "history", "annotation", "configuration", "document"]

READER = 2
"""Version of what this module reads of a layer: results of another one are not used again."""

MAX_SHOWN_PATH = 300
"""Characters of a file's name that a finding shows."""

LIES = {"gzip": "gzip", "zstd": "zstd", "tar": None}
"""What the last word of a layer's media type says of its compression (image specification, layer.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """Something that must not be in an image: where in it, and what. `path` is a file's, or a text's in a document."""

    place: Place
    path: str
    kind: Kind
    what: str
    shown: str


def search_layer(
    pieces: Iterator[bytes],
    search: Search,
    budget: Budget,
    on_bytes: Callable[[int], None],
    media_type: str = "",
) -> Sequence[Trace]:
    """Search every byte of a layer, packed and unpacked, and all that its archive says of files.

    What cannot be read completely is a finding. What lies compressed inside a file (a zip, a `.gz`) is not unpacked.
    `on_bytes` gets the numbers of bytes that were unpacked. Raises what reading `pieces` does.
    """
    head, pieces = _begin(pieces)
    compression = recognise(head)
    reading = _Reading(search, budget, on_bytes, is_compressed=compression is not None)
    source = as_file(reading.packed(pieces))
    if lie := _lie(media_type, compression):
        reading.problems.append(lie)
    try:
        unpacked = as_file(reading.unpacked(unpack(source, compression, budget))) if compression else source
        for member in Archive(unpacked, budget):
            reading.add_member(member)
    except UnreadableError as problem:
        reading.problems.append(str(problem))
    try:
        # What no reader understands is searched as it is; and what the digest is of is read to its end.
        while source.read(PIECE):
            pass
    except LimitReached as problem:
        reading.problems.append(str(problem))
    return reading.close()


class Searches:
    """What is searched for everywhere, and in documents alone."""

    def __init__(self, secrets: Sequence[Rule]) -> None:
        self.everywhere = Search([*secrets, *RULES], TokenSearch())
        self.documents = _settings()


@cache
def _settings() -> Search:
    return Search(SETTINGS)


class _Reading:
    """What is found in one layer while it is read."""

    def __init__(self, search: Search, budget: Budget, on_bytes: Callable[[int], None], *, is_compressed: bool) -> None:
        self._budget, self._on_bytes = budget, on_bytes
        self._content, self._texts = StreamSearch(search), StreamSearch(search)
        self._packed = StreamSearch(search) if is_compressed else None
        self.problems: list[str] = []
        self._named: list[Trace] = []
        self._members, self._described = _Names(), _Names()

    def packed(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Search the layer as it is in the registry: decompression leaves out headers and skippable frames."""
        if self._packed is None:
            yield from self.unpacked(pieces)
            return
        for piece in pieces:
            self._packed.feed(piece)
            self._budget.add_bytes(len(piece))
            yield piece

    def unpacked(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Search the archive."""
        for piece in pieces:
            self._content.feed(piece)
            self._budget.add_bytes(len(piece))
            self._on_bytes(len(piece))
            yield piece

    def add_member(self, member: Member) -> None:
        """Search what headers say of a file, each text apart from those that stand beside it in its header."""
        self._members.add(member.offset, member.name, self._budget)
        self._described.add(self._texts.length, member.name, self._budget)
        self._texts.feed(b"\n" + b"\n\n".join(member.texts) + b"\n")
        path = _normal(member.name)
        what = classify_file_name(path) if member.is_file else None
        if what and len(self._named) < MAX_MATCHES:
            shown = f"({member.size} bytes)" if member.size else "(a hard link)"
            self._named.append(_trace(member.name, "credential file", what, shown))

    def close(self) -> Sequence[Trace]:
        """Return everything that was found, each once."""
        traces = dict.fromkeys(self._named)
        for passing, names in ((self._content, self._members), (self._texts, self._described)):
            traces |= dict.fromkeys(_matched(match, names.at(match.offset)) for match in self._close(passing))
        known = {(trace.kind, trace.what, trace.shown) for trace in traces}
        packed = (_matched(match, b"") for match in (self._close(self._packed) if self._packed else ()))
        traces |= dict.fromkeys(one for one in packed if (one.kind, one.what, one.shown) not in known)
        leaks = [one for one in traces if not public(_normal(one.path.encode()), one.kind)]
        return (*(_trace(b"", "unread", problem, "") for problem in dict.fromkeys(self.problems)), *leaks)

    def _close(self, passing: StreamSearch) -> Sequence[Match]:
        try:
            matches = passing.close()
        except LimitReached as problem:
            self.problems.append(str(problem))
            return ()
        if not passing.is_complete:
            self.problems.append(f"it has more than {MAX_MATCHES} matches, and the rest is not listed")
        return matches


def _begin(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes, and all bytes: a piece may be shorter than what tells a compression."""
    head = b""
    while len(head) < MAGIC and (piece := next(pieces, None)) is not None:
        head += piece
    return head, itertools.chain([head], pieces)


class _Names:
    """Names of files by the offset at which something of theirs begins."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._names: list[bytes] = []
        self._bytes = 0

    def add(self, offset: int, name: bytes, budget: Budget) -> None:
        """Add the next name. Raises `LimitReached`."""
        name = name[: 4 * MAX_SHOWN_PATH]
        self._bytes += len(name)
        if self._bytes > budget.limits.names_bytes:
            raise LimitReached(f"names of its files take more than {budget.limits.names_bytes >> 20} MiB")
        self._starts.append(offset)
        self._names.append(name)

    def at(self, offset: int) -> bytes:
        """Return the name at an offset; empty where there is none."""
        found = bisect_right(self._starts, offset) - 1
        return self._names[found] if found >= 0 else b""


def _matched(match: Match, name: bytes) -> Trace:
    return _trace(name, match.kind, match.what, match.shown)


def _trace(name: bytes, kind: Kind, what: str, shown: str) -> Trace:
    path = name.decode("utf-8", "backslashreplace").removeprefix("./").rstrip("/")[:MAX_SHOWN_PATH]
    return Trace(place="layer", path=path, kind=kind, what=what, shown=shown)


def _normal(name: bytes) -> str:
    """Return a member's path as an engine unpacks it, without a slash at its beginning."""
    return posixpath.normpath("/" + name.decode("utf-8", "backslashreplace")).lstrip("/")


def lies_elsewhere(media_type: str) -> str | None:
    """Say that a layer's content need not be in the registry (image specification, layer.md, "Non-distributable")."""
    if "nondistributable" in media_type or ".foreign." in media_type:
        return f"its media type {media_type} says that registries need not have it"
    return None


def _lie(media_type: str, compression: Compression | None) -> str | None:
    """Say how a layer's bytes differ from its media type: engines differ in which of the two they follow."""
    word = media_type.replace("+", ".").rpartition(".")[2]
    found = compression.name if compression else None
    if word == "encrypted" or LIES.get(word, found) != found:
        return f"its media type is {media_type}, and its bytes are {found or 'not compressed'}"
    return None


PLACES: tuple[tuple[tuple[str, ...], Place], ...] = (
    (("config", "Env"), "environment"),
    (("config", "Labels"), "label"),
    (("history",), "history"),
    (("annotations",), "annotation"),
)
"""The beginnings of paths in an image's configuration, and in a manifest (image specification, config.md)."""


def search_document(content: bytes, document: object, searches: Searches) -> Sequence[Trace]:
    """Search every text of a JSON document, with the name that it has there, and the bytes that it was parsed from.

    A name that stands there twice has two values, of which parsers return one.
    """
    found: dict[Trace, None] = {}
    for path, text in _texts(document, ()):
        encoded = text.encode("utf-8", "surrogatepass")
        for match in (*_matches(encoded, searches.everywhere), *_matches(encoded, searches.documents)):
            found[_in_text(match, _place(path), _shown(path, text))] = None
    known = {(trace.kind, trace.what) for trace in found}
    for match in _matches(content, searches.everywhere):
        if (match.kind, match.what) not in known:
            found[_in_text(match, "document", "")] = None
    return tuple(found)


def _matches(text: bytes, search: Search) -> Sequence[Match]:
    passing = StreamSearch(search)
    passing.feed(text)
    return passing.close()


def _in_text(match: Match, place: Place, path: str) -> Trace:
    return Trace(place=place, path=path, kind=match.kind, what=match.what, shown=match.shown)


def _texts(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, str):
                yield (*path, name), f"{name}={inner}"
                yield from (((*path, name), text) for text in _embedded(name, inner))
            else:
                yield (*path, name), name
                yield from _texts(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, (*path, str(number)))
    elif isinstance(value, str):
        yield path, value


def _embedded(name: str, value: str) -> Iterator[str]:
    """Yield what a descriptor's `data` holds (image specification, descriptor.md)."""
    if name == "data":
        try:
            yield base64.b64decode(value).decode("latin-1")
        except (binascii.Error, ValueError):
            return  # no descriptor's


def _place(path: tuple[str, ...]) -> Place:
    for beginning, place in PLACES:
        if path[: len(beginning)] == beginning or (place == "annotation" and place + "s" in path):
            return place
    return "configuration"


def _shown(path: tuple[str, ...], text: str) -> str:
    """`PATH` of a variable, `title` of a label, `3.created_by` of a step; never what it says."""
    if path[:2] == ("config", "Env"):
        return text.partition("=")[0]
    for beginning, _ in PLACES:
        if path[: len(beginning)] == beginning:
            return ".".join(path[len(beginning) :])
    return ".".join(path)


def read_document(content: bytes) -> Any:
    """Return a JSON value. Raises `Unread`."""
    try:
        return parse_json(content)
    except InvalidDocument as error:
        raise UnreadableError(f"it is not a readable JSON document: {error}") from None


def unread(reason: str) -> Trace:
    """Return the finding that a part of an image cannot be read."""
    return Trace(place="document", path="", kind="unread", what=reason, shown="")
