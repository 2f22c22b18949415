"""Read which GPUs a library has CUDA code for, from the headers of its fat binaries.

The layout is that of the CUDA toolkit's `fatbinary_section.h` and of what `cuobjdump` reads: a section is a sequence of
fat binaries, each a header and entries, each entry a header and code for one architecture, as machine code or PTX.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import RawIOBase
from types import MappingProxyType

MAGIC = 0xBA55ED50
MAX_BINARIES = 20_000  # in one section: TensorFlow 2.18.1 has 279
MAX_ENTRIES = 64  # in one binary: 2.18.1 has 6
ALIGNMENT = 8

_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes of all entries
_ENTRY = struct.Struct("<HHIQ8xHHI")  # kind, version, bytes of this header, of the code, minor, major, architecture
_PTX, _MACHINE_CODE = 1, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceCode:
    """CUDA code of a library: `binaries` fat binaries, and how many of them have code or PTX for each architecture.

    An architecture is 90 for sm_90. `ptx_version` is the newest version of PTX, which needs a toolkit of its time.
    """

    binaries: int = 0
    machine_code: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    ptx: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    ptx_version: tuple[int, int] | None = None

    def merge(self, other: DeviceCode) -> DeviceCode:
        """Return the code of both."""
        return DeviceCode(
            binaries=self.binaries + other.binaries,
            machine_code=Counter(self.machine_code) + Counter(other.machine_code),
            ptx=Counter(self.ptx) + Counter(other.ptx),
            ptx_version=max(filter(None, (self.ptx_version, other.ptx_version)), default=None),
        )

    def without_architectures(self) -> DeviceCode:
        """Return only the version of PTX."""
        return DeviceCode(ptx_version=self.ptx_version)


def read_device_code(file: RawIOBase, offset: int, size: int) -> DeviceCode:
    """Return the code in a section of fat binaries. Raises `ValueError` if they are malformed."""
    end, binaries = offset + size, 0
    machine_code: Counter[int] = Counter()
    ptx: Counter[int] = Counter()
    versions: set[tuple[int, int]] = set()
    while offset + _HEADER.size <= end:
        magic, _, header_size, entries_size = _HEADER.unpack(_read(file, offset, _HEADER.size))
        if magic == 0:  # padding between the parts that object files brought
            offset += ALIGNMENT
            continue
        last = offset + header_size + entries_size
        if magic != MAGIC or header_size < _HEADER.size or last > end:
            raise ValueError("its CUDA code is malformed")
        binaries += 1
        if binaries > MAX_BINARIES:
            raise ValueError(f"it has more than {MAX_BINARIES} pieces of CUDA code")
        kinds: dict[int, set[int]] = {_PTX: set(), _MACHINE_CODE: set()}
        place = offset + header_size
        for _ in range(MAX_ENTRIES):
            if place + _ENTRY.size > last:
                break
            kind, _, entry_header, code_size, minor, major, architecture = _ENTRY.unpack(
                _read(file, place, _ENTRY.size)
            )
            if entry_header < _ENTRY.size:
                raise ValueError("its CUDA code is malformed")
            kinds.setdefault(kind, set()).add(architecture)
            if kind == _PTX:
                versions.add((major, minor))
            place += entry_header + code_size
        ptx.update(kinds[_PTX])
        machine_code.update(kinds[_MACHINE_CODE])
        offset = -(-last // ALIGNMENT) * ALIGNMENT
    return DeviceCode(binaries=binaries, machine_code=machine_code, ptx=ptx, ptx_version=max(versions, default=None))


def _read(file: RawIOBase, offset: int, size: int) -> bytes:
    file.seek(offset)
    content = file.read(size) or b""
    if len(content) < size:
        raise ValueError("its CUDA code ends early")
    return content
