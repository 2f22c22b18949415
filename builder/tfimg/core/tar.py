"""Read tar archives from outside, forward and within limits.

`tarfile` is not safe for that on Python 3.11.2, which Debian 12 has: it loops on negative sizes (CVE-2025-8194),
backtracks in PAX records (CVE-2024-6232), and reads an extended header of any size into memory.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import BinaryIO

MAX_MEMBERS = 1_000_000
"""Members of one archive. The largest layer of our images has 60,000."""

MAX_SIZE = 1 << 40
"""Bytes of one member."""

MAX_EXTENDED = 1 << 20
"""Bytes of extended headers before one member: long names and PAX records. Linux allows 64 KiB per attribute."""

MAX_NAME = 4096
"""Bytes of a name (Linux, `PATH_MAX`)."""

MAX_NAMES = 128 << 20
"""Bytes of all names of an archive, which a reader may keep in memory."""

PIECE = 1 << 20
"""Bytes that are read at once."""

BLOCK = tarfile.BLOCKSIZE

HEADER_ONLY = frozenset(
    {tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE}
)
"""Types without content, whatever their size says, as in Go's archive/tar, with which engines unpack layers."""

LONG_NAMES = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
EXTENDED = frozenset({*LONG_NAMES, tarfile.XHDTYPE, tarfile.XGLTYPE})


class InvalidArchive(ValueError):
    """An archive from outside is malformed or beyond a limit; the text says where and why."""


class TarReader:
    """Iterate over the members of an uncompressed tar archive; of the present one, the content can be read once.

    Each member has its name, link target, PAX records, type, stored size and place. Sparse files are not expanded:
    their content is what the archive stores. A seekable source is not read where its content is not asked for.
    """

    def __init__(self, source: BinaryIO, *, max_members: int = MAX_MEMBERS, max_names: int = MAX_NAMES) -> None:
        self._source, self._max_members, self._max_names = source, max_members, max_names
        self._end = source.seek(0, 2) if source.seekable() else None
        if self._end is not None:
            source.seek(0)
        self._at = 0
        self._left, self._padding = 0, 0

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        """Yield the members. Raises `InvalidArchive`."""
        members, names = 0, 0
        while (member := self._next()) is not None:
            members, names = members + 1, names + len(member.name) + len(member.linkname)
            if members > self._max_members:
                raise InvalidArchive(f"it has more than {self._max_members} members")
            if names > self._max_names:
                raise InvalidArchive(f"its names have more than {self._max_names} bytes")
            yield member

    def content(self) -> Iterator[bytes]:
        """Yield what is left of the present member's content. Raises `InvalidArchive` if the archive breaks off."""
        while self._left:
            piece = self._source.read(min(PIECE, self._left))
            if not piece:
                raise self._broken("it breaks off")
            self._left -= len(piece)
            self._at += len(piece)
            yield piece

    def read(self, max_bytes: int) -> bytes:
        """Return what is left of the present member's content. Raises `InvalidArchive` if that is too much."""
        if self._left > max_bytes:
            raise self._broken(f"a member has {self._left} bytes, and at most {max_bytes} are allowed")
        return b"".join(self.content())

    def _next(self) -> tarfile.TarInfo | None:
        """Return the next member with its extended headers applied; None at the end."""
        self._skip()
        start, extended = self._at, False
        records: dict[str, str] = {}
        while (block := self._block()) is not None:
            member = self._header(block)
            if block[156:157] not in EXTENDED:
                return self._member(member, block, records, start)
            if self._at - start + member.size > MAX_EXTENDED:
                raise self._broken(f"it has an extended header of more than {MAX_EXTENDED} bytes")
            self._left, self._padding, extended = member.size, -member.size % BLOCK, True
            content = self.read(MAX_EXTENDED)
            self._skip()
            if name := LONG_NAMES.get(block[156:157]):
                records[name] = _text(content.partition(b"\0")[0])
            elif block[156:157] == tarfile.XHDTYPE:  # global records mean nothing to engines (Go's archive/tar)
                records |= self._records(content)
        if extended:
            raise self._broken("it ends behind an extended header")
        return None

    def _member(self, member: tarfile.TarInfo, block: bytes, records: dict[str, str], start: int) -> tarfile.TarInfo:
        member.offset, member.pax_headers = start, records
        member.name = records.get("GNU.sparse.name", records.get("path", member.name)).rstrip("/")
        member.linkname = records.get("linkpath", member.linkname)
        if max(len(member.name), len(member.linkname)) > MAX_NAME:
            raise self._broken(f"it has a name of more than {MAX_NAME} bytes")
        if "\0" in member.name + member.linkname:
            raise self._broken("it has a name with a zero byte")
        if "size" in records:
            member.size = self._number(records["size"])
        if block[156:157] == tarfile.GNUTYPE_SPARSE:
            self._skip_sparse_map(block)
        if block[156:157] in HEADER_ONLY:
            member.size = 0
        member.offset_data = self._at
        if self._end is not None and self._at + member.size > self._end:
            raise self._broken("it breaks off")
        self._left, self._padding = member.size, -member.size % BLOCK
        return member

    def _skip_sparse_map(self, block: bytes) -> None:
        """Skip the blocks of an old GNU sparse map (GNU tar, "Sparse Formats"), each of which announces the next."""
        start, more = self._at, block[482]
        while more:
            following = self._source.read(BLOCK)
            self._at += len(following)
            if len(following) < BLOCK or self._at - start > MAX_EXTENDED:
                raise self._broken("its sparse map has no end")
            more = following[504]

    def _block(self) -> bytes | None:
        """Return the next header's block; None at the end of the archive."""
        block = self._source.read(BLOCK)
        self._at += len(block)
        if not block:
            return None
        if len(block) < BLOCK:
            raise self._broken("it breaks off")
        if block.count(0) < BLOCK:
            return block
        if self._source.read(BLOCK).strip(b"\0"):
            raise self._broken("something follows its end")
        return None

    def _header(self, block: bytes) -> tarfile.TarInfo:
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.TarError, ValueError) as error:
            raise self._broken(f"a header is wrong: {error}") from None
        if not 0 <= member.size <= MAX_SIZE:
            raise self._broken(f"a header states a size of {member.size} bytes")
        return member

    def _records(self, content: bytes) -> dict[str, str]:
        """Return PAX records: `LENGTH NAME=VALUE` and a line feed (POSIX, pax, "pax Extended Header")."""
        found, at = {}, 0
        while at < len(content):
            digits, blank, _ = content[at : at + 20].partition(b" ")
            length = self._number(_text(digits)) if blank else 0
            record = content[at + len(digits) + 1 : at + length]
            name, equals, value = record[:-1].partition(b"=")
            if not equals or not record.endswith(b"\n") or at + length > len(content):
                raise self._broken("a PAX record is wrong")
            found[_text(name)] = _text(value)
            at += length
        return found

    def _number(self, text: str) -> int:
        number = int(text) if len(text) < 20 and text.isascii() and text.isdigit() else MAX_SIZE + 1
        if number > MAX_SIZE:
            raise self._broken(f"a header states a size of {text[:40]!r}")
        return number

    def _skip(self) -> None:
        """Go behind the present member."""
        left = self._left + self._padding
        if self._end is not None:
            self._at = self._source.seek(self._at + left)
        else:
            while left:
                piece = self._source.read(min(PIECE, left))
                if not piece:
                    raise self._broken("it breaks off")
                left -= len(piece)
                self._at += len(piece)
        self._left, self._padding = 0, 0

    def _broken(self, why: str) -> InvalidArchive:
        return InvalidArchive(f"{why} (before byte {self._at})")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")
