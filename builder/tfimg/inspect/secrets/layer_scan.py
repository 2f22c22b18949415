"""Search a layer: every byte, packed and unpacked, and the headers of its archive."""

from __future__ import annotations

import base64
import binascii
import itertools
import posixpath
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from tarfile import TarInfo

from tfimg.core.files import open_chunks
from tfimg.core.tar import InvalidArchive, TarReader
from tfimg.inspect.compression import MAGIC_BYTES, OUTPUT_BYTES, Compression, decompress, recognise
from tfimg.inspect.limits import Budget, LimitReached, UnreadableError
from tfimg.inspect.secrets.findings import SecretFinding
from tfimg.inspect.secrets.rules import Kind, classify_file_name, is_public
from tfimg.inspect.secrets.search import MAX_MATCHES, Match, Search, StreamSearch

READER_VERSION = 3
"""Version of this module's reading: cached results of another version are not reused."""

MAX_SHOWN_PATH = 300
"""Characters of a file's name in a finding."""

MEDIA_TYPE_COMPRESSION = {"gzip": "gzip", "zstd": "zstd", "tar": None}
"""Compression by the last word of a layer's media type (image specification, layer.md)."""

XATTR = "LIBARCHIVE.xattr."
"""libarchive writes extended attributes in base64; other programs write them as they are."""


def search_layer(
    pieces: Iterator[bytes], search: Search, budget: Budget, on_bytes: Callable[[int], None], media_type: str = ""
) -> Sequence[SecretFinding]:
    """Search every byte of a layer, packed and unpacked, and the headers of its archive.

    A part that cannot be read completely is a finding. Compressed files inside the layer (zip, `.gz`) are not unpacked.
    `on_bytes` gets the numbers of unpacked bytes. Raises the errors of reading `pieces`.
    """
    head, pieces = _peek(pieces)
    compression = recognise(head)
    scan = _LayerScan(search, budget, on_bytes)
    # The packed bytes too: decompression omits headers and skippable frames.
    source = open_chunks(scan.search_packed(pieces) if compression else scan.search_unpacked(pieces))
    if mismatch := _describe_mismatch(media_type, compression):
        scan.problems.append(mismatch)
    try:
        unpacked = open_chunks(scan.search_unpacked(decompress(source, compression, budget))) if compression else source
        for member in TarReader(unpacked):
            scan.add_member(member)
    except UnreadableError as error:
        scan.problems.append(str(error))
    except InvalidArchive as error:
        scan.problems.append(f"its archive cannot be read: {error}")
    try:
        # Search unreadable bytes as they are, and read to the end so that the digest is compared.
        while source.read(OUTPUT_BYTES):
            pass
    except LimitReached as error:
        scan.problems.append(str(error))
    return scan.close()


class _LayerScan:
    """The findings in one layer while it is read."""

    def __init__(self, search: Search, budget: Budget, on_bytes: Callable[[int], None]) -> None:
        self._budget, self._on_bytes = budget, on_bytes
        self._content, self._headers, self._packed = (StreamSearch(search) for _ in range(3))
        self.problems: list[str] = []
        self._named: list[SecretFinding] = []
        # The names of the files so far, and where their contents and headers begin in the streams.
        self._names: list[str] = []
        self._content_offsets: list[int] = []
        self._header_offsets: list[int] = []
        self._names_length = 0

    def search_packed(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Search the layer as it is in the registry."""
        for piece in pieces:
            self._packed.feed(piece)
            self._budget.add_bytes(len(piece))
            yield piece

    def search_unpacked(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Search the bytes of the archive."""
        for piece in pieces:
            self._content.feed(piece)
            self._budget.add_bytes(len(piece))
            self._on_bytes(len(piece))
            yield piece

    def add_member(self, member: TarInfo) -> None:
        """Search each text of a member's headers apart from its neighbours in the header."""
        self._budget.add_member()
        name = member.name[: 4 * MAX_SHOWN_PATH]
        self._names_length += len(name)
        if self._names_length > (limit := self._budget.limits.names_bytes):
            raise LimitReached(f"names of its files take more than {limit >> 20} MiB")
        self._names.append(name)
        self._content_offsets.append(member.offset)
        self._header_offsets.append(self._headers.length)
        self._headers.feed(b"\n" + b"\n\n".join(filter(None, _list_header_texts(member))) + b"\n")
        what = classify_file_name(_normalize(member.name)) if member.size or member.islnk() else None
        if what and len(self._named) < MAX_MATCHES:
            shown = f"({member.size} bytes)" if member.size else "(a hard link)"
            self._named.append(_make_finding(member.name, "credential file", what, shown))

    def close(self) -> Sequence[SecretFinding]:
        """Return all findings, each once."""
        found = dict.fromkeys(self._named)
        for stream, offsets in ((self._content, self._content_offsets), (self._headers, self._header_offsets)):
            for match in self._close(stream):
                index = bisect_right(offsets, match.offset) - 1
                found[_make_match_finding(match, self._names[index] if index >= 0 else "")] = None
        known = {(one.kind, one.what, one.shown) for one in found}
        packed = (_make_match_finding(match, "") for match in self._close(self._packed))
        found |= dict.fromkeys(one for one in packed if (one.kind, one.what, one.shown) not in known)
        secrets = [one for one in found if not is_public(posixpath.normpath(f"/{one.path}").lstrip("/"), one.kind)]
        return (*(_make_finding("", "unread", problem, "") for problem in dict.fromkeys(self.problems)), *secrets)

    def _close(self, stream: StreamSearch) -> Sequence[Match]:
        try:
            matches = stream.close()
        except LimitReached as error:
            self.problems.append(str(error))
            return ()
        if not stream.is_complete:
            self.problems.append(f"it has more than {MAX_MATCHES} matches, and the rest is not listed")
        return matches


def _list_header_texts(member: TarInfo) -> Iterator[bytes]:
    """Yield name, link target, owner, group and every PAX record. Raises `UnreadableError`."""
    for text in (member.name, member.linkname, member.uname, member.gname):
        yield text.encode("utf-8", "surrogateescape")
    for key, value in member.pax_headers.items():
        content = value.encode("utf-8", "surrogateescape")
        yield key.encode("utf-8", "surrogateescape") + b"=" + content
        if key.startswith(XATTR):
            try:
                yield base64.b64decode(content + b"==")
            except binascii.Error:
                raise UnreadableError("an extended attribute in its archive is malformed") from None


def _peek(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the bytes that identify a compression, and all bytes."""
    head = b""
    while len(head) < MAGIC_BYTES and (piece := next(pieces, None)) is not None:
        head += piece
    return head, itertools.chain([head], pieces)


def _make_match_finding(match: Match, name: str) -> SecretFinding:
    return _make_finding(name, match.kind, match.what, match.shown)


def _make_finding(name: str, kind: Kind, what: str, shown: str) -> SecretFinding:
    path = _format_name(name).removeprefix("./").rstrip("/")[:MAX_SHOWN_PATH]
    return SecretFinding(place="layer", path=path, kind=kind, what=what, shown=shown)


def _format_name(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _normalize(name: str) -> str:
    """Return the path to which an engine unpacks a member, without the leading slash."""
    return posixpath.normpath("/" + _format_name(name)).lstrip("/")


def _describe_mismatch(media_type: str, compression: Compression | None) -> str | None:
    """Describe how a layer's bytes differ from its media type: engines differ in which of the two they follow."""
    word = media_type.replace("+", ".").rpartition(".")[2]
    actual = compression.name if compression else None
    if word == "encrypted" or MEDIA_TYPE_COMPRESSION.get(word, actual) != actual:
        return f"its media type is {media_type}, and its bytes are {actual or 'not compressed'}"
    return None
