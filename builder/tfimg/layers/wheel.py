"""Install a wheel into a layer (PEP 427).

Everything that a wheel states is checked before a file is written. File names, RECORD, metadata and entry points follow
the specification of binary distributions (packaging.python.org). `installer`, of the Python packaging authority, writes
scripts and RECORD.
"""

import base64
import configparser
import csv
import fnmatch
import hashlib
import io
import re
import stat
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from itertools import pairwise
from os.path import relpath
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

import zstandard
from installer.records import Hash, InvalidRecordEntry, RecordEntry, parse_record_file
from installer.scripts import Script
from installer.utils import Scheme, construct_record_file, fix_shebang
from isal import isal_zlib
from isal.igzip_lib import IsalError
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from tfimg.core import cancellation, documents, errors
from tfimg.core.text import escape_unprintable
from tfimg.recipe.layout import EPOCH, SITE_PACKAGES, ZSTD_LEVELS, Compression

GZIP_LEVEL = 3
"""Of ISA-L, whose highest it is: about the size of gzip -5 at eight times its speed, says its documentation."""

LIBRARY_MATCHES = {
    "strategy": zstandard.STRATEGY_FAST, "hash_log": 18, "chain_log": 13, "search_log": 1, "min_match": 6,
}  # fmt: skip
"""How `fast` compresses libraries, in place of zstd's level 3, whose tables of 2^16 and 2^17 matches are too small for
them. Of 1.05 GB of cuDNN, cuBLAS and cuSPARSE it leaves 560 MB in 3.6 s of a processor; level 3 leaves 572 MB in 5.0 s,
a table of 2^19 with matches of 5 bytes 536 MB in 4.7 s. Python code becomes 1 % larger so."""

WINDOW_LOG = 23
"""8 MiB, the largest window that every decoder of zstd must accept (RFC 8878, 3.1.1.1.2). A window of 128 MiB is 14 %
smaller for CUDA 12.2, and containerd 1.7 takes twice as long to unpack it."""

THREADS = 2
"""Threads that zstd compresses one layer with, beside the one that inflates and hashes. The bytes are the same for any
number above 0, and others, 0.3 % larger, for none (zstd_compress: jobs are cut by size alone)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Blob:
    """A compressed layer; `digest` is of its bytes, `diff_id` of the tar inside."""

    media_type: str
    digest: documents.Digest
    diff_id: documents.Digest
    size: int
    unpacked: int
    files: int


class BlobWriter:
    """Writes files, and the folders that they lie in, into a layer. Not thread-safe.

    `of_libraries` says that most of them are shared libraries.
    """

    def __init__(self, sink: BinaryIO, compression: Compression, *, of_libraries: bool = False) -> None:
        self._kind = "gzip" if compression == "gzip" else "zstd"
        self._compressor = _compressor(compression, of_libraries=of_libraries)
        self._sink = sink
        self._tar_hash, self._blob_hash = hashlib.sha256(), hashlib.sha256()
        self._unpacked = self._size = self._files = 0
        self._paths: set[str] = set()

    def add(self, path: str, size: int, pieces: Iterable[bytes], *, executable: bool = False) -> None:
        """Add a file, whose path is plain; see `find_path_problem`.

        Of several with one path, as wheels of one namespace have them, the first stays. Raises `ValueError` if the
        pieces are not `size` bytes: the layer is unusable then.
        """
        if path in self._paths:
            return
        folders = []
        folder = path
        while (folder := folder.rpartition("/")[0]) and folder not in self._paths:
            folders.append(folder)
        self._paths.update([*folders, path])
        for folder in reversed(folders):
            self._write_header(folder, kind=tarfile.DIRTYPE, mode=0o755)
        self._write_header(path, size=size, mode=0o755 if executable else 0o644)
        written = 0
        for piece in pieces:
            cancellation.raise_if_cancelled()
            written += len(piece)
            if written > size:
                break
            self._write(piece)
        if written != size:
            raise ValueError(f"{path!r} has {written} bytes, not {size}")
        self._write(bytes(-size % tarfile.BLOCKSIZE))
        self._files += 1

    def add_archive(self, pieces: Iterable[bytes]) -> None:
        """Add all of a tar archive as it is, its end too: nothing may follow, and its files are not counted."""
        for piece in pieces:
            cancellation.raise_if_cancelled()
            self._write(piece)

    def close(self) -> Blob:
        self._write(bytes(2 * tarfile.BLOCKSIZE))
        self._write_compressed(self._compressor.flush())
        return Blob(
            media_type=f"application/vnd.oci.image.layer.v1.tar+{self._kind}",
            digest=f"sha256:{self._blob_hash.hexdigest()}",
            diff_id=f"sha256:{self._tar_hash.hexdigest()}",
            size=self._size,
            unpacked=self._unpacked,
            files=self._files,
        )

    def _write_header(self, path: str, *, mode: int, size: int = 0, kind: bytes = tarfile.REGTYPE) -> None:
        info = tarfile.TarInfo(path)
        info.size, info.mode, info.type, info.mtime = size, mode, kind, EPOCH
        self._write(_format_header(info))

    def _write(self, data: bytes) -> None:
        self._tar_hash.update(data)
        self._unpacked += len(data)
        self._write_compressed(self._compressor.compress(data))

    def _write_compressed(self, data: bytes) -> None:
        self._blob_hash.update(data)
        self._sink.write(data)
        self._size += len(data)


def _format_header(info: tarfile.TarInfo) -> bytes:
    """Return the header of a file: in one block, where ustar can state it (a path of up to 255 bytes), else as PAX."""
    if info.name.isascii():
        with suppress(ValueError):
            return info.tobuf(tarfile.USTAR_FORMAT)
    return info.tobuf(tarfile.PAX_FORMAT)


def _compressor(compression: Compression, *, of_libraries: bool) -> Any:
    if compression == "gzip":
        # 31: a gzip header, which has no time in it, and a window of 32 KiB.
        return isal_zlib.compressobj(GZIP_LEVEL, wbits=31)
    matches = LIBRARY_MATCHES if of_libraries and compression == "fast" else {}
    parameters = zstandard.ZstdCompressionParameters.from_level(
        ZSTD_LEVELS[compression], window_log=WINDOW_LOG, threads=THREADS, **matches
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compressobj()


# Limits in bytes. In the 164 wheels of the locks of TensorFlow 2.10.1, 2.15.1 and 2.21.0, the longest path has 175
# bytes and 13 folders.
MAX_DIRECTORY = 8 << 20  # TensorFlow 2.21.0, with 24,117 files, has 2.9 MB
MAX_UNPACKED = 16 << 30  # TensorFlow 2.21.0 has 1.9 GB
MAX_PATH = 512
MAX_COMPONENT = 255  # NAME_MAX of Linux
MAX_DEPTH = 32  # folders

PIECE = 1 << 20  # bytes read at a time
END_BYTES = 22  # of the end of the directory, without its comment (APPNOTE.TXT 4.3.16)
UNSAFE_FLAGS = 0x2061  # encryption, patches and masked headers (APPNOTE.TXT 4.4.4)


class WheelFile(io.FileIO):
    """The file of a wheel; it refuses to read a directory of any size at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most `MAX_DIRECTORY` bytes."""
        if size is not None and size > MAX_DIRECTORY:
            raise zipfile.BadZipFile(f"its directory has {size} bytes, and at most {MAX_DIRECTORY} are allowed")
        return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
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
            comment = len(directory.comment)
        raw.seek(-END_BYTES - comment, io.SEEK_END)
        if raw.read(8) != b"PK\5\6" + bytes(4):
            raise ValueError("its end states several disks, or something follows it")
        for item in items:
            if problem := _find_item_problem(item):
                raise ValueError(f"{item.orig_filename!r} {problem}")
        if sum(item.file_size for item in items) > MAX_UNPACKED:
            raise ValueError(f"its files have more than {MAX_UNPACKED >> 30} GiB")
        self.files = {item.filename: item for item in items if not item.is_dir()}
        self._starts: dict[str, int] = {}
        before = 0
        for item in sorted(items, key=lambda item: item.header_offset):
            # The local header repeats the name and has extra fields of its own (APPNOTE.TXT 4.3.7).
            name = item.orig_filename.encode("utf-8" if item.flag_bits & 0x800 else "cp437")
            raw.seek(item.header_offset)
            header = raw.read(30 + len(name))
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
            self._starts[item.filename] = start

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
    if item.volume:
        return f"is on disk {item.volume} of several"
    if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"is compressed with method {item.compress_type}, and wheels are deflated"
    if kind not in ((0, stat.S_IFDIR) if item.is_dir() else (0, stat.S_IFREG)):
        return "is neither a file nor a folder"
    return "is a folder with content" if item.is_dir() and item.file_size else None


ENVIRONMENT = str(Path(SITE_PACKAGES).parents[2])
INTERPRETER = f"{ENVIRONMENT}/bin/python"

SCHEME_FOLDERS = {
    "purelib": SITE_PACKAGES,
    "platlib": SITE_PACKAGES,
    "scripts": f"{ENVIRONMENT}/bin",
    "data": ENVIRONMENT,
    "headers": f"{ENVIRONMENT}/include/site/python3",
}

# Limits in bytes, or characters of a text.
MAX_METADATA = 8 << 20  # RECORD of TensorFlow 2.21.0 has 2.8 MB
MAX_ENTRY_POINTS = 64 << 10  # entry_points.txt and WHEEL of TensorFlow's locks have 3 kB at most
MAX_LINE = 500  # of an entry point; `ConfigParser` takes the square of it in time
MAX_SCRIPT = 128 << 20  # of a file in `.data/scripts`, which is read whole
MAX_REASON = 400  # of the reason why a wheel is not valid

HASHES = ("sha256", "sha384", "sha512")  # the specification forbids weaker ones in RECORD

_SCRIPT_NAME = re.compile(r"[^\s\[/=][^\s/=]*")  # pip refuses others: without blanks, as they are words of a shell
_ENTRY_POINT = re.compile(r"([\w.]+)\s*:\s*([\w.]+)(\s*\[[\w\s.,-]*\])?")
_SECTIONS: tuple[Literal["console", "gui"], ...] = ("console", "gui")


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A file of a wheel: `path` below the folder of its scheme, and its row of RECORD."""

    item: zipfile.ZipInfo
    scheme: Scheme
    path: str
    record: RecordEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedWheel:
    """A wheel after all checks; `info` is its dist-info folder."""

    info: str
    root: Scheme
    members: tuple[Member, ...]
    scripts: tuple[Script, ...]


class OpenWheel:
    """A wheel whose file is open, and whose statements are checked once for all that is read of it.

    Methods raise `InvalidWheel` for a wheel that is malformed or damaged. Not thread-safe.
    """

    def __init__(self, wheel: Path) -> None:
        self.name = wheel.name
        self._raw = WheelFile(wheel)
        try:
            with _refusing(wheel.name):
                self._archive = WheelZip(self._raw)
                self._checked = check_wheel(wheel.name, self._archive)
        except BaseException:
            self._raw.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def unpack(
        self, *, shared: Sequence[str], removed: Sequence[str] = (), into: BlobWriter | None, rest: BlobWriter | None
    ) -> None:
        """Write the files that match `shared` to `into`, the others to `rest`.

        `shared` are patterns of files and folders below site-packages, `removed` of files; what matches `removed` is in
        RECORD only. A layer that is None exists already: its files are not even read. What was written until an error
        is unusable.
        """
        with _refusing(self.name):
            _unpack(self._archive, self._checked, shared=shared, removed=removed, into=into, rest=rest)

    def list_modules(self, *, shared: Sequence[str], removed: Sequence[str] = ()) -> Iterator[tuple[str, bytes]]:
        """Yield path, below site-packages, and content of each Python file that `unpack` writes to `rest`."""
        with _refusing(self.name):
            for member in self._checked.members:
                path = member.path
                is_module = member.scheme in ("purelib", "platlib") and path.endswith(".py")
                if is_module and not _matches(path, shared) and not _is_removed(path, removed):
                    yield path, b"".join(self._archive.pieces(member.item, member.record))

    def list_record_rows(self, shared: Sequence[str]) -> list[str]:
        """Return the rows of RECORD whose paths match `shared`."""
        rows = (member.record.to_row() for member in self._checked.members)
        return sorted(",".join(row) for row in rows if _matches(row[0], shared))


def _unpack(
    archive: WheelZip,
    checked: CheckedWheel,
    *,
    shared: Sequence[str],
    removed: Sequence[str],
    into: BlobWriter | None,
    rest: BlobWriter | None,
) -> None:
    own = into if tuple(shared) == (".",) else rest
    info, root = checked.info, checked.root
    records = [
        _write(own, Scheme("scripts"), *script.generate(INTERPRETER, "posix"), executable=True)
        for script in checked.scripts
    ]
    for member in checked.members:
        path = member.item.filename
        # Byte code in a wheel is by mistake, and is compiled anew in the image.
        if path not in (f"{info}/RECORD", f"{info}/INSTALLER") and "__pycache__" not in path.split("/")[:-1]:
            is_package = member.scheme in ("purelib", "platlib")
            is_shared = is_package and _matches(member.path, shared)
            is_removed = is_package and _is_removed(member.path, removed)
            target = None if is_removed else into if is_shared else own
            records.append(_write_member(target, member, archive))
    records.append(_write(own, root, f"{info}/INSTALLER", b"tfimg\n"))
    records.append((root, RecordEntry(f"{info}/RECORD", None, None)))
    with construct_record_file(
        records,
        lambda scheme: None if scheme == root else f"{relpath(SCHEME_FOLDERS[scheme], SCHEME_FOLDERS[root])}/",
    ) as record:
        _write(own, root, f"{info}/RECORD", record.read())


@contextmanager
def open_archive(wheel: Path) -> Iterator[WheelZip]:
    """Open the archive of a wheel. Raises `InvalidWheel`, also for errors inside the block."""
    with _refusing(wheel.name), WheelFile(wheel) as raw:
        yield WheelZip(raw)


@contextmanager
def _refusing(filename: str) -> Iterator[None]:
    """Raise `InvalidWheel` for what the block says of a wheel."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        IsalError,
        InvalidRecordEntry,
        csv.Error,
        configparser.Error,
        NotImplementedError,
        ValueError,
    ) as error:  # type: ignore[misc]  # isal's stub
        reason = escape_unprintable(" ".join(str(error)[:MAX_REASON].split()))
        raise errors.InvalidWheel(
            f"{filename} is not a valid wheel: {reason.rstrip('.')}.",
            next_step="Do not build with it. If the lock names this file, report it to the package's publisher and "
            "lock another version; else the disk may be failing.",
        ) from None


def _matches(path: str, shared: Sequence[str]) -> bool:
    return any(pattern == "." or path.startswith(f"{pattern}/") or fnmatch.fnmatch(path, pattern) for pattern in shared)


def _is_removed(path: str, removed: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in removed)


def _place(scheme: Scheme | str, path: str) -> str:
    """Return a path in the image, without the leading slash."""
    return f"{SCHEME_FOLDERS[scheme]}/{path}".lstrip("/")


def check_wheel(filename: str, archive: WheelZip) -> CheckedWheel:
    """Read what a wheel states. Raises `ValueError`, and the errors of parsers."""
    name, version, _, _ = parse_wheel_filename(filename)
    found = sorted(filter(_names_distribution, {path.split("/")[0] for path in archive.files}))
    stem, dash, stated = found[0].removesuffix(".dist-info").partition("-") if len(found) == 1 else ("", "", "")
    if not dash or canonicalize_name(stem) != name or Version(stated) != version:
        raise ValueError(f"it must have one folder {name}-{version}.dist-info, but has {found[:3]}")
    info = found[0]
    metadata = read_headers(archive, f"{info}/METADATA", MAX_METADATA)
    names, versions = metadata.get_all("Name", []), metadata.get_all("Version", [])
    if list(map(canonicalize_name, names)) != [name] or list(map(Version, versions)) != [version]:
        raise ValueError(f"METADATA must be of {name} {version}, but states {names[:2]} {versions[:2]}")
    headers = read_headers(archive, f"{info}/WHEEL", MAX_ENTRY_POINTS)
    if not re.fullmatch(r"1\.\d+", str(headers["Wheel-Version"])):
        raise ValueError(f"its Wheel-Version is {str(headers['Wheel-Version'])!r}, and only 1.x is known")
    root = Scheme("purelib" if headers["Root-Is-Purelib"] == "true" else "platlib")
    records = read_records(archive, info)
    data = f"{'-'.join(filename.split('-')[:2])}.data"
    members = tuple(_locate(item, records[path], data=data, root=root) for path, item in archive.files.items())
    scripts = tuple(_read_entry_points(archive, f"{info}/entry_points.txt"))
    places = [_place(member.scheme, member.path) for member in members]
    # A file's descendants follow it, because NUL sorts before everything that a name may have.
    every = [*places, *(_place("scripts", script.name) for script in scripts)]
    folded = sorted((path.casefold().replace("/", "\0"), path) for path in every)
    for (before, _), (after, path) in pairwise(folded):
        if after == before or after.startswith(f"{before}\0"):
            raise ValueError(f"{path!r} is there twice, but for case, or is a file and a folder")
    site = SITE_PACKAGES.lstrip("/") + "/"
    for place in places:
        top = place.removeprefix(site).partition("/")[0] if place.startswith(site) else info
        if top != info and _names_distribution(top):
            raise ValueError(f"{place!r} belongs to another distribution")
    return CheckedWheel(info=info, root=root, members=members, scripts=scripts)


def _names_distribution(component: str) -> bool:
    """Return whether `importlib.metadata` takes an entry for a distribution."""
    return component.lower().endswith((".dist-info", ".egg-info"))


def read_headers(archive: WheelZip, path: str, limit: int) -> Message:
    """Return the headers of a metadata file. Raises `ValueError`."""
    # Headers alone: a parser of whole messages recurses into a body of messages.
    return HeaderParser().parsestr(archive.read(path, limit).decode())


def read_records(archive: WheelZip, info: str) -> dict[str, RecordEntry]:
    """Return the row of RECORD for each file; it has to list all, and nothing else."""
    path = f"{info}/RECORD"
    unhashed = {path, f"{path}.jws", f"{path}.p7s"}
    records: dict[str, RecordEntry] = {}
    for row in parse_record_file(archive.read(path, MAX_METADATA).decode().splitlines()):
        if row[0] not in archive.files or row[0] in records:
            raise ValueError(f"RECORD lists {row[0]!r}, which is not in the wheel or listed before")
        records[row[0]] = RecordEntry.from_elements(*row)
    for name, item in archive.files.items():
        record = records.setdefault(name, RecordEntry(name, None, None)) if name in unhashed else records.get(name)
        if record is None:
            raise ValueError(f"{name!r} is not listed in RECORD")
        if name in unhashed:
            is_sound = record.hash_ is None and record.size is None
        else:
            is_sound = record.hash_ is not None and record.hash_.name in HASHES and record.size == item.file_size
        if not is_sound:
            raise ValueError(f"{name!r} has another size, a weak hash or none in RECORD")
    return records


def _locate(item: zipfile.ZipInfo, record: RecordEntry, *, data: str, root: Scheme) -> Member:
    """Return where a file goes. Raises `ValueError` for an ambiguous `.data` folder."""
    top, _, below = item.filename.partition("/")
    if not top.lower().endswith(".data"):
        return Member(item=item, scheme=root, path=item.filename, record=record)
    scheme, _, path = below.partition("/")
    if top != data or scheme not in SCHEME_FOLDERS or not path:
        raise ValueError(f"{item.filename!r} is not below a known folder of {data}")
    return Member(item=item, scheme=Scheme(scheme), path=path, record=record)


def _read_entry_points(archive: WheelZip, path: str) -> Iterator[Script]:
    if path not in archive.files:
        return
    text = archive.read(path, MAX_ENTRY_POINTS).decode()
    if max(map(len, text.splitlines()), default=0) > MAX_LINE:
        raise ValueError(f"{path!r} has a line of more than {MAX_LINE} characters")
    # Without interpolation: values that refer to each other would multiply.
    parser = configparser.ConfigParser(delimiters="=", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # its documentation says so
    parser.read_string(text)
    for section in _SECTIONS:
        for name, value in parser.items(f"{section}_scripts") if f"{section}_scripts" in parser else ():
            match = _ENTRY_POINT.fullmatch(value) if len(value) <= MAX_LINE else None
            if not _SCRIPT_NAME.fullmatch(name) or find_path_problem(name) or match is None:
                raise ValueError(f"{path!r} has the script {name!r} = {value[:MAX_LINE]!r}")
            yield Script(name, match[1], match[2], section)


def _write(
    layer: BlobWriter | None, scheme: Scheme, path: str, data: bytes, *, executable: bool = False
) -> tuple[Scheme, RecordEntry]:
    """Write a file, unless its layer exists already, and return its row of RECORD."""
    if layer:
        layer.add(_place(scheme, path), len(data), [data], executable=executable)
    return scheme, RecordEntry(path, Hash("sha256", encode_digest(hashlib.sha256(data).digest())), len(data))


def _write_member(layer: BlobWriter | None, member: Member, archive: WheelZip) -> tuple[Scheme, RecordEntry]:
    item, record = member.item, member.record
    pieces = archive.pieces(item, record)
    if member.scheme == "scripts":
        if item.file_size > MAX_SCRIPT:
            raise ValueError(f"{item.filename!r} has more than {MAX_SCRIPT} bytes")
        with fix_shebang(io.BytesIO(b"".join(pieces)), INTERPRETER) as script:
            return _write(layer, member.scheme, member.path, script.read(), executable=True)
    if layer:
        mode = item.external_attr >> 16
        is_executable = stat.S_ISREG(mode) and bool(mode & 0o111)
        layer.add(_place(member.scheme, member.path), item.file_size, pieces, executable=is_executable)
    return member.scheme, RecordEntry(member.path, record.hash_, record.size)
