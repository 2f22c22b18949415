"""Read the headers of a tar archive from a stream, strictly: what another reader may understand otherwise is refused.

`tarfile` of Python 3.11 does not end on negative sizes (CVE-2025-8194), reads headers of any size into memory, and ends
an archive silently at a damaged one. Layers are ustar with extensions of pax and GNU (image specification, layer.md).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from tfimg.inspect.secrets.limits import Budget, UnreadableError

BLOCK = 512
PIECE = 1 << 20

MAX_EXTENSION = 1 << 20
"""Bytes of an extended header or a long name: the limit of Go's reader (archive/tar, maxSpecialFileSize)."""

MAX_EXTENSIONS = 8
"""Extensions that one member may have: pax, GNU's two, and those of a tool that writes both."""

MAX_SIZE = 1 << 40
"""Bytes that a member may state."""

CONTENT = frozenset(b"07\0")
"""Type flags of members with content (POSIX.1-2017, pax, "ustar Interchange Format")."""

HEADER_ONLY = frozenset(b"123456")
"""Links, devices, folders and pipes. The standard lets a hard link have content, and Go's reader does not."""

XATTR = b"LIBARCHIVE.xattr."
"""libarchive writes extended attributes in base64; all others write them as they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A member of an archive. `offset` is that of its first header, `size` its content's.

    `texts` is what its headers say of it: name, link target, owner, group, and every record of pax.
    """

    name: bytes
    offset: int
    size: int
    is_link: bool
    texts: tuple[bytes, ...]

    @property
    def is_file(self) -> bool:
        """Whether it is a file with content, or a hard link to one."""
        return bool(self.size) or self.is_link


class Archive:
    """An archive in a stream; iterating reads member after member to the stream's end. Raises `Unread`."""

    def __init__(self, source: BinaryIO, budget: Budget) -> None:
        self._source, self._budget = source, budget
        self._at, self._left = 0, 0

    def __iter__(self) -> Iterator[Member]:
        while (member := self._member(self._at)) is not None:
            self._budget.add_member()
            padding, self._left = -member.size % BLOCK, member.size
            yield member
            for _ in self.content():
                pass
            self._exactly(padding)

    def content(self) -> Iterator[bytes]:
        """Yield the content of the present member, or what is left of it."""
        while self._left:
            piece = self._exactly(min(PIECE, self._left))
            self._left -= len(piece)
            yield piece

    def _member(self, offset: int) -> Member | None:
        """Return the next member; None at the archive's end, once the whole stream has been read."""
        pax: dict[bytes, bytes] = {}
        long: dict[int, bytes] = {}
        for _ in range(MAX_EXTENSIONS):
            block = self._header()
            if block is None:
                if self._at > offset and (pax or long):
                    raise self._damage("it ends in an extended header")
                return None
            kind = block[156]
            if kind in b"xg":
                pax |= _records(self._extension(block), is_global=kind == ord("g"))
            elif kind in b"LK":
                long[kind] = self._extension(block).rstrip(b"\0")
            else:
                return _member(block, offset, pax, long)
        raise self._damage(f"a file has more than {MAX_EXTENSIONS} extended headers")

    def _header(self) -> bytes | None:
        """Return the next header; None at the end."""
        block = self._source.read(BLOCK)
        if block and block.count(0) == len(block):
            self._end(len(block))
            return None
        if not block:
            return None
        self._at += len(block)
        if not _is_header(block):
            if self._at == len(block):
                raise UnreadableError("it is neither a tar archive nor a JSON document")
            raise self._damage("a header is damaged")
        return block

    def _end(self, length: int) -> None:
        while piece := self._source.read(PIECE):
            length += len(piece)
            if piece.count(0) != len(piece):
                raise UnreadableError("bytes follow the end of its archive")
        if length < BLOCK:
            raise self._damage("it is truncated")

    def _extension(self, block: bytes) -> bytes:
        size = _number(block[124:136])
        if size > MAX_EXTENSION:
            raise self._damage(f"an extended header has more than {MAX_EXTENSION} bytes")
        return self._exactly(size + -size % BLOCK)[:size]

    def _exactly(self, count: int) -> bytes:
        piece = self._source.read(count)
        self._at += len(piece)
        if len(piece) < count:
            raise self._damage("it is truncated")
        return piece

    def _damage(self, reason: str) -> UnreadableError:
        return UnreadableError(f"its archive cannot be read at byte {self._at}: {reason}")


def _is_header(block: bytes) -> bool:
    try:
        stated = _number(block[148:156])
    except UnreadableError:
        return False
    return len(block) == BLOCK and stated == sum(block) - sum(block[148:156]) + 8 * ord(" ")


def _number(field: bytes) -> int:
    """Read octal digits, or GNU's base 256."""
    if field[:1] == b"\x80":
        value = int.from_bytes(field[1:], "big")
    else:
        digits = field.strip(b" \0")
        if digits.strip(b"01234567"):
            raise UnreadableError("a number in a header of its archive is malformed")
        value = int(digits or b"0", 8)
    if value > MAX_SIZE:
        raise UnreadableError("a number in a header of its archive is too large")
    return value


def _records(content: bytes, *, is_global: bool) -> Mapping[bytes, bytes]:
    """Read the records of a pax header, `LENGTH KEY=VALUE` and a line feed each."""
    found: dict[bytes, bytes] = {}
    while content:
        digits, space, _ = content[:8].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        record = content[len(digits) + 1 : length]
        key, equals, value = record.removesuffix(b"\n").partition(b"=")
        if not (key and equals and record.endswith(b"\n")) or length > len(content):
            raise UnreadableError("a pax record of its archive is malformed")
        if key.startswith(b"GNU.sparse"):
            raise UnreadableError("its archive has a sparse file")
        if is_global and key in (b"path", b"linkpath", b"size"):
            raise UnreadableError("a global pax header of its archive names a file")
        found[key] = value
        content = content[length:]
    return found


def _member(block: bytes, offset: int, pax: Mapping[bytes, bytes], long: Mapping[int, bytes]) -> Member:
    kind = block[156]
    if kind not in CONTENT and kind not in HEADER_ONLY:
        raise UnreadableError(f"its archive has a member of type {chr(kind)!a}, which is not read")
    size = _decimal(pax[b"size"]) if b"size" in pax else _number(block[124:136])
    if size and kind in HEADER_ONLY:
        raise UnreadableError("its archive has a link, device or folder with content")
    fields = ((0, 100), (157, 257), (265, 297), (297, 329))
    name, target, owner, group = (_text(block[start:end]) for start, end in fields)
    if block[257:263] == b"ustar\0" and (prefix := _text(block[345:500])):
        name = prefix + b"/" + name
    name = pax.get(b"path", long.get(ord("L"), name))
    target = pax.get(b"linkpath", long.get(ord("K"), target))
    texts = (name, target, owner, group, *long.values(), *_texts(pax))
    return Member(
        name=name, offset=offset, size=size, is_link=kind == ord("1"), texts=tuple(text for text in texts if text)
    )


def _decimal(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > len(str(MAX_SIZE)) or int(digits) > MAX_SIZE:
        raise UnreadableError("a size in a pax header of its archive is malformed")
    return int(digits)


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _texts(pax: Mapping[bytes, bytes]) -> Iterator[bytes]:
    for key, value in pax.items():
        yield key + b"=" + value
        if key.startswith(XATTR):
            try:
                yield base64.b64decode(value + b"==")
            except binascii.Error:
                raise UnreadableError("an extended attribute in its archive is malformed") from None
