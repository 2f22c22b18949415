"""Wheels as an attacker makes them: one function per attack writes a wheel that must be refused."""

import stat
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from support.wheels import record_hash

INFO = "thing-1.0.dist-info"
DATA = "thing-1.0.data"
NAME = "thing-1.0-py3-none-any.whl"
RECORD = f"{INFO}/RECORD"
METADATA = b"Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n"
WHEEL = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
MODULE = b"x = 1\n"

Member = tuple[str | zipfile.ZipInfo, bytes]
Attack = Callable[[Path], Path]


def write_hostile_wheel(
    folder: Path,
    members: Iterable[Member] = (),
    *,
    metadata: bytes = METADATA,
    wheel: bytes = WHEEL,
    record: Callable[[str], str | None] = lambda text: text,
    name: str = NAME,
) -> Path:
    """Write a wheel; `record` alters its RECORD, or leaves it out with None."""
    everything: list[Member] = [
        ("thing/__init__.py", MODULE), *members, (f"{INFO}/METADATA", metadata), (f"{INFO}/WHEEL", wheel),
    ]  # fmt: skip
    rows = [row(_name(entry), data) for entry, data in everything if not _name(entry).endswith("/")]
    text = record("\n".join([*rows, f"{RECORD},,"]) + "\n")
    if text is not None:
        everything.append((RECORD, text.encode()))
    file = folder / name
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # duplicate names
        for entry, data in everything:
            archive.writestr(entry, data)
    return file


def row(path: str, data: bytes) -> str:
    """Return the row of RECORD for a file."""
    return f'"{path}",sha256={record_hash(data)},{len(data)}'


def _name(entry: str | zipfile.ZipInfo) -> str:
    return entry if isinstance(entry, str) else entry.filename


def with_files_at(*paths: str) -> Attack:
    """Return the attack that puts files at these paths."""
    return lambda folder: write_hostile_wheel(folder, [(path, MODULE) for path in paths])


def with_entry_points(text: str) -> Attack:
    """Return the attack with this entry_points.txt."""
    return lambda folder: write_hostile_wheel(folder, [(f"{INFO}/entry_points.txt", text.encode())])


def with_script(name: str) -> Attack:
    """Return the attack with a console script of this name."""
    return with_entry_points(f"[console_scripts]\n{name} = thing:main\n")


def with_record(change: Callable[[str], str | None]) -> Attack:
    """Return the attack with an altered RECORD."""
    return lambda folder: write_hostile_wheel(folder, record=change)


def with_metadata(text: bytes) -> Attack:
    """Return the attack with this METADATA."""
    return lambda folder: write_hostile_wheel(folder, metadata=text)


def with_wheel(text: bytes) -> Attack:
    """Return the attack with this WHEEL file."""
    return lambda folder: write_hostile_wheel(folder, wheel=text)


def with_mode(mode: int, name: str = "thing/link") -> Attack:
    """Return the attack with a member of this file type."""

    def attack(folder: Path) -> Path:
        info = zipfile.ZipInfo(name)
        info.create_system, info.external_attr = 3, mode << 16
        return write_hostile_wheel(folder, [(info, b"/etc/passwd")])

    return attack


def with_compression(method: int) -> Attack:
    """Return the attack with a member that is compressed with another method."""

    def attack(folder: Path) -> Path:
        info = zipfile.ZipInfo("thing/data")
        info.compress_type = method
        return write_hostile_wheel(folder, [(info, b"x" * 1000)])

    return attack


def with_changed_bytes(change: Callable[[bytes], bytes], members: Iterable[Member] = ()) -> Attack:
    """Return the attack that changes the bytes of a sound wheel."""

    def attack(folder: Path) -> Path:
        file = write_hostile_wheel(folder, members)
        before = file.read_bytes()
        file.write_bytes(change(before))
        assert file.read_bytes() != before
        return file

    return attack


def directory_field(offset: int, form: str, value: int) -> Callable[[bytes], bytes]:
    """Return a change of one field in the directory entry of thing/__init__.py (APPNOTE.TXT 4.3.12)."""

    def change(content: bytes) -> bytes:
        start = content.index(b"PK\1\2") + offset
        packed = struct.pack(form, value)
        return content[:start] + packed + content[start + len(packed) :]

    return change


def end_field(offset: int, value: int) -> Callable[[bytes], bytes]:
    """Return a change of one field in the end of the directory (APPNOTE.TXT 4.3.16)."""

    def change(content: bytes) -> bytes:
        start = content.index(b"PK\5\6") + offset
        return content[:start] + struct.pack("<H", value) + content[start + 2 :]

    return change


def both_flags(bit: int) -> Callable[[bytes], bytes]:
    """Return a change that sets a flag of the first file in its header and in the directory."""

    def change(content: bytes) -> bytes:
        central = directory_field(8, "<H", bit)(content)
        return central[:6] + struct.pack("<H", bit) + central[8:]

    return change


def nul_in_name(content: bytes) -> bytes:
    """Put a NUL into a name: readers that stop there see another name."""
    return content.replace(b"thing/__init__.py", b"thing/\0_init__.py")


def other_local_name(content: bytes) -> bytes:
    """Give the first file another name in its own header than in the directory."""
    return content.replace(b"thing/__init__.py", b"../../__init__.py", 1)


def overlapping(folder: Path) -> Path:
    """Write two directory entries for one compressed file."""
    file = write_hostile_wheel(folder, [("thing/a.py", MODULE), ("thing/b.py", MODULE)])
    content = file.read_bytes()
    directory = content.index(b"PK\1\2")
    entry = content.index(b"thing/a.py", directory) - 46
    later = content.index(b"thing/b.py", directory) - 46
    offset = content[entry + 42 : entry + 46]
    file.write_bytes(content[: later + 42] + offset + content[later + 46 :])
    return file


def nested(folder: Path) -> Path:
    """Write a directory entry for a file inside another file."""
    name = b"thing/b.py"
    sizes = struct.pack("<LLL", zlib.crc32(MODULE), len(MODULE), len(MODULE))
    header = b"PK\3\4" + struct.pack("<HHHHH", 20, 0, 0, 0, 0x21) + sizes + struct.pack("<HH", len(name), 0)
    outer, inner = zipfile.ZipInfo("thing/a.bin"), zipfile.ZipInfo(name.decode())
    file = write_hostile_wheel(folder, [(outer, header + name + MODULE), (inner, MODULE)])
    content = bytearray(file.read_bytes())
    entry = content.index(name, content.index(b"PK\1\2")) - 46
    struct.pack_into("<L", content, entry + 42, content.index(header))
    file.write_bytes(content)
    return file


def bomb(declared: int, real: int, more: bytes = b"") -> Attack:
    """Return the attack whose member inflates to more or less than the directory and RECORD say, or is followed."""

    def attack(folder: Path) -> Path:
        data = bytes(declared)
        file = write_hostile_wheel(folder, [("thing/zeros", data)])
        compress = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = compress.compress(bytes(real)) + compress.flush() + more
        with zipfile.ZipFile(file) as archive:
            item = archive.getinfo("thing/zeros")
            start = archive.start_dir
        content = file.read_bytes()
        # The body moves behind the other files: only its own header and entry change.
        header = bytearray(content[item.header_offset : item.header_offset + 30])
        struct.pack_into("<L", header, 18, len(packed))
        body = bytes(header) + b"thing/zeros" + packed
        directory = bytearray(content[start:])
        entry = directory.index(b"thing/zeros") - 46
        struct.pack_into("<L", directory, entry + 20, len(packed))
        struct.pack_into("<L", directory, entry + 42, start)
        end = directory.index(b"PK\5\6")
        struct.pack_into("<L", directory, end + 16, start + len(body))
        file.write_bytes(content[:start] + body + bytes(directory))
        return file

    return attack


def huge_total(folder: Path) -> Path:
    """Declare 4 GB for each of forty empty files, in the directory and in RECORD."""
    size = 0xFFFFFFF0
    names = [f"thing/{number}.bin" for number in range(40)]
    empty = row("", b"").removeprefix('""')
    file = write_hostile_wheel(
        folder, [(name, b"") for name in names],
        record=lambda text: text.replace(empty, f"{empty.removesuffix('0')}{size}"),
    )  # fmt: skip
    content = bytearray(file.read_bytes())
    directory = content.index(b"PK\1\2")
    for name in names:
        struct.pack_into("<L", content, content.index(name.encode(), directory) - 46 + 24, size)
    file.write_bytes(content)
    return file


def deep_entry_points() -> str:
    """Return values that refer to each other ten times over ten levels: 10^10 expansions in a ConfigParser."""
    lines = [f"k{level} = {f'%(k{level + 1})s' * 10}" for level in range(9)]
    return "\n".join(["[console_scripts]", *lines, "k9 = x", ""])


def many_members(folder: Path) -> Path:
    """Write a directory of more than 8 MiB."""
    file = write_hostile_wheel(folder)
    content = file.read_bytes()
    start = content.index(b"PK\1\2")
    end = content.index(b"PK\5\6")
    info = zipfile.ZipInfo("thing/x")
    entry = struct.pack(
        "<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, 0, 0, 0, 0, 0, 0, 0, len(info.filename), 0, 0, 0, 0, 0, 0
    ) + info.filename.encode()  # fmt: skip
    directory = content[start:end] + entry * (200_000)
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(directory), start, 0)
    file.write_bytes(content[:start] + directory + tail)
    return file


def not_text(content: bytes) -> bytes:
    """Flag a name as UTF-8 that is not (APPNOTE.TXT, appendix D)."""
    return both_flags(0x800)(content).replace(b"thing/__init__.py", b"thing/\xff\xffnit__.py")


def without_record_row(path: str) -> Callable[[str], str]:
    """Return a change of RECORD that leaves a file out."""
    return lambda text: "".join(f"{line}\n" for line in text.splitlines() if f'"{path}"' not in line)


def replace(before: str, after: str) -> Callable[[str], str]:
    """Return a change of RECORD that replaces a text that it must have."""

    def change(text: str) -> str:
        assert before in text
        return text.replace(before, after)

    return change


HASH = record_hash(MODULE)
ROW = row("thing/__init__.py", MODULE)

ATTACKS: Mapping[str, Attack] = {
    # Names that leave their folder, or that readers understand differently.
    "parent": with_files_at("../evil.py"),
    "parent inside": with_files_at("thing/../../evil.py"),
    "absolute": with_files_at("/etc/evil"),
    "dot": with_files_at("thing/./evil.py"),
    "double slash": with_files_at("thing//evil.py"),
    "backslash": with_files_at("thing\\..\\evil.py"),
    "drive": with_files_at("C:\\evil.py"),
    "NUL": with_changed_bytes(nul_in_name),
    "line feed": with_files_at("thing/a\nb.py"),
    "escape": with_files_at("thing/\x1b[31m.py"),
    "bidi": with_files_at("thing/\u202egnp.py"),
    "folder above": with_files_at("../"),
    "component of 256 bytes": with_files_at(f"thing/{'n' * 256}"),
    "component of 256 bytes in UTF-8": with_files_at(f"thing/{'é' * 128}"),
    "path of 5,000 bytes": with_files_at("thing/" + "a/" * 2500 + "b"),
    "folders 40 deep": with_files_at("a/" * 40 + "b"),
    "data scheme leaves": with_files_at(f"{DATA}/scripts/../../evil"),
    "data scheme unknown": with_files_at(f"{DATA}/unknown-scheme/evil"),
    "data scheme empty": with_files_at(f"{DATA}/evil"),
    "data is a file": with_files_at(DATA),
    "data scheme is a file": with_files_at(f"{DATA}/scripts"),
    "data of another": with_files_at("other-1.0.data/scripts/evil"),
    "data in another case": with_files_at("THING-1.0.data/scripts/evil"),
    "another distribution": with_files_at("numpy-9.9.dist-info/METADATA"),
    "another distribution in capitals": with_files_at("numpy-9.9.DIST-INFO/METADATA"),
    "another distribution as an egg": with_files_at("numpy-9.9.egg-info/PKG-INFO"),
    "another distribution as a file": with_files_at("numpy-9.9.egg-info"),
    "another distribution in purelib": with_files_at(f"{DATA}/purelib/numpy-9.9.dist-info/METADATA"),
    "another distribution in data": with_files_at(
        f"{DATA}/data/lib/python3/site-packages/numpy-9.9.dist-info/METADATA"
    ),
    "duplicate": with_files_at("thing/a.py", "thing/a.py"),
    "duplicate in another case": with_files_at("thing/a.py", "thing/A.py"),
    "duplicate in purelib": with_files_at("thing/a.py", f"{DATA}/purelib/thing/a.py"),
    "duplicate in data": with_files_at("thing/a.py", f"{DATA}/data/lib/python3/site-packages/thing/a.py"),
    "file and folder": with_files_at("thing/a", "thing/a/b.py"),
    "two names in one header": with_changed_bytes(other_local_name),
    # Kinds of files.
    "symbolic link": with_mode(stat.S_IFLNK | 0o777),
    "device": with_mode(stat.S_IFCHR | 0o666),
    "pipe": with_mode(stat.S_IFIFO | 0o666),
    "folder that is a link": with_mode(stat.S_IFLNK | 0o777, "thing/link/"),
    "encrypted": with_changed_bytes(both_flags(1)),
    "patched": with_changed_bytes(both_flags(0x20)),
    "masked": with_changed_bytes(both_flags(0x2000)),
    "bzip2": with_compression(zipfile.ZIP_BZIP2),
    "lzma": with_compression(zipfile.ZIP_LZMA),
    "unknown method": with_changed_bytes(directory_field(10, "<H", 99)),
    "later version of zip": with_changed_bytes(directory_field(6, "<H", 99)),
    # Sizes.
    "more than declared": bomb(10, 50_000_000),
    "less than declared": bomb(10_000, 10),
    "one byte more than declared": bomb(10, 11),
    "bytes after the stream": bomb(10, 10, b"more"),
    "overlapping": overlapping,
    "nested": nested,
    "160 GB": huge_total,
    "200,000 entries": many_members,
    "offset beyond the end": with_changed_bytes(directory_field(42, "<L", 0xFFFFFFF0)),
    "size beyond the end": with_changed_bytes(directory_field(20, "<L", 0xFFFFFFF0)),
    "metadata of 40 MB": with_metadata(METADATA + b"\n" + b" " * 40_000_000),
    "entry points of 40 MB": with_entry_points("[console_scripts]\n" + "#" * 40_000_000),
    "script of 135 MB": lambda folder: write_hostile_wheel(folder, [(f"{DATA}/scripts/big", bytes(135_000_000))]),
    "no archive": with_changed_bytes(lambda _: b"no archive"),
    "empty": with_changed_bytes(lambda _: b""),
    "cut": with_changed_bytes(lambda content: content[:-40]),
    "checksum": with_changed_bytes(directory_field(16, "<L", 0)),
    "a file on another disk": with_changed_bytes(directory_field(34, "<H", 1)),
    "the end on another disk": with_changed_bytes(end_field(4, 1)),
    "the directory on another disk": with_changed_bytes(end_field(6, 1)),
    "bytes behind the end": with_changed_bytes(lambda content: content + b"more"),
    # RECORD.
    "no RECORD": with_record(lambda _: None),
    "empty RECORD": with_record(lambda _: ""),
    "other hash": with_record(replace(HASH, record_hash(b"other"))),
    "other size": with_record(replace(f"{HASH},6", f"{HASH},7")),
    "no hash": with_record(replace(f"sha256={HASH},6", ",6")),
    "no size": with_record(replace(f"{HASH},6", f"{HASH},")),
    "size not a number": with_record(replace(f"{HASH},6", f"{HASH},six")),
    "size of 5,000 digits": with_record(replace(f"{HASH},6", f"{HASH},{'6' * 5000}")),
    "negative size": with_record(replace(f"{HASH},6", f"{HASH},-6")),
    "MD5": with_record(replace(f"sha256={HASH}", "md5=2ZYMe7zhxOa6hBiyIMGRqA")),
    "SHAKE": with_record(replace(f"sha256={HASH}", "shake_128=AAAA")),
    "unknown hash": with_record(replace(f"sha256={HASH}", "none=AAAA")),
    "hash without a name": with_record(replace(f"sha256={HASH}", HASH)),
    "file not in RECORD": with_record(without_record_row("thing/__init__.py")),
    "METADATA not in RECORD": with_record(without_record_row(f"{INFO}/METADATA")),
    "RECORD names a missing file": with_record(lambda text: f"{text}thing/gone.py,sha256={HASH},6\n"),
    "RECORD names a file above": with_record(lambda text: f"{text}../../evil.py,sha256={HASH},6\n"),
    "RECORD names a file twice": with_record(lambda text: f"{text}{ROW}\n"),
    "RECORD of two columns": with_record(lambda text: f"{text}thing/__init__.py,sha256={HASH}\n"),
    "RECORD of an endless field": with_record(lambda text: text + '"' + "x" * 200_000),
    "name not text": with_changed_bytes(not_text),
    "RECORD hashes itself": with_record(replace(f"{RECORD},,", f"{RECORD},sha256={HASH},6")),
    # Metadata.
    "other name": with_metadata(METADATA.replace(b"thing", b"numpy")),
    "other version": with_metadata(METADATA.replace(b"1.0", b"9.9")),
    "no name": with_metadata(b"Metadata-Version: 2.1\nVersion: 1.0\n"),
    "two names": with_metadata(METADATA + b"Name: numpy\n"),
    "version not a version": with_metadata(METADATA.replace(b"1.0", b"1e999")),
    "METADATA not text": with_metadata(METADATA + b"\xff\xfe"),
    "no Wheel-Version": with_wheel(b"Root-Is-Purelib: true\n"),
    "later Wheel-Version": with_wheel(WHEEL.replace(b"1.0", b"2.0")),
    "file name of another": lambda folder: write_hostile_wheel(folder, name="numpy-1.0-py3-none-any.whl"),
    "file name of another version": lambda folder: write_hostile_wheel(folder, name="thing-2.0-py3-none-any.whl"),
    # Entry points.
    "script above": with_script("../../x"),
    "script with a slash": with_script("sub/x"),
    "script absolute": with_script("/bin/sh"),
    "script dot": with_script(".."),
    "script with a control character": with_script("a\x07b"),
    "script of 256 bytes": with_script("n" * 256),
    "script with a blank": with_script("a b"),
    "script with a blank of Unicode": with_script("a\u00a0b"),
    "script twice": with_entry_points("[console_scripts]\na=thing:a\n[gui_scripts]\na=thing:b\n"),
    "script twice in a section": with_entry_points("[console_scripts]\na=thing:a\na=thing:b\n"),
    "script over a script": lambda folder: write_hostile_wheel(
        folder, [(f"{DATA}/scripts/a", b"#!/bin/sh\n"), (f"{INFO}/entry_points.txt", b"[console_scripts]\na=thing:a\n")]
    ),
    "entry point without an object": with_entry_points("[console_scripts]\na = thing\n"),
    "entry point with code": with_entry_points("[console_scripts]\na = thing:main;import os\n"),
    "entry points without a section": with_entry_points("a = thing:main\n"),
    "entry points that refer": with_entry_points("[console_scripts]\na = %(missing)s:main\n"),
    "entry points that multiply": with_entry_points(deep_entry_points()),
    "entry points of one long line": with_entry_points("[console_scripts]\na" + " " * 300_000 + "b\n"),
    "entry point of spaces": with_entry_points("[console_scripts]\na = thing:m" + "\n  ." * 40_000 + "!\n"),
}
"""Attack → writes the wheel into a folder."""
