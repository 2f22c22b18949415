"""A wheel → the files that its installation consists of. `installer`, of the Python packaging authority, does it."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import io
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from os.path import relpath
from pathlib import Path
from typing import Any, BinaryIO, cast

from installer import install
from installer.destinations import WheelDestination
from installer.records import Hash, RecordEntry, parse_record_file
from installer.scripts import Script
from installer.sources import WheelContentElement, WheelFile
from installer.utils import Scheme, construct_record_file, fix_shebang
from isal import isal_zlib
from isal.igzip_lib import IsalError

from tfimg.errors import HashMismatchError
from tfimg.layers.blob import BlobWriter
from tfimg.recipe.layout import SITE

PREFIX = str(Path(SITE).parents[2])
INTERPRETER = f"{PREFIX}/bin/python"

FOLDERS = {
    "purelib": SITE, "platlib": SITE, "scripts": f"{PREFIX}/bin", "data": PREFIX,
    "headers": f"{PREFIX}/include/site/python3",
}  # fmt: skip
"""Where the parts of a wheel go (the specification of binary distributions calls them schemes)."""

PIECE = 1 << 20
"""Bytes at a time."""


def unpack(wheel: Path, *, shared: Sequence[str], into: BlobWriter | None, rest: BlobWriter | None) -> None:
    """Write a wheel's files: what matches `shared`, patterns of paths below site-packages, `into` one layer.

    What does not match goes to `rest`. A layer that is None exists already: its files are not even read. Raises
    `HashMismatchError` for a wheel that is damaged inside.
    """
    try:
        with zipfile.ZipFile(wheel) as archive, wheel.open("rb") as raw:
            install(_Source(archive, raw), _Destination(shared, into, rest), {"INSTALLER": b"tfimg\n"})
    except (zipfile.BadZipFile, IsalError, ValueError, KeyError) as error:  # type: ignore[misc]  # its stub
        wheel.unlink()
        raise HashMismatchError(
            f"{wheel.name} cannot be unpacked: {error}.", next_step="Build again: it will be fetched anew."
        ) from None


def contents(wheel: Path, shared: Sequence[str]) -> list[str]:
    """What a wheel says of its files that match `shared`: path, hash and size, from its RECORD."""
    with zipfile.ZipFile(wheel) as archive:
        source = WheelFile(archive)
        rows = parse_record_file(source.read_dist_info("RECORD").splitlines())
        return sorted(",".join(row) for row in rows if _matches(row[0], shared))


def _matches(path: str, shared: Sequence[str]) -> bool:
    return any(
        pattern == "." or path.startswith(f"{pattern}/") or fnmatch.fnmatch(path, pattern)
        for pattern in shared
    )


class _Member(io.RawIOBase):
    """A file inside a wheel, with what RECORD says of it; inflated by ISA-L, which is twice as fast as zlib."""

    def __init__(self, raw: BinaryIO, item: zipfile.ZipInfo, record: tuple[str, str, str]) -> None:
        self.item, self.record = item, RecordEntry.from_elements(*record)
        self._raw = raw

    def pieces(self) -> Iterator[bytes]:
        """Its content. Raises `ValueError` when it is not what the archive's directory says."""
        self._raw.seek(self.item.header_offset)
        header = self._raw.read(30)
        # The local header repeats the name and has extra fields of its own (APPNOTE.TXT 4.3.7).
        names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        self._raw.seek(names, io.SEEK_CUR)
        check = 0
        for piece in self._inflated():
            check = isal_zlib.crc32(piece, check)
            yield piece
        if check != self.item.CRC:
            raise ValueError(f"{self.item.filename} is damaged")

    def _inflated(self) -> Iterator[bytes]:
        left = self.item.compress_size
        stored = self.item.compress_type == zipfile.ZIP_STORED
        inflate = isal_zlib.decompressobj(-15)
        while left:
            data = self._raw.read(min(PIECE, left))
            if not data:
                raise ValueError(f"{self.item.filename} ends early")
            left -= len(data)
            while data and not stored:
                # Bounded: a little may become very much.
                if piece := inflate.decompress(data, 4 * PIECE):
                    yield piece
                data = inflate.unconsumed_tail
            if stored:
                yield data
        if not stored and (piece := inflate.flush()):
            yield piece

    def readable(self) -> bool:
        return True

    def readall(self) -> bytes:
        return b"".join(self.pieces())


class _Source(WheelFile):
    """A wheel whose files are read when they are written, each with its size known before."""

    def __init__(self, archive: zipfile.ZipFile, raw: BinaryIO) -> None:
        super().__init__(archive)
        self._items, self._raw = archive.infolist(), raw

    def get_contents(self) -> Iterator[WheelContentElement]:
        """See `WheelSource`."""
        rows = parse_record_file(self.read_dist_info("RECORD").splitlines())
        records = {row[0]: row for row in rows}
        for item in self._items:
            # Byte code in a wheel is by mistake, and is made anew in the image.
            if item.is_dir() or "/__pycache__/" in item.filename:
                continue
            # Signatures of RECORD itself are in no RECORD.
            record = records.get(item.filename, (item.filename, "", ""))
            mode = item.external_attr >> 16
            executable = bool(mode and stat.S_ISREG(mode) and mode & 0o111)
            yield record, cast("BinaryIO", _Member(self._raw, item, record)), executable


class _Destination(WheelDestination):
    """Layers to write into, as a place to install to."""

    def __init__(self, shared: Sequence[str], into: BlobWriter | None, rest: BlobWriter | None) -> None:
        self._shared, self._into, self._rest = shared, into, rest

    def write_file(self, scheme: Scheme, path: Any, stream: Any, is_executable: bool) -> RecordEntry:
        """See `WheelDestination`."""
        path = str(path)
        layer = (
            self._into if scheme in ("purelib", "platlib") and _matches(path, self._shared) else self._rest
        )
        if self._shared == (".",):
            layer = self._into
        place = f"{FOLDERS[scheme]}/{path}".lstrip("/")
        if scheme == "scripts":
            with fix_shebang(io.BytesIO(stream.read()), INTERPRETER) as fixed:
                data = fixed.read()
            return self._add(layer, place, path, data, executable=True)
        if not isinstance(stream, _Member):
            return self._add(layer, place, path, stream.read(), executable=is_executable)
        if layer:
            layer.add(place, stream.item.file_size, stream.pieces(), executable=is_executable)
        return RecordEntry(path, stream.record.hash_, stream.record.size)

    def write_script(self, name: str, module: str, attr: str, section: Any) -> RecordEntry:
        """See `WheelDestination`."""
        script, data = Script(name, module, attr, section).generate(INTERPRETER, "posix")
        return self._add(
            self._rest or self._into,
            f"{FOLDERS['scripts']}/{script}".lstrip("/"),
            script,
            data,
            executable=True,
        )

    def finalize_installation(
        self, scheme: Scheme, record_file_path: str, records: Iterable[tuple[Scheme, RecordEntry]]
    ) -> None:
        """See `WheelDestination`."""

        def prefix(other: Scheme) -> str | None:
            return None if other == scheme else f"{relpath(FOLDERS[other], FOLDERS[scheme])}/"

        with construct_record_file(list(records), prefix) as record:
            self.write_file(scheme, record_file_path, record, is_executable=False)

    def _add(
        self, layer: BlobWriter | None, place: str, path: str, data: bytes, *, executable: bool
    ) -> RecordEntry:
        if layer:
            layer.add(place, len(data), [data], executable=executable)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        return RecordEntry(path, Hash("sha256", digest), len(data))
