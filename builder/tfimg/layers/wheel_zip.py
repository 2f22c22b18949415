"""Read the ZIP archive of a wheel, checking its directory first and each file."""

from __future__ import annotations

import base64
import hashlib
import io
import stat
import zipfile
from collections.abc import Iterator, Sequence
from itertools import pairwise

from installer.records import RecordEntry
from isal import isal_zlib

# Limits in bytes. In the 164 wheels of the locks of TensorFlow 2.10.1, 2.15.1 and 2.21.0, the longest path has 175
# bytes and 13 folders.
MAX_DIRECTORY = 8 << 20  # TensorFlow 2.21.0, with 24,117 files, has 2.9 MB
MAX_UNPACKED = 16 << 30  # TensorFlow 2.21.0 has 1.9 GB
MAX_PATH = 512
MAX_COMPONENT = 255  # NAME_MAX of Linux
MAX_DEPTH = 32  # folders

PIECE = 1 << 20  # bytes read at a time
UNSAFE_FLAGS = 0x2061  # encryption, patches and masked headers (APPNOTE.TXT 4.4.4)


class WheelFile(io.FileIO):
    """The file of a wheel; it refuses to read a directory of any size at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most `MAX_DIRECTORY` bytes."""
        if size is not None and size > MAX_DIRECTORY:
            raise zipfile.BadZipFile(f"its directory has {size} bytes, and at most {MAX_DIRECTORY} are allowed")
        return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Seek within the file."""
        if whence == io.SEEK_SET and offset < 0:
            raise zipfile.BadZipFile("its directory starts before the archive")
        return super().seek(offset, whence)


class WheelZip:
    """An open archive; methods raise `ValueError` or `zipfile.BadZipFile` if malformed."""

    def __init__(self, raw: WheelFile) -> None:
        self._raw = raw
        with zipfile.ZipFile(raw) as directory:
            items = directory.infolist()
            end = directory.start_dir
        for item in items:
            if problem := _find_item_problem(item):
                raise ValueError(f"{item.orig_filename!r} {problem}")
        if sum(item.file_size for item in items) > MAX_UNPACKED:
            raise ValueError(f"its files have more than {MAX_UNPACKED >> 30} GiB")
        self.files = {item.filename: item for item in items if not item.is_dir()}
        self._starts = dict(self._find_starts(items, end))

    def read(self, path: str, limit: int) -> bytes:
        """Return a small file. Raises `ValueError` if it is missing or too large."""
        if path not in self.files:
            raise ValueError(f"{path!r} is missing")
        item = self.files[path]
        if item.file_size > limit:
            raise ValueError(f"{path!r} has {item.file_size} bytes, and at most {limit} are allowed")
        return b"".join(self.pieces(item))

    def pieces(self, item: zipfile.ZipInfo, record: RecordEntry | None = None) -> Iterator[bytes]:
        """Yield a file's content. Raises `ValueError` if directory or `record` differ."""
        size = check = 0
        digest = hashlib.new(record.hash_.name) if record and record.hash_ else None
        for piece in self._inflate(item):
            size += len(piece)
            if size > item.file_size:
                break
            check = isal_zlib.crc32(piece, check)
            if digest:
                digest.update(piece)
            yield piece
        if size != item.file_size or check != item.CRC:
            raise ValueError(f"{item.filename!r} is damaged: size or checksum differs from the archive's directory")
        if record and record.hash_ and digest and encode_digest(digest.digest()) != record.hash_.value:
            raise ValueError(f"{item.filename!r} does not have the hash that RECORD states")

    def _inflate(self, item: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield pieces of at most 4 MiB. ISA-L is twice as fast as zlib."""
        self._raw.seek(self._starts[item.filename])
        left = item.compress_size
        stored = item.compress_type == zipfile.ZIP_STORED
        inflate = isal_zlib.decompressobj(-15)
        while left and not inflate.eof:
            data = self._raw.read(min(PIECE, left))
            if not data:
                raise ValueError(f"{item.filename!r} ends early")
            left -= len(data)
            if stored:
                yield data
            while data and not stored:
                # Bounded: a few bytes may inflate to gigabytes.
                if piece := inflate.decompress(data, 4 * PIECE):
                    yield piece
                data = inflate.unconsumed_tail
        if not stored and (not inflate.eof or left or inflate.unused_data):
            raise ValueError(f"{item.filename!r} is not one whole deflate stream")

    def _find_starts(self, items: Sequence[zipfile.ZipInfo], end: int) -> Iterator[tuple[str, int]]:
        """Yield where each file starts. Raises `ValueError` for overlaps."""
        before = 0
        for item in sorted(items, key=lambda item: item.header_offset):
            # The local header repeats the name and has extra fields of its own (APPNOTE.TXT 4.3.7).
            name = item.orig_filename.encode("utf-8" if item.flag_bits & 0x800 else "cp437")
            self._raw.seek(item.header_offset)
            header = self._raw.read(30 + len(name))
            start = item.header_offset + 30 + len(name) + int.from_bytes(header[28:30], "little")
            agrees = (
                header[:4] == b"PK\3\4"
                and header[30:] == name
                and int.from_bytes(header[26:28], "little") == len(name)
                and int.from_bytes(header[8:10], "little") == item.compress_type
            )
            if not agrees:
                raise ValueError(f"{item.filename!r} has a header that contradicts the archive's directory")
            if item.header_offset < before or start + item.compress_size > end:
                raise ValueError(f"{item.filename!r} overlaps another part of the archive")
            before = start + item.compress_size
            yield item.filename, start


def find_path_problem(path: str) -> str | None:
    """Return what makes a path unfit to be packed below a folder, or None."""
    parts = path.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        return "is not a plain relative path"
    if "\\" in path or ":" in parts[0] or not path.isprintable():
        return "has a backslash, a drive or a control character"
    if max(len(part.encode()) for part in parts) > MAX_COMPONENT or len(path.encode()) > MAX_PATH:
        return f"has a name of more than {MAX_COMPONENT} or a path of more than {MAX_PATH} bytes"
    return f"is more than {MAX_DEPTH} folders deep" if len(parts) > MAX_DEPTH else None


def find_collision(paths: Sequence[str]) -> str | None:
    """Return a path that another one equals, but for case, or has as its folder."""
    # A file's descendants follow it, because NUL sorts before everything that a name may have.
    folded = sorted((path.casefold().replace("/", "\0"), path) for path in paths)
    for (before, _), (after, path) in pairwise(folded):
        if after == before or after.startswith(f"{before}\0"):
            return path
    return None


def encode_digest(digest: bytes) -> str:
    """Return a digest as RECORD writes it."""
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _find_item_problem(item: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(item.external_attr >> 16)
    if problem := find_path_problem(item.orig_filename.removesuffix("/")):
        return problem
    if item.filename != item.orig_filename or item.header_offset < 0:
        return "has two names, or starts before the archive"
    if item.flag_bits & UNSAFE_FLAGS:
        return "is encrypted or patched"
    if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"is compressed with method {item.compress_type}, and wheels are deflated"
    if kind not in ((0, stat.S_IFDIR) if item.is_dir() else (0, stat.S_IFREG)):
        return "is neither a file nor a folder"
    return "is a folder with content" if item.is_dir() and item.file_size else None
