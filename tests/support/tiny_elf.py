"""Shared libraries of a few hundred bytes that state what real ones state, without code that could run."""

from __future__ import annotations

import struct
from collections.abc import Sequence

X86_64, AARCH64 = 62, 183  # e_machine (System V ABI, processor supplements)
_STRTAB, _DYNAMIC, _PROGBITS, _VERNEED = 3, 6, 1, 0x6FFFFFFE
_HEADER, _PROGRAM, _SECTION = 64, 56, 64  # bytes


def make_elf(
    *, machine: int = X86_64, needed: Sequence[str] = ("libc.so.6",), runpath: str = "", glibc: Sequence[str] = (),
    fatbin: bytes = b"", strings: bytes = b"",
) -> bytes:  # fmt: skip
    """Return a shared library; `fatbin` is its CUDA code, `strings` its read-only data."""
    names = bytearray(b"\0")

    def add(text: str) -> int:
        names.extend(text.encode() + b"\0")
        return len(names) - len(text.encode()) - 1

    tags = [(1, add(name)) for name in needed] + ([(29, add(runpath))] if runpath else []) + [(0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    versions = [(add(version), number) for number, version in enumerate(glibc, start=2)]
    verneed = struct.pack("<HHIII", 1, len(versions), add("libc.so.6"), 16, 0) if versions else b""
    for position, (name, number) in enumerate(versions, start=1):
        following = 16 if position < len(versions) else 0
        verneed += struct.pack("<IHHII", 0, 0, number, name, following)
    parts = [
        (".dynstr", _STRTAB, bytes(names), 0, 0),
        (".dynamic", _DYNAMIC, dynamic, 1, 0),
        (".gnu.version_r", _VERNEED, verneed, 1, 1 if versions else 0),
        (".nv_fatbin", _PROGBITS, fatbin, 0, 0),
        (".rodata", _PROGBITS, strings, 0, 0),
    ]
    parts = [part for part in parts if part[2]]
    titles = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in parts) + b".shstrtab\0"
    offset = _HEADER + _PROGRAM
    body, headers, place = b"", [bytes(_SECTION)], {}
    for name, kind, content, link, info in [*parts, (".shstrtab", _STRTAB, titles, 0, 0)]:
        place[name] = offset + len(body)
        title = titles.index(f"\0{name}\0".encode()) + 1
        size = 16 if kind == _DYNAMIC else 0
        headers.append(struct.pack("<IIQQQQIIQQ", title, kind, 0, 0, place[name], len(content), link, info, 8, size))
        body += content + bytes(-len(content) % 8)
    program = struct.pack("<IIQQQQQQ", 2, 4, place[".dynamic"], 0, 0, len(dynamic), len(dynamic), 8)
    ident = b"\x7fELF\2\1\1" + bytes(9)
    start = offset + len(body)
    count = len(headers)
    header = struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, _HEADER, start, 0, 64, _PROGRAM, 1, _SECTION, count, count - 1
    )
    return ident + header + program + body + b"".join(headers)


def make_fatbin(machine_code: Sequence[int], ptx: Sequence[int], *, ptx_version: tuple[int, int] = (8, 3)) -> bytes:
    """Return a fat binary with a few bytes of code for each architecture."""
    entries = b""
    for kind, architectures, (major, minor) in ((2, machine_code, (1, 7)), (1, ptx, ptx_version)):
        for architecture in architectures:
            entries += struct.pack("<HHIQ8xHHI", kind, 0x101, 64, 8, minor, major, architecture) + bytes(32) + bytes(8)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries
