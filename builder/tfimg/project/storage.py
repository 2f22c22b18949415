"""What tfimg keeps on a machine: parts of the state folder, and images and build cache of the engine."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG

from tfimg.core.errors import EngineError, StateInUse
from tfimg.core.text import quote_argument
from tfimg.engine.interface import Engine, LocalImage
from tfimg.engine.machine import PrivateEngine, list_candidates
from tfimg.recipe.labels import IDENTIFIER_LABEL
from tfimg.recipe.tags import find_contradiction

PARTS: Mapping[str, str] = {
    "layers": "layers of wheels, which builds use again",
    "wheels": "downloaded custom wheels",
    "source-wheels": "wheels that tfimg made of sources",
    "locks": "resolved extra packages",
    "inventories": "packages of images that were looked at",
    "cache": "checked texts, rendered Dockerfiles, and lists",
    "batch": "last report of each image",
    "reports": "reports that builds and publications use again",
    "publish": "reports of publications that were interrupted",
    "registry": "locks of registries",
    "candidates": "locks of builds",
    "scratch": "files of builds that were killed",
}
"""Folder below the state folder → its content. Nothing else there is removed; `engine` has its own rule."""

BASE = "tfimg/base:"  # how names of bootstrapped bases begin


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """One thing that tfimg keeps. `why` it stays; None if it can be removed. `bytes` is None if it is not known.

    `removed`: it was, so that it is kept no more.
    """

    name: str
    content: str
    bytes: int | None
    place: str
    why: str | None = None
    removed: bool = False


def list_parts(state: Path) -> Iterator[Kept]:
    """Yield the parts of a state folder, with the bytes that they take on the disk."""
    for name, content in PARTS.items():
        if (folder := state / name).exists():
            yield Kept(name=name, content=content, bytes=count_disk_bytes(folder), place=str(folder))
    engine = PrivateEngine(state)
    if engine.folder.exists():
        why = None if engine.pid() is None else "it runs; `tfimg engine down` stops it"
        size = count_disk_bytes(engine.folder)
        content = "private engine with all its images, build cache and containers"
        yield Kept(name="engine", content=content, bytes=size, place=str(engine.folder), why=why)


def list_in_engine(engine: Engine, state: Path, repository: str) -> Iterator[Kept]:
    """Yield the names of tfimg's images and bases, and the build cache.

    A name is tfimg's if its repository is `repository`, the image has tfimg's label, and the tag does not contradict
    that: images that a user built `FROM` one of them have its labels too. All of them can be removed from the private
    engine of the state folder. Another engine may have other users, so there only images that a report of this state
    folder is about, and the candidates of its killed builds, which it has locks of. An image that lost its tags to a
    later build is tfimg's, by its digest, if such a report is about it or about an equal image.
    """
    host = engine.get_device_support().host
    is_private = host == PrivateEngine(state).host
    candidates = set(list_candidates(state / "candidates", host))
    reported = frozenset(_read_digests(state))
    images = engine.list_images()
    proven = {_describe(image) for image in images if image.digest in reported}
    for image in images:
        identifier = image.labels.get(IDENTIFIER_LABEL, "")
        size = image.compressed_bytes or image.unpacked_bytes
        for name in image.names:
            place, _, tag = name.rpartition(":")
            contradicts = find_contradiction(tag, identifier=identifier, digest=image.digest)
            is_built = place == repository and bool(identifier) and tag[:1].isdigit() and not contradicts
            if is_built or name in candidates or name.startswith(BASE):
                is_ours = is_private or name in candidates or (is_built and image.digest in reported)
                yield Kept(
                    name=name,
                    content="base of Debian's packages" if name.startswith(BASE) else f"image {identifier}",
                    bytes=size,
                    place=host,
                    why=None if is_ours else f"others may use it; `docker image rm {quote_argument(name)}` removes it",
                )
                size = 0  # more names of an image take nothing
        is_unnamed = not (image.names or image.by_digest)
        if identifier and is_unnamed and (image.digest in reported or _describe(image) in proven):
            yield Kept(name=image.digest, content=f"earlier build of image {identifier}", bytes=size, place=host)
    if cached := engine.find_cache_bytes():
        why = None if is_private else "builds of others use it too; `docker builder prune` removes it"
        yield Kept(name="build cache", content="steps of builds", bytes=cached, place=host, why=why)


def _describe(image: LocalImage) -> tuple[str, frozenset[str]]:
    return image.content, frozenset(image.labels)


def _read_digests(state: Path) -> Iterator[str]:
    """Yield the digests of images that the kept reports are about."""
    for folder in ("batch/reports", "reports"):
        for file in (state / folder).glob("*.json"):
            with suppress(OSError, ValueError, RecursionError):
                document = json.loads(file.read_bytes())
                if isinstance(document, dict) and isinstance(document.get("digest"), str):
                    yield document["digest"]


def remove(kept: Sequence[Kept], engine: Engine | None, state: Path) -> tuple[Kept, ...]:
    """Remove all that may be removed, and return everything, what stayed with the reason.

    Raises `StateInUse`, before anything is removed, while a build or publication uses the state folder.
    """
    require_unused(state)
    ended = []
    for one in kept:
        if one.why:
            ended.append(one)
            continue
        try:
            if one.name in PARTS or one.name == "engine":
                path = Path(one.place)
                path.unlink() if path.is_symlink() else shutil.rmtree(path)
            elif engine and one.name == "build cache":
                engine.prune_cache()
            elif engine:
                engine.remove(one.name)
            ended.append(replace(one, removed=True))
        except OSError as error:
            problem = f"{error.filename or one.place}: {(error.strerror or 'it cannot be removed').lower()}"
            ended.append(replace(one, why=problem))
        except EngineError as error:
            ended.append(replace(one, why=error.what))
    if all(one.removed for one in ended):
        with suppress(OSError):  # a user may keep other files there
            state.rmdir()
    return tuple(ended)


def require_unused(state: Path) -> None:
    """Raise `StateInUse` if a process holds the lock of a file of the parts: a build or publication."""
    for path in (path for part in PARTS for path in (state / part).rglob("*")):
        with suppress(OSError):  # what cannot be read cannot be removed either, which is said then
            if not S_ISREG(path.lstat().st_mode):
                continue
            with path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise StateInUse(
                        f"A tfimg that runs uses {path}.", next_step="Let it end, or stop it; then run this again."
                    ) from None


def count_disk_bytes(folder: Path) -> int:
    """Return the bytes that a folder takes on its disk, as `du -x` counts them; what cannot be read counts nothing."""
    seen: set[int] = set()
    total, pending = 0, [folder]
    with suppress(OSError):
        device = folder.lstat().st_dev
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if found.st_dev != device or found.st_ino in seen:
                    continue
                seen.add(found.st_ino)
                total += found.st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
    return total
