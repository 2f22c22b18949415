"""A wheel → the files that its installation consists of. What it says of itself is checked before any is written.

The names that a wheel may have, its RECORD, metadata and entry points follow the specification of binary
distributions (packaging.python.org). `installer`, of the Python packaging authority, writes scripts and RECORD.
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
from tfimg.core.printable import escape_unprintable
from tfimg.layers.blob import BlobWriter
from tfimg.layers.wheel_zip import WheelZip, check_path, encode_hash, find_collision
from tfimg.recipe.layout import SITE_PACKAGES

PREFIX = str(Path(SITE_PACKAGES).parents[2])
INTERPRETER = f"{PREFIX}/bin/python"

FOLDERS = {
    "purelib": SITE_PACKAGES,
    "platlib": SITE_PACKAGES,
    "scripts": f"{PREFIX}/bin",
    "data": PREFIX,
    "headers": f"{PREFIX}/include/site/python3",
}
"""Where the parts of a wheel go (the specification of binary distributions calls them schemes)."""

HASHES = ("sha256", "sha384", "sha512")
"""Hashes of a RECORD: the specification forbids those weaker than SHA-256."""

MAX_METADATA = 8 << 20
"""Bytes of RECORD or METADATA. RECORD of TensorFlow 2.21.0 has 2.8 MB."""

MAX_ENTRY_POINTS = 64 << 10
"""Bytes of entry_points.txt or WHEEL: those of TensorFlow's locks have 3 kB at most."""

MAX_LINE = 500
"""Characters of an entry point; `ConfigParser` takes the square of it in time."""

MAX_SCRIPT = 128 << 20
"""Bytes of a file in `.data/scripts`, which is read whole."""

MAX_REASON = 400
"""Characters of what is told about a malformed wheel."""

_ENTRY_POINT = re.compile(r"([\w.]+)\s*:\s*([\w.]+)(\s*\[[\w\s.,-]*\])?")
_UNHASHED = ("RECORD.jws", "RECORD.p7s")


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A file of a wheel: `path` below the folder of its scheme, and its row of RECORD."""

    item: zipfile.ZipInfo
    scheme: Scheme
    path: str
    record: RecordEntry

    @property
    def place(self) -> str:
        """The path in the image, without the leading slash."""
        return f"{FOLDERS[self.scheme]}/{self.path}".lstrip("/")

    @property
    def executable(self) -> bool:
        """Whether its mode has a bit for execution."""
        mode = self.item.external_attr >> 16
        return stat.S_ISREG(mode) and bool(mode & 0o111)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """An open wheel whose names, RECORD, metadata and entry points are sound; `info` is its dist-info folder."""

    archive: WheelZip
    info: str
    root: Scheme
    members: tuple[Member, ...]
    scripts: tuple[Script, ...]


def unpack_wheel(wheel: Path, *, shared: Sequence[str], into: BlobWriter | None, rest: BlobWriter | None) -> None:
    """Write a wheel's files: what matches `shared`, patterns of paths below site-packages, `into` one layer.

    What does not match goes to `rest`. A layer that is None exists already: its files are not even read. Raises
    `InvalidWheel` for a wheel that is malformed or damaged; what was written until then is not to be used.
    """
    with _opened(wheel) as opened:
        _install(opened, shared=shared, into=into, rest=rest)


def list_record_rows(wheel: Path, shared: Sequence[str]) -> list[str]:
    """Return the rows of a wheel's RECORD whose paths match `shared`. Raises `InvalidWheel`."""
    with _opened(wheel) as opened:
        rows = (member.record.to_row() for member in opened.members)
        return sorted(",".join(row) for row in rows if _matches(row[0], shared))


@contextmanager
def _opened(wheel: Path) -> Iterator[Wheel]:
    """Open a wheel and check what it says of itself. Raises `InvalidWheel`, also for what fails inside the block."""
    try:
        with io.FileIO(wheel) as raw:
            yield _read(wheel.name, WheelZip(raw))
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


def _read(filename: str, archive: WheelZip) -> Wheel:
    """Read what a wheel says of itself. Raises `ValueError` and what parsers raise."""
    name, version, _, _ = parse_wheel_filename(filename)
    stem = "-".join(filename.split("-")[:2])
    info = _find_info(archive, name, version)
    _check_metadata(_headers(archive, f"{info}/METADATA", MAX_METADATA), name, version)
    root = _find_root(_headers(archive, f"{info}/WHEEL", MAX_ENTRY_POINTS))
    records = _read_records(archive, info)
    members = tuple(
        _locate(item, records[path], data=f"{stem}.data", root=root) for path, item in archive.files.items()
    )
    scripts = tuple(_read_scripts(archive, f"{info}/entry_points.txt"))
    _check_places(members, scripts, info)
    return Wheel(archive=archive, info=info, root=root, members=members, scripts=scripts)


def _find_info(archive: WheelZip, name: str, version: Version) -> str:
    """Return the one dist-info folder, which has to name the wheel's distribution."""
    found = sorted({path.split("/")[0] for path in archive.files if _names_distribution(path.split("/")[0])})
    stem, dash, stated = found[0].removesuffix(".dist-info").partition("-") if len(found) == 1 else ("", "", "")
    if not dash or canonicalize_name(stem) != name or Version(stated) != version:
        raise ValueError(f"it has to have one folder {name}-{version}.dist-info, and has {found[:3]}")
    return found[0]


def _names_distribution(component: str) -> bool:
    """Return whether Python takes an entry of site-packages for a distribution (`importlib.metadata` ignores case)."""
    return component.lower().endswith((".dist-info", ".egg-info"))


def _headers(archive: WheelZip, path: str, limit: int) -> Message:
    # Headers alone: a parser of whole messages recurses into a body of messages.
    return HeaderParser().parsestr(archive.read(path, limit).decode())


def _check_metadata(headers: Message, name: str, version: Version) -> None:
    names, versions = headers.get_all("Name", []), headers.get_all("Version", [])
    if [canonicalize_name(one) for one in names] != [name] or len(versions) != 1 or Version(versions[0]) != version:
        raise ValueError(f"METADATA has to be of {name} {version}, and states {names[:2]} {versions[:2]}")


def _find_root(headers: Message) -> Scheme:
    stated = str(headers["Wheel-Version"])
    if not re.fullmatch(r"1\.\d+", stated):
        raise ValueError(f"its Wheel-Version is {stated!r}, and only 1.x is known")
    return Scheme("purelib" if headers["Root-Is-Purelib"] == "true" else "platlib")


def _read_records(archive: WheelZip, info: str) -> dict[str, RecordEntry]:
    """Return the row of RECORD for each file: all are listed with size and hash, and nothing else is."""
    path = f"{info}/RECORD"
    unhashed = {path, *(f"{info}/{name}" for name in _UNHASHED)}
    found: dict[str, RecordEntry] = {}
    for row in parse_record_file(archive.read(path, MAX_METADATA).decode().splitlines()):
        if row[0] not in archive.files or row[0] in found:
            raise ValueError(f"RECORD lists {row[0]!r}, which is not in the wheel or listed before")
        found[row[0]] = RecordEntry.from_elements(*row)
    for name, item in archive.files.items():
        entry = found.setdefault(name, RecordEntry(name, None, None)) if name in unhashed else found.get(name)
        if entry is None:
            raise ValueError(f"{name!r} is not listed in RECORD")
        if (entry.hash_ is None and entry.size is None) if name in unhashed else _states(entry, item.file_size):
            continue
        raise ValueError(f"{name!r} has another size, a weak hash or none in RECORD")
    return found


def _states(entry: RecordEntry, size: int) -> bool:
    """Return whether a row of RECORD has a strong hash and the size of the file."""
    return entry.hash_ is not None and entry.hash_.name in HASHES and entry.size == size


def _locate(item: zipfile.ZipInfo, record: RecordEntry, *, data: str, root: Scheme) -> Member:
    """Return where a file goes. Raises `ValueError` for a `.data` folder that installers would read differently."""
    top, _, below = item.filename.partition("/")
    if not top.lower().endswith(".data"):
        return Member(item=item, scheme=root, path=item.filename, record=record)
    scheme, _, path = below.partition("/")
    if top != data or scheme not in FOLDERS or not path:
        raise ValueError(f"{item.filename!r} is not below a known folder of {data}")
    return Member(item=item, scheme=Scheme(scheme), path=path, record=record)


def _read_scripts(archive: WheelZip, path: str) -> Iterator[Script]:
    """Yield the scripts that entry points ask for."""
    if path not in archive.files:
        return
    text = archive.read(path, MAX_ENTRY_POINTS).decode()
    if max(map(len, text.splitlines()), default=0) > MAX_LINE:
        raise ValueError(f"{path!r} has a line of more than {MAX_LINE} characters")
    # Without interpolation: values that refer to each other would multiply.
    parser = configparser.ConfigParser(delimiters="=", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # its documentation says so
    parser.read_string(text)
    sections: tuple[Literal["console", "gui"], ...] = ("console", "gui")
    for section in sections:
        for name, value in parser.items(f"{section}_scripts") if f"{section}_scripts" in parser else ():
            match = _ENTRY_POINT.fullmatch(value) if len(value) <= MAX_LINE else None
            if "/" in name or check_path(name) or match is None:
                raise ValueError(f"{path!r} has the script {name!r} = {value[:MAX_LINE]!r}")
            yield Script(name, match[1], match[2], section)


def _check_places(members: Sequence[Member], scripts: Sequence[Script], info: str) -> None:
    """Raise `ValueError` if two files have one place, or one belongs to another distribution."""
    places = [member.place for member in members]
    if collision := find_collision([*places, *(_script_place(script.name) for script in scripts)]):
        raise ValueError(f"{collision!r} is there twice, but for case, or is a file and a folder")
    site = SITE_PACKAGES.lstrip("/") + "/"
    for place in places:
        top = place.removeprefix(site).partition("/")[0] if place.startswith(site) else info
        if top != info and _names_distribution(top):
            raise ValueError(f"{place!r} belongs to another distribution")


def _script_place(name: str) -> str:
    return f"{FOLDERS['scripts']}/{name}".lstrip("/")


def _install(wheel: Wheel, *, shared: Sequence[str], into: BlobWriter | None, rest: BlobWriter | None) -> None:
    """Write scripts, files, INSTALLER and RECORD, in this order."""
    own = into if tuple(shared) == (".",) else rest
    ours = (f"{wheel.info}/RECORD", f"{wheel.info}/INSTALLER")
    written: list[tuple[Scheme, RecordEntry]] = []

    def write(layer: BlobWriter | None, scheme: Scheme, path: str, data: bytes, *, executable: bool) -> None:
        if layer:
            layer.add(f"{FOLDERS[scheme]}/{path}".lstrip("/"), len(data), [data], executable=executable)
        digest = Hash("sha256", encode_hash(hashlib.sha256(data).digest()))
        written.append((scheme, RecordEntry(path, digest, len(data))))

    for script in wheel.scripts:
        name, data = script.generate(INTERPRETER, "posix")
        write(own, Scheme("scripts"), name, data, executable=True)
    for member in wheel.members:
        # Byte code in a wheel is by mistake, and is made anew in the image.
        if member.item.filename in ours or "__pycache__" in member.item.filename.split("/")[:-1]:
            continue
        if member.scheme == "scripts":
            write(own, member.scheme, member.path, _read_script(wheel.archive, member), executable=True)
            continue
        is_shared = member.scheme in ("purelib", "platlib") and _matches(member.path, shared)
        if layer := into if is_shared else own:
            pieces = wheel.archive.pieces(member.item, member.record)
            layer.add(member.place, member.item.file_size, pieces, executable=member.executable)
        written.append((member.scheme, RecordEntry(member.path, member.record.hash_, member.record.size)))
    write(own, wheel.root, f"{wheel.info}/INSTALLER", b"tfimg\n", executable=False)
    written.append((wheel.root, RecordEntry(f"{wheel.info}/RECORD", None, None)))

    def prefix(scheme: Scheme) -> str | None:
        return None if scheme == wheel.root else f"{relpath(FOLDERS[scheme], FOLDERS[wheel.root])}/"

    with construct_record_file(written, prefix) as record:
        write(own, wheel.root, f"{wheel.info}/RECORD", record.read(), executable=False)


def _read_script(archive: WheelZip, member: Member) -> bytes:
    """Return a script with the image's interpreter."""
    if member.item.file_size > MAX_SCRIPT:
        raise ValueError(f"{member.item.filename!r} has more than {MAX_SCRIPT} bytes")
    content = b"".join(archive.pieces(member.item, member.record))
    with fix_shebang(io.BytesIO(content), INTERPRETER) as fixed:
        return fixed.read()
