"""Read tar archives forward, strictly and within limits; write small ones.

What another reader may understand differently is refused: layers are ustar with extensions of pax and GNU (image
specification, layer.md). `tarfile` is not safe on Python 3.11.2, which Debian 12 has: it loops on negative sizes
(CVE-2025-8194), backtracks in PAX records (CVE-2024-6232), and reads an extended header of any size into memory.
"""

import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import BinaryIO

MAX_MEMBERS = 1_000_000  # members of one archive. The largest layer of our images has 60,000
MAX_SIZE = 1 << 40  # bytes of one member

MAX_EXTENDED = 1 << 20
"""Bytes of extended headers before one member: the limit of Go's reader (archive/tar, maxSpecialFileSize)."""

MAX_NAME = 4096  # bytes of a name (Linux, `PATH_MAX`)
MAX_NAMES = 128 << 20  # bytes of all names of an archive, which a reader may keep in memory
PIECE = 1 << 20  # bytes that are read at once

BLOCK = tarfile.BLOCKSIZE

END = bytes(2 * BLOCK)  # the end of an archive

FILES = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE})
"""Types of members with content (POSIX.1-2017, pax, "ustar Interchange Format")."""

HEADER_ONLY = frozenset(
    {tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE}
)
"""Types without content. The standard lets a hard link have content, but Go's reader does not."""

LONG_NAMES = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
EXTENDED = frozenset({*LONG_NAMES, tarfile.XHDTYPE, tarfile.XGLTYPE})

_OCTAL = re.compile(rb"[0-7]+[ \0]*")
_SIZE = slice(124, 136)  # of a header (POSIX.1-2017, pax, "ustar Interchange Format")


def states_size(header: bytes) -> bool:
    """Return whether the size in a header means the same to every reader: plain octal, or GNU's base 256.

    With blanks before or between the digits, or without any, readers differ.
    """
    return header[_SIZE.start] == 0x80 or _OCTAL.fullmatch(header[_SIZE]) is not None


def stream_member(name: str, size: int, pieces: Iterable[bytes], mode: int = 0o644) -> Iterator[bytes]:
    """Yield a file of an archive that is written as it is sent; `pieces` have `size` bytes together."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, mode
    # GNU's format has sizes above 8 GiB in the same block.
    yield info.tobuf(tarfile.GNU_FORMAT)
    yield from pieces
    yield bytes(-size % BLOCK)


def make_archive(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Return an archive of files by path, with content and mode. It is reproducible: without times and users.

    tarfile pads an archive to 10 kB, which Podman 4.3 does not read: it fails with a broken pipe.
    """
    members = (
        stream_member(name.lstrip("/"), len(content), [content], mode) for name, (content, mode) in files.items()
    )
    return b"".join([*chain.from_iterable(members), END])


class InvalidArchive(ValueError):
    """The archive is malformed, ambiguous or beyond a limit; the text says where and why."""


class TarReader:
    """Iterate over the members of an uncompressed tar archive to the end of its stream.

    The content of the current member can be read once. A member's `pax_headers` include global records that precede it.
    Raises `InvalidArchive`.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._position, self._left, self._padding = 0, 0, 0

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        members, names = 0, 0
        while (member := self._next()) is not None:
            members, names = members + 1, names + len(member.name) + len(member.linkname)
            if members > MAX_MEMBERS:
                raise InvalidArchive(f"it has more than {MAX_MEMBERS} members")
            if names > MAX_NAMES:
                raise InvalidArchive(f"its names have more than {MAX_NAMES} bytes")
            yield member

    def content(self) -> Iterator[bytes]:
        """Yield the rest of the current member's content."""
        while self._left:
            piece = self._read(min(PIECE, self._left))
            self._left -= len(piece)
            yield piece

    def read(self, max_bytes: int) -> bytes:
        """Return the rest of the current member's content. Raises `InvalidArchive` if it exceeds `max_bytes`."""
        if self._left > max_bytes:
            raise self._error(f"a member has {self._left} bytes, and at most {max_bytes} are allowed")
        return b"".join(self.content())

    def _next(self) -> tarfile.TarInfo | None:
        """Return the next member with its extended headers applied; None at the end."""
        self._skip()
        start, extended = self._position, False
        records: dict[str, str] = {}
        while (block := self._block()) is not None:
            member, kind = self._parse_header(block), block[156:157]
            if kind not in EXTENDED:
                return self._apply(member, kind, records, start)
            if self._position - start + member.size > MAX_EXTENDED:
                raise self._error(f"it has an extended header of more than {MAX_EXTENDED} bytes")
            self._left, self._padding, extended = member.size, -member.size % BLOCK, True
            content = self.read(MAX_EXTENDED)
            self._skip()
            if kind in LONG_NAMES:
                found = {LONG_NAMES[kind]: _text(content.partition(b"\0")[0])}
            else:
                found = self._parse_records(content)
            identifying = found.keys() & {"path", "linkpath", "size"}
            if identifying & records.keys() or (identifying and kind == tarfile.XGLTYPE):
                raise self._error("its extended headers name a member twice, or name all members")
            records |= found
        if extended:
            raise self._error("it ends after an extended header")
        return None

    def _apply(self, member: tarfile.TarInfo, kind: bytes, records: dict[str, str], start: int) -> tarfile.TarInfo:
        """Complete a member with its extended headers."""
        if kind not in FILES | HEADER_ONLY:
            raise self._error(f"it has a member of type {kind!r}, which is not supported")
        member.offset, member.offset_data, member.pax_headers = start, self._position, records
        member.name = records.get("path", member.name).rstrip("/")
        member.linkname = records.get("linkpath", member.linkname)
        if "size" in records:
            member.size = self._parse_size(records["size"])
        if max(len(member.name), len(member.linkname)) > MAX_NAME:
            raise self._error(f"it has a name of more than {MAX_NAME} bytes")
        if "\0" in member.name + member.linkname:
            raise self._error("it has a name with a zero byte")
        if member.size and (kind in HEADER_ONLY or member.isdir()):
            raise self._error("it has a link, device or folder with content")
        self._left, self._padding = member.size, -member.size % BLOCK
        return member

    def _block(self) -> bytes | None:
        """Return the next header's block; None at the end of the archive."""
        block = self._source.read(BLOCK)
        self._position += len(block)
        if not block:
            return None
        if len(block) < BLOCK:
            raise self._error("it breaks off")
        if block.count(0) < BLOCK:
            return block
        while piece := self._source.read(PIECE):
            if piece.count(0) < len(piece):
                raise self._error("something follows its end")
        return None

    def _parse_header(self, block: bytes) -> tarfile.TarInfo:
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.TarError, ValueError) as error:
            what = "it is not a tar archive, or a header" if self._position == BLOCK else "a header"
            raise self._error(f"{what} is wrong: {error}") from None
        if block[257:263] != b"ustar\0":
            # GNU's form has times in the place of the name's beginning.
            member.name = _text(block[:100].partition(b"\0")[0])
        if not states_size(block) or not 0 <= member.size <= MAX_SIZE:
            raise self._error(f"a header states a size of {member.size} bytes, as {block[_SIZE]!r}")
        return member

    def _parse_records(self, content: bytes) -> dict[str, str]:
        """Return PAX records: `LENGTH NAME=VALUE` and a line feed (POSIX, pax, "pax Extended Header")."""
        found: dict[str, str] = {}
        start = 0
        while start < len(content):
            digits, blank, _ = content[start : start + 20].partition(b" ")
            length = self._parse_size(_text(digits)) if blank else 0
            record = content[start + len(digits) + 1 : start + length]
            name, equals, value = record[:-1].partition(b"=")
            if not (name and equals) or not record.endswith(b"\n") or start + length > len(content):
                raise self._error("a PAX record is wrong")
            if name.startswith(b"GNU.sparse"):
                raise self._error("it has a sparse file")
            found[_text(name)] = _text(value)
            start += length
        return found

    def _parse_size(self, text: str) -> int:
        number = int(text) if len(text) < 20 and text.isascii() and text.isdigit() else MAX_SIZE + 1
        if number > MAX_SIZE:
            raise self._error(f"a header states a size of {text[:40]!r}")
        return number

    def _skip(self) -> None:
        """Move behind the current member."""
        left = self._left + self._padding
        while left:
            left -= len(self._read(min(PIECE, left)))
        self._left, self._padding = 0, 0

    def _read(self, count: int) -> bytes:
        piece = self._source.read(count)
        self._position += len(piece)
        if not piece:
            raise self._error("it breaks off")
        return piece

    def _error(self, reason: str) -> InvalidArchive:
        return InvalidArchive(f"{reason} (before byte {self._position})")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")
