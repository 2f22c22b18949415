"""Fetch locked wheels, verify their hashes, and share them between builds."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import HashMismatchError, LockError
from tfimg.core.files import hash_file
from tfimg.index.client import Index
from tfimg.recipe.lock import LockedPackage


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelSource:
    """Package indexes in order, and wheels that none of them has."""

    indexes: Sequence[Index]
    supplied: Sequence[Path] = ()


def fetch_wheel(
    package: LockedPackage,
    folder: Path,
    *,
    downloads: Path,
    source: WheelSource,
    on_damaged: Callable[[], None] = lambda: None,
) -> Path:
    """Return a package's wheel in `folder`, which belongs to one build.

    `downloads` shares wheels between builds. A build uses a hard link of its own, so that a shared wheel may be
    removed at any time. The caller holds the package's lock, so that two builds do not download the same wheel.
    `on_damaged` is called when a shared wheel is not the locked one; it is removed and downloaded again.
    Raises `HashMismatchError` for a wheel that is not the locked one, `LockError` when no index has it,
    `NetworkError` when an index cannot be reached and `Interrupted` when the work is cancelled.
    """
    folder.mkdir(parents=True, exist_ok=True)
    prefix = f"{package.sha256}-"
    for shared in _shared(package, downloads):
        with suppress(FileNotFoundError):  # another build has removed it since it was listed
            if hash_file(shared) != package.sha256:
                shared.unlink()
                on_damaged()
                continue
            # Before the link appears, which has the same time: `LayerStore.prune` removes old files.
            os.utime(shared)
            wheel = folder / shared.name.removeprefix(prefix)
            wheel.hardlink_to(shared)
            return wheel
    partial = folder / f"partial-{token_hex(8)}"
    try:
        name = _download(package, partial, source)
        # Installers read a wheel's name and version from its file name.
        wheel = partial.replace(folder / name)
    finally:
        partial.unlink(missing_ok=True)
    (downloads / f"{prefix}{name}").hardlink_to(wheel)
    return wheel


def remove_downloads(packages: Sequence[LockedPackage], downloads: Path) -> None:
    """Remove shared wheels. Builds that have fetched them keep their own links."""
    for package in packages:
        for shared in _shared(package, downloads):
            shared.unlink(missing_ok=True)


def _shared(package: LockedPackage, downloads: Path) -> Iterator[Path]:
    return downloads.glob(f"{package.sha256}-*.whl")


def _download(package: LockedPackage, target: Path, source: WheelSource) -> str:
    """Write the wheel's content and return its file name."""
    for supplied in source.supplied:
        if hash_file(supplied) == package.sha256:
            shutil.copy(supplied, target)
            return supplied.name
    mismatches = []
    for index in source.indexes:
        for wheel in index.find_wheels(package.name, package.version, package.sha256):
            digest = hashlib.sha256()
            with target.open("wb") as sink:
                for piece in index.download(wheel):
                    raise_if_cancelled()
                    digest.update(piece)
                    sink.write(piece)
            if digest.hexdigest() == package.sha256:
                return wheel.filename
            mismatches.append(f"{wheel.filename} has sha256 {digest.hexdigest()}")
        listed = [wheel for wheel in index.wheels(package.name) if str(wheel.version) == package.version]
        mismatches += [f"{wheel.filename} has another hash" for wheel in listed]
    if mismatches:
        raise HashMismatchError(
            f"The hash of a wheel from the package index differs from the lock: {mismatches[0]}, but the "
            f"lock has {package.name} with {package.sha256}."
        )
    raise LockError(
        f"The package index has no {package.name} {package.version} with sha256 {package.sha256}.",
        next_step="If the index is a mirror, check that it has everything; else update the lock with `tfimg lock`.",
    )
