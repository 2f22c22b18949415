"""Install wheels into layers, as pip would into a folder.

Everything that a wheel states is checked before a file is written. File names, RECORD, metadata and entry points follow
the specification of binary distributions (packaging.python.org). `installer`, of the Python packaging authority, writes
scripts and RECORD.
"""

from __future__ import annotations

import configparser
import csv
import fnmatch
import hashlib
import io
import re
import stat
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from os.path import relpath
from pathlib import Path
from typing import Literal

from installer.records import Hash, InvalidRecordEntry, RecordEntry, parse_record_file
from installer.scripts import Script
from installer.utils import Scheme, construct_record_file, fix_shebang
from isal.igzip_lib import IsalError
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from tfimg.core.errors import InvalidWheel
from tfimg.core.text import escape_unprintable
from tfimg.layers.blob import BlobWriter
from tfimg.layers.wheel_zip import WheelFile, WheelZip, encode_digest, find_collision, find_path_problem
from tfimg.recipe.layout import SITE_PACKAGES

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
    """An open wheel after all checks; `info` is its dist-info folder."""

    archive: WheelZip
    info: str
    root: Scheme
    members: tuple[Member, ...]
    scripts: tuple[Script, ...]


def unpack_wheel(
    wheel: Path,
    *,
    shared: Sequence[str],
    removed: Sequence[str] = (),
    into: BlobWriter | None,
    rest: BlobWriter | None,
) -> None:
    """Write the files of a wheel that match `shared` to `into`, the others to `rest`.

    `shared` are patterns of files and folders below site-packages, `removed` of files; what matches `removed` is in
    RECORD only.
    A layer that is None exists already: its files are not even read. Raises `InvalidWheel` for a wheel that is
    malformed or damaged; what was written until then is unusable.
    """
    own = into if tuple(shared) == (".",) else rest
    with _open(wheel) as checked:
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
                is_removed = is_package and any(fnmatch.fnmatchcase(member.path, pattern) for pattern in removed)
                target = None if is_removed else into if is_shared else own
                records.append(_write_member(target, member, checked.archive))
        records.append(_write(own, root, f"{info}/INSTALLER", b"tfimg\n"))
        records.append((root, RecordEntry(f"{info}/RECORD", None, None)))
        with construct_record_file(records, lambda scheme: _record_prefix(scheme, root)) as record:
            _write(own, root, f"{info}/RECORD", record.read())


def list_record_rows(wheel: Path, shared: Sequence[str]) -> list[str]:
    """Return the rows of RECORD whose paths match `shared`. Raises `InvalidWheel`."""
    with _open(wheel) as checked:
        rows = (member.record.to_row() for member in checked.members)
        return sorted(",".join(row) for row in rows if _matches(row[0], shared))


@contextmanager
def _open(wheel: Path) -> Iterator[CheckedWheel]:
    """Open and check a wheel. Raises `InvalidWheel`, also for errors inside the block."""
    with open_archive(wheel) as archive:
        yield check_wheel(wheel.name, archive)


@contextmanager
def open_archive(wheel: Path) -> Iterator[WheelZip]:
    """Open the archive of a wheel. Raises `InvalidWheel`, also for errors inside the block."""
    try:
        with WheelFile(wheel) as raw:
            yield WheelZip(raw)
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
        raise InvalidWheel(
            f"{wheel.name} is not a valid wheel: {reason.rstrip('.')}.",
            next_step="Do not build with it. If the lock names this file, report it to the package's publisher and "
            "lock another version; else the disk may be failing.",
        ) from None


def _matches(path: str, shared: Sequence[str]) -> bool:
    return any(pattern == "." or path.startswith(f"{pattern}/") or fnmatch.fnmatch(path, pattern) for pattern in shared)


def _place(scheme: Scheme | str, path: str) -> str:
    """Return a path in the image, without the leading slash."""
    return f"{SCHEME_FOLDERS[scheme]}/{path}".lstrip("/")


def check_wheel(filename: str, archive: WheelZip) -> CheckedWheel:
    """Read what a wheel states. Raises `ValueError`, and the errors of parsers."""
    name, version, _, _ = parse_wheel_filename(filename)
    info = _find_info(archive, name, version)
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
    _check_places(members, scripts, info)
    return CheckedWheel(archive=archive, info=info, root=root, members=members, scripts=scripts)


def _find_info(archive: WheelZip, name: str, version: Version) -> str:
    """Return the one dist-info folder, which has to name the wheel's distribution."""
    found = sorted(filter(_names_distribution, {path.split("/")[0] for path in archive.files}))
    stem, dash, stated = found[0].removesuffix(".dist-info").partition("-") if len(found) == 1 else ("", "", "")
    if not dash or canonicalize_name(stem) != name or Version(stated) != version:
        raise ValueError(f"it must have one folder {name}-{version}.dist-info, but has {found[:3]}")
    return found[0]


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
            if "/" in name or find_path_problem(name) or match is None:
                raise ValueError(f"{path!r} has the script {name!r} = {value[:MAX_LINE]!r}")
            yield Script(name, match[1], match[2], section)


def _check_places(members: Sequence[Member], scripts: Sequence[Script], info: str) -> None:
    """Raise `ValueError` for a place of two files or of another distribution."""
    places = [_place(member.scheme, member.path) for member in members]
    if collision := find_collision([*places, *(_place("scripts", script.name) for script in scripts)]):
        raise ValueError(f"{collision!r} is there twice, but for case, or is a file and a folder")
    site = SITE_PACKAGES.lstrip("/") + "/"
    for place in places:
        top = place.removeprefix(site).partition("/")[0] if place.startswith(site) else info
        if top != info and _names_distribution(top):
            raise ValueError(f"{place!r} belongs to another distribution")


def _write(
    layer: BlobWriter | None, scheme: Scheme, path: str, data: bytes, *, executable: bool = False
) -> tuple[Scheme, RecordEntry]:
    """Write a file, unless its layer exists already, and return its row of RECORD."""
    if layer:
        layer.add(_place(scheme, path), len(data), [data], executable=executable)
    return scheme, RecordEntry(path, Hash("sha256", encode_digest(hashlib.sha256(data).digest())), len(data))


def _record_prefix(scheme: Scheme, root: Scheme) -> str | None:
    return None if scheme == root else f"{relpath(SCHEME_FOLDERS[scheme], SCHEME_FOLDERS[root])}/"


def _write_member(layer: BlobWriter | None, member: Member, archive: WheelZip) -> tuple[Scheme, RecordEntry]:
    """Write a file of the wheel, and return its row of RECORD."""
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
