"""Read advisories from a folder or an archive of files in the OSV schema, one in each."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from tfimg.advisories.match import AdvisoryIndex
from tfimg.advisories.schema import MAX_BYTES, Advisory
from tfimg.advisories.versions import PYPI, normalize_name
from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.documents import InvalidDocument, parse_document
from tfimg.core.errors import FileError
from tfimg.core.files import read_limited
from tfimg.layers.wheel_zip import WheelFile, WheelZip

MAX_FILES = 300_000
"""Files of one folder or archive. The databases of PyPI and of Debian have less than 100,000 together."""

MAX_TOTAL = 4 << 30
"""Bytes of all files."""

MAX_DEPTH = 8
"""Folders within each other. GitHub's database has 4."""

MAX_RATIO = 500
"""Bytes of an archive's files for each byte of the archive. Advisories have 5 to 20."""

NEXT = "Name a folder or a zip of JSON files in the OSV schema, such as the export of an advisory database."

OnProgress = Callable[[int, int], None]
"""Called with the number of files read and that of all."""


def read_folder(location: Path, wanted: Collection[str] | None, on_progress: OnProgress) -> AdvisoryIndex:
    """Return the advisories in a folder or zip that are about packages of these names, None for all of PyPI.

    The others count: they tell of which ecosystems there are advisories. Raises `FileError` for a location without
    advisories, and for a file that is not one: what it says of a package would be unknown.
    """
    files = _list_zip if location.is_file() else _list_folder
    ecosystems: set[str] = set()
    kept: list[Advisory] = []
    count = 0
    for count, (name, total, content) in enumerate(files(location), start=1):
        raise_if_cancelled()
        on_progress(count, total)
        try:
            advisory = parse_document(Advisory, content, max_bytes=MAX_BYTES)
        except InvalidDocument as error:
            raise FileError(f"{name} is not an advisory in the OSV schema: {error}.", next_step=NEXT) from None
        packages = [affected.package for affected in advisory.affected if affected.package]
        ecosystems |= {package.ecosystem for package in packages}
        if any(
            package.ecosystem == PYPI if wanted is None else normalize_name(package.ecosystem, package.name) in wanted
            for package in packages
        ):
            kept.append(advisory)
    if not count:
        raise FileError(f"{location} has no JSON files.", next_step=NEXT)
    return AdvisoryIndex(kept, source=str(location), ecosystems=ecosystems)


def _list_folder(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """Yield the name of each JSON file, their number, and the content. Links are not followed."""
    found: list[tuple[Path, int]] = []
    for path, folders, files in os.walk(folder, onerror=_raise_unreadable):
        if len(Path(path).relative_to(folder).parts) >= MAX_DEPTH and folders:
            raise _too_much(folder, f"folders more than {MAX_DEPTH} deep")
        plain = (Path(path, name) for name in files if name.endswith(".json"))
        found += [(file, file.stat().st_size) for file in plain if file.is_file() and not file.is_symlink()]
        if len(found) > MAX_FILES:
            raise _too_much(folder, f"more than {MAX_FILES} files")
    if sum(size for _, size in found) > MAX_TOTAL:
        raise _too_much(folder, f"more than {MAX_TOTAL >> 30} GiB")
    for file, _ in sorted(found):
        yield str(file), len(found), read_limited(file, MAX_BYTES, next_step=NEXT)


def _list_zip(file: Path) -> Iterator[tuple[str, int, bytes]]:
    """Yield the name of each JSON file of an archive, their number, and the content."""
    try:
        with WheelFile(file) as raw:
            archive = WheelZip(raw)
            items = {name: item for name, item in archive.files.items() if name.endswith(".json")}
            total = sum(item.file_size for item in items.values())
            if len(items) > MAX_FILES:
                raise _too_much(file, f"more than {MAX_FILES} files")
            if total > MAX_TOTAL or total > MAX_RATIO * file.stat().st_size:
                raise _too_much(file, f"files of {total} bytes in {file.stat().st_size}")
            for name in items:
                yield f"{file}:{name}", len(items), archive.read(name, MAX_BYTES)
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OverflowError, OSError) as error:
        raise FileError(f"{file} cannot be read as a zip of advisories: {error}.", next_step=NEXT) from None


def _raise_unreadable(error: OSError) -> None:
    """Raise `FileError` for a folder that cannot be listed: what its advisories say would be unknown."""
    raise FileError(f"{error.filename} cannot be listed: {error.strerror}.", next_step=NEXT) from None


def _too_much(location: Path, what: str) -> FileError:
    return FileError(f"{location} has {what}, and that is not read.", next_step=NEXT)
