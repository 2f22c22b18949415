"""Search a layer: every byte, packed and unpacked, the headers of its archive, and compressed files within it."""

from __future__ import annotations

import base64
import binascii
import itertools
import tempfile
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tarfile import BLOCKSIZE, TarInfo

from tfimg.core.files import open_chunks
from tfimg.core.tar import InvalidArchive, TarReader
from tfimg.inspect.compression import DAMAGED, OUTPUT_BYTES, decompress, recognise
from tfimg.inspect.limits import Budget, LimitReached, UnreadableError
from tfimg.inspect.secrets.findings import SecretFinding
from tfimg.inspect.secrets.search import Match, Search, StreamSearch

MAX_DEPTH = 4
"""Containers within one another that are unpacked: a zip in a tar in a gzip file in a layer has three."""

MAX_ZIP_MEMBERS = 100_000
"""Files of one zip, whose list is in memory. The largest wheel of the matrix, of TensorFlow, has 13,000."""

SPOOLED_BYTES = 32 << 20
"""Bytes of a zip that are kept in memory; a larger one is copied to a temporary file, as its list is at its end."""

ZIP, ZIP_ENTRY = b"PK\x03\x04", b"PK\x01\x02"
"""Begins a zip; begins each entry of its list (APPNOTE, 4.3.7 and 4.3.12)."""

BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, RuntimeError, *DAMAGED)
"""Errors of `zipfile` for damaged, encrypted and unknown members."""

XATTR = "LIBARCHIVE.xattr."
"""libarchive writes extended attributes in base64; other programs write them as they are."""


def search_layer(
    pieces: Iterator[bytes], search: Search, budget: Budget, on_bytes: Callable[[int], None]
) -> Sequence[SecretFinding]:
    """Search every byte of a layer, packed and unpacked, and the headers of its archive.

    A part of the layer that cannot be read completely is a finding. Files that are compressed (gzip, zstd, xz, bzip2)
    or a zip are searched unpacked too, as far as they can be read. `on_bytes` gets the numbers of unpacked bytes.
    Raises the errors of reading `pieces`.
    """
    head, pieces = _peek(pieces)
    compression = recognise(head)
    scan = _LayerScan(search, budget, on_bytes)
    # The packed bytes too: decompression omits headers and skippable frames.
    source = open_chunks(scan.search_packed(pieces) if compression else scan.search_unpacked(pieces))
    try:
        unpacked = open_chunks(scan.search_unpacked(decompress(source, compression))) if compression else source
        reader = TarReader(unpacked)
        for member in reader:
            scan.add_member(member)
            scan.unpack(reader.content(), _format_name(member.name))
    except UnreadableError as error:
        scan.problems.append(str(error))
    except InvalidArchive as error:
        scan.problems.append(f"its archive cannot be read: {error}")
    try:
        # Search unreadable bytes as they are, and read to the end.
        while source.read(OUTPUT_BYTES):
            pass
    except LimitReached as error:
        scan.problems.append(str(error))
    return scan.close()


class _LayerScan:
    """The findings in one layer while it is read."""

    def __init__(self, search: Search, budget: Budget, on_bytes: Callable[[int], None]) -> None:
        self._search, self._budget, self._on_bytes = search, budget, on_bytes
        self._content, self._headers, self._packed = (StreamSearch(search) for _ in range(3))
        self.problems: list[str] = []
        self._found: dict[SecretFinding, None] = {}
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
        return self._tee(pieces, self._content)

    def _tee(self, pieces: Iterator[bytes], stream: StreamSearch) -> Iterator[bytes]:
        for piece in pieces:
            stream.feed(piece)
            self._budget.add_bytes(len(piece))
            self._on_bytes(len(piece))
            yield piece

    def add_member(self, member: TarInfo) -> None:
        """Search each text of a member's headers apart from its neighbours in the header."""
        self._budget.add_member()
        self._names_length += len(member.name)
        if self._names_length > (limit := self._budget.limits.names_bytes):
            raise LimitReached(f"names of its files take more than {limit >> 20} MiB")
        self._names.append(_format_name(member.name))
        self._content_offsets.append(member.offset)
        self._header_offsets.append(self._headers.length)
        self._headers.feed(b"\n" + b"\n\n".join(filter(None, _list_header_texts(member))) + b"\n")

    def unpack(self, pieces: Iterator[bytes], name: str, depth: int = MAX_DEPTH) -> None:
        """Search what a file has compressed, `depth` containers deep; its bytes as they are, are searched elsewhere.

        What is damaged or encrypted is not a finding: packages bring such files for their tests.
        """
        if depth == 0:
            return
        head, pieces = _peek(pieces)
        if compression := recognise(head):
            self._search_inner(decompress(open_chunks(pieces), compression), name, depth - 1)
        elif head.startswith(ZIP):
            self._unpack_zip(pieces, name, depth - 1)
        elif head[257:262] == b"ustar":
            with _as_far_as_readable():
                reader = TarReader(open_chunks(pieces))
                for member in reader:
                    self._budget.add_member()
                    self.unpack(reader.content(), f"{name}!{_format_name(member.name)}", depth - 1)

    def _search_inner(self, pieces: Iterator[bytes], name: str, depth: int) -> None:
        stream = StreamSearch(self._search)
        searched = self._tee(pieces, stream)
        with _as_far_as_readable():
            self.unpack(searched, name, depth)
            for _ in searched:
                pass
        for match in stream.close():
            self._add_match(match, name)

    def _unpack_zip(self, pieces: Iterator[bytes], name: str, depth: int) -> None:
        entries = 0
        with tempfile.SpooledTemporaryFile(max_size=SPOOLED_BYTES) as spool:
            for piece in pieces:
                entries += piece.count(ZIP_ENTRY)
                try:
                    spool.write(piece)
                except OSError as error:
                    raise LimitReached(f"there is no space to unpack a zip of it: {error}") from None
            if entries > MAX_ZIP_MEMBERS:
                raise LimitReached(f"it has a zip with more than {MAX_ZIP_MEMBERS} files")
            try:
                archive = zipfile.ZipFile(spool)
            except BROKEN_ZIP:
                return
            for member in archive.infolist():
                self._budget.add_member()
                self._search_inner(_read_zip_member(archive, member), f"{name}!{member.filename}", depth)

    def _add_match(self, match: Match, name: str) -> None:
        secret = match.secret
        path = name.removeprefix("./").rstrip("/")
        finding = SecretFinding(place="layer", path=path, kind=secret.kind, what=secret.what, form=match.form)
        self._found[finding] = None

    def close(self) -> Sequence[SecretFinding]:
        """Return all findings, each once."""
        for stream, offsets in ((self._content, self._content_offsets), (self._headers, self._header_offsets)):
            for match in stream.close():
                index = bisect_right(offsets, match.offset) - 1
                self._add_match(match, self._names[index] if index >= 0 else "")
        known = {(finding.kind, finding.what) for finding in self._found}
        for match in self._packed.close():
            if (match.secret.kind, match.secret.what) not in known:
                self._add_match(match, "")
        problems = (
            SecretFinding(place="layer", path="", kind="unread", what=what) for what in dict.fromkeys(self.problems)
        )
        return (*problems, *self._found)


@contextmanager
def _as_far_as_readable() -> Iterator[None]:
    """Continue behind data that cannot be read; a limit ends the search."""
    try:
        yield
    except LimitReached:
        raise
    except InvalidArchive:
        pass


def _read_zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    try:
        with archive.open(member) as content:
            while piece := content.read(OUTPUT_BYTES):
                yield piece
    except BROKEN_ZIP as error:
        raise UnreadableError(f"its zip data is damaged or encrypted: {error}") from None


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
    """Return the bytes that identify a compression or an archive, and all bytes."""
    head = b""
    while len(head) < BLOCKSIZE and (piece := next(pieces, None)) is not None:
        head += piece
    return head, itertools.chain([head], pieces)


def _format_name(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
