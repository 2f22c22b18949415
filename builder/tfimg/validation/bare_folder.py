"""Write the folder for bare machines: the suite, run.py, and the wheels of the releases' locks."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import UsageError
from tfimg.core.files import hash_file, hash_files, write_atomically
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import collect_bare_facts
from tfimg.recipe.lockfile import Lock, LockedPackage, hash_lock, read_packages
from tfimg.validation.bare_evidence import KIND, SCHEMA

MANIFEST = "manifest.json"

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _File(Document):
    file: Name
    sha256: Sha256
    size: Annotated[int, Field(ge=0)]


class Wheel(_File):
    """A wheel of the folder: one file, or the pieces that run.py joins."""

    pieces: tuple[_File, ...] = ()


class _Manifest(Document):
    kind: Literal["tfimg bare machine"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """A release to prove: an image of the matrix, and its lock."""

    spec: ImageSpec
    lock: Lock


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """What runs on the machine: the files of the suite and of images/bare; `version` is that of tfimg."""

    suite: Mapping[str, bytes]
    scripts: Mapping[str, bytes]
    version: str


Fetch = Callable[[LockedPackage, Path], Path]
"""Downloads a locked wheel into a folder, and returns its file."""

OnWheel = Callable[[int, int, Wheel, bool], None]
"""Called with the number of a wheel, the number of all, the wheel, and whether an earlier run has written it."""


def write_folder(
    folder: Path,
    releases: Sequence[Release],
    program: Program,
    *,
    fetch: Fetch,
    piece_bytes: int | None,
    on_wheel: OnWheel,
) -> tuple[Wheel, ...]:
    """Write the folder, and return its wheels. Intact wheels of an interrupted run stay.

    `piece_bytes` limits the size of a file. Raises `UsageError` for another folder, and the errors of `fetch`.
    """
    _check_folder(folder)
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    # The manifest first: without it, a folder is not continued.
    write_atomically(folder / MANIFEST, json.dumps(_manifest(releases, program), indent=1) + "\n")
    shutil.rmtree(folder / "suite", ignore_errors=True)
    for name, content in {**program.scripts, **{f"suite/{name}": code for name, code in program.suite.items()}}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    packages = {package.sha256: package for release in releases for package in read_packages(release.lock)}
    written = []
    for number, package in enumerate(packages.values(), start=1):
        existing = _find(wheels, package, piece_bytes)
        wheel = existing or _add(wheels, package, fetch, piece_bytes)
        on_wheel(number, len(packages), wheel, existing is not None)
        written.append(wheel)
    return tuple(written)


def _manifest(releases: Sequence[Release], program: Program) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "suite": hash_files(program.suite),
        "tfimg": program.version,
        "releases": [
            {
                "identifier": release.spec.identifier,
                "tensorflow": release.spec.tensorflow,
                "python": release.spec.python,
                "lock": hash_lock(release.lock),
                "facts": collect_bare_facts(release.spec, release.lock),
                "wheels": [package.sha256 for package in read_packages(release.lock)],
                "requirements": "".join(release.lock[name] for name in sorted(release.lock)),
            }
            for release in releases
        ],
    }


def _check_folder(folder: Path) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        parse_document(_Manifest, (folder / MANIFEST).read_bytes())
    except (OSError, InvalidDocument):
        raise UsageError(
            f"{folder} exists, but `tfimg bare` did not create it.", next_step="Name a new folder, or an empty one."
        ) from None


def _find(wheels: Path, package: LockedPackage, piece_bytes: int | None) -> Wheel | None:
    """Return an existing, undamaged wheel in files of the right size."""
    try:
        wheel = parse_document(Wheel, (wheels / f"{package.sha256}.json").read_bytes())
        files = wheel.pieces or (wheel,)
        is_whole = wheel.sha256 == package.sha256 and sum(file.size for file in files) == wheel.size
        is_small = all(file.size <= (piece_bytes or wheel.size) for file in files)
        is_intact = is_whole and is_small and all(hash_file(wheels / file.file) == file.sha256 for file in files)
    except (OSError, InvalidDocument):
        return None
    return wheel if is_intact else None


def _add(wheels: Path, package: LockedPackage, fetch: Fetch, piece_bytes: int | None) -> Wheel:
    """Fetch and verify a wheel; its description comes after its files."""
    with TemporaryDirectory(dir=wheels, prefix=".partial-") as partial:
        file = fetch(package, Path(partial))
        size = file.stat().st_size
        pieces = tuple(_split(file, piece_bytes)) if piece_bytes and size > piece_bytes else ()
        for name in [piece.file for piece in pieces] or [file.name]:
            file.with_name(name).replace(wheels / name)
        wheel = Wheel(file=file.name, sha256=package.sha256, size=size, pieces=pieces)
    write_atomically(wheels / f"{package.sha256}.json", wheel.model_dump_json(indent=1) + "\n")
    return wheel


def _split(file: Path, piece_bytes: int) -> Iterator[_File]:
    with file.open("rb") as source:
        for number, content in enumerate(iter(lambda: source.read(piece_bytes), b"")):
            piece = file.with_name(f"{file.name}.{number:03}")
            piece.write_bytes(content)
            yield _File(file=piece.name, sha256=hashlib.sha256(content).hexdigest(), size=len(content))
