"""Wheels that were made of source distributions: kept in the state folder, by source, image and day."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from urllib.parse import unquote

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import FileError, HashMismatchError, LockError
from tfimg.core.files import hash_file, hash_files, wait_for_lock, write_atomically
from tfimg.core.text import escape_unprintable, list_first, split_url
from tfimg.index.client import Index, SourceArchive
from tfimg.matrix.spec import ImageSpec
from tfimg.project.services import Services
from tfimg.recipe.requirements import Source, hide_secrets

SourceRelease = tuple[str, str]
"""Name and version of a release that the package index has as source."""

Unmade = Source | SourceRelease
"""What a wheel is made of."""

MAX_SHOWN = 200  # characters of an address in a message
MAX_LISTED = 10  # sources in one note

FOLDER = "source-wheels"
"""Folder of the state folder: `wheels` has a folder for each SHA-256, `made` has the SHA-256 of what was made."""


def find_kept_wheel(state: Path, sha256: str) -> Path | None:
    """Return the whole wheel with a hash that was made earlier; None without."""
    wheels = sorted((state / FOLDER / "wheels" / sha256).glob("*.whl"))
    return wheels[0] if wheels and hash_file(wheels[0]) == sha256 else None


def find_archive(name: str, version: str, indexes: Sequence[Index]) -> tuple[Index, SourceArchive]:
    """Return the source archive of a release, and the index that has it. Raises `LockError`, `NetworkError`."""
    for index in indexes:
        for source in index.read_project(name).sources:
            if str(source.version) == version:
                return index, source
    raise LockError(f"The package index has no source of {name} {version}.", next_step="Run the same command again.")


def find_path(source: Source) -> Path | None:
    """Return the file or folder of a source of this machine; None for a repository or an address.

    Raises `FileError` for a missing one, `HashMismatchError` for a file with another hash than is stated.
    """
    is_url = source.address.startswith("file:")
    if source.kind == "git" or ("://" in source.address and not is_url):
        return None
    path = Path(unquote(split_url(source.address).path or source.address) if is_url else source.address)
    if not path.exists():
        raise FileError(f"{source.line}: {describe_source(source)} does not exist.", next_step="Correct the path.")
    if not (path.is_file() or path.is_dir()):
        raise FileError(
            f"{source.line}: {describe_source(source)} is neither a file nor a folder.", next_step="Correct the path."
        )
    if path.is_file() and source.sha256 not in (None, sha256 := hash_file(path)):
        raise HashMismatchError(
            f"{describe_source(source)} has sha256 {sha256}, and {source.line} states {source.sha256}."
        )
    return path


def describe_source(source: Source) -> str:
    """Return the address of a source for a message, without secrets."""
    return escape_unprintable(hide_secrets(source.address))[:MAX_SHOWN]


@dataclass(frozen=True, kw_only=True)
class KeptWheels:
    """The wheels that were made in an image as of a day.

    `spec` is that image: of the request's TensorFlow, Python and Debian packages, without a variant, as slim has no
    headers. `recipe` is the hash of what beside a source decides its wheel.
    """

    services: Services
    spec: ImageSpec
    day: date
    recipe: str

    @property
    def indexes(self) -> Sequence[Index]:
        """The package indexes that have the releases."""
        return self.services.releases(self.spec.python, self.spec.platform).indexes

    def find(self, source: Unmade) -> Path | None:
        """Return the wheel that was made of a source; None without. Raises as `find_archive`."""
        file = self._file(source)
        if file is None or not file.is_file():
            return None
        sha256 = file.read_text()
        return find_kept_wheel(self.services.state, sha256) if re.fullmatch("[0-9a-f]{64}", sha256) else None

    def keep(self, wheel: Path, source: Unmade) -> Path:
        """Return the copy of the wheel of a source, which is complete whenever it is there."""
        sha256, folder = hash_file(wheel), self.services.state / FOLDER
        place = folder / "wheels" / sha256 / wheel.name
        with wait_for_lock(folder / "lock", raise_if_cancelled):
            place.parent.mkdir(parents=True, exist_ok=True)
            Path(shutil.copy(wheel, folder / "partial")).replace(place)
        if file := self._file(source):
            write_atomically(file, sha256)
        return place

    def _file(self, source: Unmade) -> Path | None:
        """Return the file with the hash of the wheel of a source; None if the source may be another one tomorrow."""
        content = self._identify(source)
        text = hashlib.sha256(f"{self.recipe} {content}".encode()).hexdigest()
        return self.services.state / FOLDER / "made" / text if content else None

    def _identify(self, source: Unmade) -> str | None:
        """Return the hash of a source, or its commit; None if it is not known."""
        if not isinstance(source, Source):
            return find_archive(*source, self.indexes)[1].sha256
        content, path = source.commit or source.sha256, find_path(source)
        if path:
            content = _hash_folder(path) if path.is_dir() else hash_file(path)
        return f"{content} {source.subdirectory}" if content else None


def _hash_folder(folder: Path) -> str:
    """Return the hash of a tree; the parts of `.git` count too, as versions are computed from them."""
    files: dict[str, bytes | Path] = {}
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            where = str(path.relative_to(folder))
            if path.is_symlink():
                files[where] = os.fsencode(path.readlink())
            elif path.is_file():
                files[f"{where} {path.stat().st_mode & 0o100:o}"] = path
    return hash_files(files)


MakeWheels = Callable[[KeptWheels, Sequence[Unmade]], Mapping[Unmade, Path | None]]
"""Makes the wheel of each source, and keeps it; None promises that a later build does."""


def promise_wheels(_: KeptWheels, sources: Sequence[Unmade]) -> Mapping[Unmade, None]:
    """Make no wheel."""
    return dict.fromkeys(sources)


def describe_unmade(sources: Sequence[Unmade]) -> Iterator[str]:
    """Yield what a build makes wheels of, and what is therefore not known."""
    names = [f"{describe_source(one)} ({one.line})" if isinstance(one, Source) else " ".join(one) for one in sources]
    if names:
        yield (
            f"`tfimg build` makes the wheels of what exists only as source: {list_first(names, MAX_LISTED)}. Their "
            "size, and which packages they need, is not known before."
        )
