"""Read what a shared library states about itself: processor, libraries it needs, search path, glibc, CUDA code.

Libraries are hostile input. pyelftools follows every count and offset of a file, so the file itself is limited: in the
size of one read, and in the number of reads.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfimg.custom.device_code import DeviceCode, read_device_code

MAX_READ = 1 << 20  # bytes at once; names and headers have less than 1 kB
MAX_READS = 1_000_000  # libtensorflow_cc of TensorFlow 2.18.1 takes 140,000, in 0.4 s
MAX_SECONDS = 20.0  # of one library
MAX_VERSIONS = 2000  # of symbols that one library needs: 2.18.1 has 30
MAX_SECTIONS = 1000  # 2.18.1 has 50
MAX_NEEDED = 256  # libraries that one library needs
MAX_TEXT = 16 << 10  # characters of a search path: 2.18.1 has 700

_SECTION_TYPES = ("SHT_PROGBITS", "SHT_GNU_verneed")

PROCESSORS = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}

UNEXPECTED = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError)
"""What pyelftools raises for tables that point to the wrong place."""

_GLIBC = re.compile(r"GLIBC_2\.(\d{1,3})(?:\.\d+)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfFacts:
    """What a shared library states.

    `glibc` is the minor of the oldest glibc 2 that has every symbol it needs. `search_path` are the folders of RUNPATH
    or RPATH. `code` is its CUDA code.
    """

    processor: str
    needed: tuple[str, ...]
    search_path: tuple[str, ...]
    glibc: int | None
    code: DeviceCode


def read_elf(path: Path) -> ElfFacts:
    """Return what a shared library states. Raises `ValueError` for a file that is not a valid one."""
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile

    with _LimitedFile(path) as file:
        try:
            return _read(ELFFile(file), file)
        except (ELFError, ConstructError, UnicodeDecodeError) as error:
            reason = str(error)[:MAX_TEXT] or type(error).__name__
        except UNEXPECTED as error:
            reason = f"its tables are inconsistent ({type(error).__name__})"
    raise ValueError(f"{path.name} is not a valid ELF file: {reason}")


def _read(elf: Any, file: _LimitedFile) -> ElfFacts:
    needed, search_path = _read_dynamic(elf)
    glibc: list[int] = []
    code = DeviceCode()
    for section in _list_sections(elf):
        if section["sh_type"] == "SHT_GNU_verneed":
            glibc += _list_glibc(section)
        elif section.name == ".nv_fatbin":
            code = code.merge(read_device_code(file, section["sh_offset"], section["sh_size"]))
        elif section.name == "__nv_relfatbin":
            # Relocatable code is linked at run time from PTX alone: its architectures are not those of the kernels.
            found = read_device_code(file, section["sh_offset"], section["sh_size"])
            code = code.merge(found.without_architectures())
    return ElfFacts(
        processor=PROCESSORS.get(elf["e_machine"], str(elf["e_machine"])),
        needed=tuple(needed),
        search_path=tuple(filter(None, search_path)),
        glibc=max(glibc, default=None),
        code=code,
    )


def _read_dynamic(elf: Any) -> tuple[list[str], list[str]]:
    """Return the needed libraries and the folders of the search path."""
    needed: list[str] = []
    search_path: list[str] = []
    for segment in elf.iter_segments("PT_DYNAMIC"):
        for tag in segment.iter_tags():
            if tag.entry.d_tag == "DT_NEEDED":
                needed.append(str(tag.needed)[:MAX_TEXT])
            elif tag.entry.d_tag in ("DT_RUNPATH", "DT_RPATH"):
                text = tag.runpath if tag.entry.d_tag == "DT_RUNPATH" else tag.rpath
                search_path += str(text)[:MAX_TEXT].split(":")
            if len(needed) > MAX_NEEDED:
                raise ValueError(f"it needs more than {MAX_NEEDED} libraries")
    return needed, search_path


def _list_sections(elf: Any) -> Iterator[Any]:
    """Yield the sections of the types that matter: of another, pyelftools would read whole tables of symbols."""
    from elftools.common.exceptions import ELFError

    if elf.num_sections() > MAX_SECTIONS:
        raise ValueError(f"it has more than {MAX_SECTIONS} sections")
    for number in range(elf.num_sections()):
        with suppress(ELFError):
            yield elf.get_section(number, _SECTION_TYPES)


def _list_glibc(section: Any) -> Iterator[int]:
    count = 0
    for _, versions in section.iter_versions():
        for version in versions:
            count += 1
            if count > MAX_VERSIONS:
                raise ValueError(f"it needs more than {MAX_VERSIONS} versions of symbols")
            if match := _GLIBC.fullmatch(str(version.name)):
                yield int(match[1])


class _LimitedFile(io.FileIO):
    """A file that may be read `MAX_READS` times, at most `MAX_READ` bytes at once. Raises `ValueError` beyond."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._reads = 0
        self._deadline = time.monotonic() + MAX_SECONDS

    def read(self, size: int | None = -1, /) -> bytes:
        self._reads += 1
        if size is None or not 0 <= size <= MAX_READ:
            raise ValueError(f"it has a part of {size} bytes, and at most {MAX_READ} are read at once")
        if self._reads > MAX_READS or time.monotonic() > self._deadline:
            raise ValueError(
                f"its tables have more than {MAX_READS} entries, or take more than {MAX_SECONDS:g} seconds"
            )
        return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if whence == io.SEEK_SET and not 0 <= offset < 1 << 62:
            raise ValueError("it refers to a place outside of the file")
        try:
            return super().seek(offset, whence)
        except (OSError, OverflowError):
            raise ValueError("it refers to a place outside of the file") from None
