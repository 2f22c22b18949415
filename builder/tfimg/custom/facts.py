"""Read the facts of a TensorFlow wheel from the wheel itself, as hostile input; nothing of it is executed."""

from __future__ import annotations

import mmap
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from installer.records import RecordEntry
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import NotTensorFlowWheel
from tfimg.core.files import hash_file
from tfimg.custom.elf import ElfFacts, read_elf
from tfimg.custom.statements import (
    MAX_TAGS,
    Statements,
    count_tags,
    make_environment,
    read_build_info,
    read_requirements,
    read_statements,
    read_tags,
)
from tfimg.layers.wheel import MAX_ENTRY_POINTS, MAX_METADATA, open_archive, read_headers, read_records
from tfimg.layers.wheel_zip import WheelZip
from tfimg.matrix.schema import PROCESSORS, Platform

PACKAGE = "tensorflow/__init__.py"
FRAMEWORK = "libtensorflow_framework.so.2"

MAX_LIBRARY = 4 << 30  # bytes of one library: libtensorflow_cc of TensorFlow 2.18.1 has 1.1 GB
MAX_LIBRARIES = 1000  # 2.18.1 has 70
MAX_SECONDS = 300.0  # of all libraries: those of 2.18.1 take 10 on a slow machine
MAX_FOUND = 8  # versions in one library

PLATFORM_OF: Mapping[str, Platform] = {processor: platform for platform, processor in PROCESSORS.items()}

_LIBRARY = re.compile(r"[^/]+\.so(\.[\w.]+)?")
# pybind11 compares the Python that a module was compiled for with the running one (PYBIND11_CHECK_PYTHON_VERSION).
_PYTHON_CHECK = b"module was compiled for Python"
_PYTHON = re.compile(rb"\0(3\.\d{1,2})\0")
_TENSORFLOW = re.compile(rb"\0(2\.\d{1,2}\.\d{1,2}(?:-[\w.]{1,30})?)\0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A shared library of a wheel.

    `pythons` are the versions that a Python module says it was compiled for, `versions` those of TensorFlow among the
    strings of its framework library.
    """

    path: str
    elf: ElfFacts
    pythons: tuple[str, ...]
    versions: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelFacts:
    """What a wheel states and contains.

    `name` and `version` are those of METADATA, `filename_tags` and `tags` those of the file name and of WHEEL. `build`
    is the dictionary of build_info.py. `statements` are values of the same fact in several places.
    """

    file: Path
    sha256: str
    name: str
    version: Version
    filename_tags: frozenset[Tag]
    tags: frozenset[Tag]
    requires: tuple[str, ...]
    build: Mapping[str, Any] | None
    statements: Statements
    libraries: tuple[Library, ...]

    @property
    def pythons(self) -> tuple[str, ...]:
        """The CPython minors of the tags; none for a wheel that names no CPython."""
        found = {tag.interpreter[3:] for tag in self.tags if re.fullmatch(r"cp3\d{1,2}", tag.interpreter)}
        return tuple(f"3.{minor}" for minor in sorted(found, key=int))

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms of the tags: `linux/amd64`, or a tag such as `win_amd64` that no image is for."""
        return tuple(sorted({_platform(tag.platform) for tag in self.tags} - {"any"}))

    @property
    def processors(self) -> Mapping[str, str]:
        """The processor of each library by its path."""
        return {library.path: library.elf.processor for library in self.libraries}

    @property
    def claims_cuda(self) -> bool | None:
        """Whether build_info.py states a build for CUDA; None if it states nothing."""
        stated = (self.build or {}).get("is_cuda_build")
        return stated if isinstance(stated, bool) else None

    @property
    def has_cuda_code(self) -> bool:
        """Whether a library has CUDA code."""
        return any(library.elf.code.binaries for library in self.libraries)

    def requirements(self, python: str, platform: Platform, *, extra: str = "") -> tuple[Requirement, ...]:
        """Return what the wheel requires on a Python and platform, with one extra."""
        environment = make_environment(python, platform, extra=extra)
        found = (Requirement(text) for text in self.requires)
        return tuple(one for one in found if one.marker is None or one.marker.evaluate(environment))


def read_facts(file: Path) -> WheelFacts:
    """Return the facts of a wheel.

    Raises `InvalidWheel` for a file that is malformed, damaged or too large, `NotTensorFlowWheel` for another package.
    """
    with open_archive(file) as archive:
        if count_tags(file.stem) > MAX_TAGS:
            raise ValueError(f"its name has more than {MAX_TAGS} tags")
        name, version, _, filename_tags = parse_wheel_filename(file.name)
        infos = sorted({path.split("/")[0] for path in archive.files if path.endswith(".dist-info/METADATA")})
        if len(infos) != 1:
            raise ValueError(f"it must have one dist-info folder with METADATA, but has {infos[:3]}")
        info = infos[0]
        metadata = read_headers(archive, f"{info}/METADATA", MAX_METADATA)
        headers = read_headers(archive, f"{info}/WHEEL", MAX_ENTRY_POINTS)
        records = read_records(archive, info)
        stated_name, stated_version = str(metadata["Name"]), Version(str(metadata["Version"]))
        _require_tensorflow(file, archive, stated_name)
        build = read_build_info(archive)
        statements = dict(read_statements(archive, build))
        statements["name"] = {"METADATA": canonicalize_name(stated_name), "the file name": name}
        statements["version"] = {
            "METADATA": str(stated_version),
            "the file name": str(version),
            "the dist-info folder": _normalize(info.removesuffix(".dist-info").rpartition("-")[2]),
            **{source: _normalize(text) for source, text in statements["version"].items()},
        }
        return WheelFacts(
            file=file,
            sha256=hash_file(file),
            name=canonicalize_name(stated_name),
            version=stated_version,
            filename_tags=filename_tags,
            tags=read_tags(headers) or filename_tags,
            requires=read_requirements(metadata),
            build=build,
            statements=statements,
            libraries=tuple(_read_libraries(archive, records)),
        )


def _require_tensorflow(file: Path, archive: WheelZip, name: str) -> None:
    """Raise `NotTensorFlowWheel` for a wheel without the package `tensorflow` or without its libraries."""
    has_libraries = any(_is_library(path) for path in archive.files if path.startswith("tensorflow/"))
    if PACKAGE in archive.files and has_libraries:
        return
    lacks = "shared libraries" if PACKAGE in archive.files else PACKAGE
    depends = " It may only depend on the package that has them." if name.lower().startswith("tensorflow") else ""
    raise NotTensorFlowWheel(
        f"{file.name} is a wheel of {name[:100]!r} without {lacks}.{depends}",
        next_step="Name a wheel that contains TensorFlow for Linux, such as the result of its build_pip_package.",
    )


def _normalize(version: str) -> str:
    """Return a version as PEP 440 writes it, if it is one: TensorFlow's headers have `2.18.0-rc1`."""
    try:
        return str(Version(version))
    except InvalidVersion:
        return version


def _platform(tag: str) -> str:
    """Return the platform of a tag: `linux/amd64` for `manylinux2014_x86_64`; the tag itself for other systems."""
    processor = next((name for name in PLATFORM_OF if tag.endswith(f"_{name}")), None)
    is_linux = tag.startswith(("linux_", "manylinux"))
    return PLATFORM_OF[processor] if processor and is_linux else tag


def _is_library(path: str) -> bool:
    return _LIBRARY.fullmatch(path.rpartition("/")[2]) is not None


def _read_libraries(archive: WheelZip, records: Mapping[str, RecordEntry]) -> Iterator[Library]:
    """Yield the shared libraries, each copied to a temporary file first. Raises `ValueError`."""
    items = [item for path, item in archive.files.items() if _is_library(path)]
    if len(items) > MAX_LIBRARIES or any(item.file_size > MAX_LIBRARY for item in items):
        raise ValueError(f"it has more than {MAX_LIBRARIES} libraries, or one of more than {MAX_LIBRARY >> 30} GiB")
    deadline = time.monotonic() + MAX_SECONDS
    with tempfile.TemporaryDirectory(prefix="tfimg-wheel-") as folder:
        for item in items:
            if time.monotonic() > deadline:
                raise ValueError(f"its libraries take more than {MAX_SECONDS:g} seconds to read")
            target = Path(folder, item.filename.rpartition("/")[2])
            try:
                with target.open("wb") as sink:
                    for piece in archive.pieces(item, records[item.filename]):
                        raise_if_cancelled()
                        sink.write(piece)
            except OSError as error:
                error.filename = f"{target} ({item.file_size >> 20} MiB; TMPDIR names another folder)"
                raise
            pythons, versions = _find_strings(target)
            yield Library(path=item.filename, elf=read_elf(target), pythons=pythons, versions=versions)
            target.unlink()


def _find_strings(library: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the Pythons that a module was compiled for, and the versions in TensorFlow's framework library."""
    if not library.stat().st_size:
        return (), ()
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        pythons = _find(_PYTHON, content) if content.find(_PYTHON_CHECK) >= 0 else ()
        versions = _find(_TENSORFLOW, content) if library.name == FRAMEWORK else ()
    return pythons, versions


def _find(pattern: re.Pattern[bytes], content: mmap.mmap) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for match in pattern.finditer(content):
        found[match[1].decode()] = None
        if len(found) == MAX_FOUND:
            break
    return tuple(found)
