"""A locked wheel → a file, from the folder of supplied ones or from a package index, verified by its hash."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex

from tfimg.errors import CHANGED_FILE, HashMismatchError, LockError
from tfimg.proof.index import Index
from tfimg.recipe.lockfile import LockedPackage

PIECE = 1 << 20
"""Bytes at a time."""


def fetch(
    package: LockedPackage,
    folder: Path,
    *,
    indexes: Sequence[Index],
    supplied: Sequence[Path],
    go_on: Callable[[], None],
) -> Path:
    """The wheel in `folder`, downloaded where it is not there yet.

    `go_on` is called for each piece, and raises where the wheel is not wanted any more.
    Raises `HashMismatchError` for a wheel that is not the locked one, `LockError` when no index has it and
    `NetworkError` when an index cannot be reached.
    """
    kept = folder / package.sha256
    if found := next(kept.glob("*.whl"), None):
        return found
    kept.mkdir(parents=True, exist_ok=True)
    partial = kept / f"partial-{token_hex(8)}"
    try:
        name = _download(package, partial, indexes, supplied, go_on)
        # Installers read a wheel's name and version from its file name.
        return partial.replace(kept / name)
    finally:
        partial.unlink(missing_ok=True)


def _download(
    package: LockedPackage,
    target: Path,
    indexes: Sequence[Index],
    supplied: Sequence[Path],
    go_on: Callable[[], None],
) -> str:
    """Write the wheel's content and return its file name."""
    for wheel in supplied:
        if _sha256(wheel) == package.sha256:
            shutil.copy(wheel, target)
            return wheel.name
    others = []
    for index in indexes:
        for name, url in index.locate(package.name, package.version, package.sha256):
            digest = hashlib.sha256()
            with target.open("wb") as sink:
                for piece in index.download(url, PIECE):
                    go_on()
                    digest.update(piece)
                    sink.write(piece)
            if digest.hexdigest() == package.sha256:
                return name
            others.append(f"{name} has sha256 {digest.hexdigest()}")
        others += [
            f"{wheel.filename} has another hash"
            for wheel in index.wheels(package.name)
            if str(wheel.version) == package.version
        ]
    if others:
        raise HashMismatchError(
            f"A wheel from the package index is not the one that was locked: {others[0]}, and the lock has "
            f"{package.name} with {package.sha256}.",
            next_step=CHANGED_FILE,
        )
    raise LockError(
        f"The package index has no {package.name} {package.version} with sha256 {package.sha256}.",
        next_step="If the index is a mirror, check that it has everything; else write the lock anew with `tfimg lock`.",
    )


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
