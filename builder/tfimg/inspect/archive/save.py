"""Collect the files of an image layout, and write them as a folder or as a tar: an interrupted run is continued."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.documents import InvalidDocument
from tfimg.core.errors import DiskSpaceError, FileError, TamperedError
from tfimg.core.tar import BLOCK, END, stream_member
from tfimg.evidence.keys import VerifyingKey
from tfimg.inspect.archive.layout import (
    FULL_NAME,
    INDEX,
    KEYS,
    MARKER,
    PIECE,
    REF_NAME,
    LayoutRegistry,
    blob_path,
    open_plain,
)
from tfimg.registry.images import MAX_MANIFESTS, MAX_TOTAL_BYTES, RegistryImage, open_image
from tfimg.registry.protocol import Descriptor, Manifest, Reader, digest_of

OnProgress = Callable[[int, int], object]
"""Called with the number of bytes so far, and of all bytes."""

LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
"""Content of the marker file (image specification, image-layout.md)."""


@dataclass(frozen=True, slots=True)
class LayoutFile:
    """A file of the layout, and a function that reads its content."""

    name: str
    size: int
    digest: str
    pieces: Callable[[], Iterator[bytes]]

    @property
    def tar_size(self) -> int:
        """Bytes of the file in a tar, with its header."""
        return BLOCK + self.size + -self.size % BLOCK

    def read(self) -> Iterator[bytes]:
        """Yield the content. Raises `TamperedError` if its size is wrong."""
        done = 0
        for piece in self.pieces():
            done += len(piece)
            if done > self.size:
                break
            yield piece
        if done != self.size:
            raise TamperedError(
                f"{self.digest} does not have the {self.size} bytes that its image states.",
                next_step="Push the image again.",
            )

    def stream(self) -> Iterator[bytes]:
        """Yield the file as a member of a tar."""
        return stream_member(self.name, self.size, self.read())


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageLayout:
    """The files of a layout, the index last. `attestations` counts what refers to the image `digest`."""

    digest: str
    files: tuple[LayoutFile, ...]
    attestations: int = 0

    @property
    def size(self) -> int:
        """Bytes of the layout as a tar, and nearly as many as those of the folder."""
        return sum(file.tar_size for file in self.files) + len(END)

    def stream(self) -> Iterator[bytes]:
        """Yield the layout as a tar."""
        for file in self.files:
            yield from file.stream()
        yield END


def collect_image(
    registry: Reader,
    reference: str,
    *,
    tag: str | None,
    repository: str | None = None,
    keys: Sequence[VerifyingKey] = (),
    with_attestations: bool = True,
) -> ImageLayout:
    """Collect an image, its attestations, and public keys. `tag` is its name in the layout, if it has one.

    `repository` replaces the registry's own in that name. The same image and keys give the same files, byte for byte.
    Raises the errors of a `Registry`, and `TamperedError` for malformed documents and for more attestations than an
    image may have.
    """
    image = open_image(registry, reference)
    repository = repository or registry.repository
    names = {REF_NAME: tag, FULL_NAME: f"{repository}:{tag}"} if tag else {FULL_NAME: f"{repository}@{image.digest}"}
    attestations = list(_collect_attestations(registry, image)) if with_attestations else []
    listed = [replace(image.root.descriptor, annotations=names), *(descriptor for descriptor, _ in attestations)]
    manifests = [*(platform.manifest for platform in image.images), *(manifest for _, manifest in attestations)]
    index = {"schemaVersion": 2, "manifests": [descriptor.to_document() for descriptor in listed]}
    saved = _describe_saved(image, f"{repository}:{tag}" if tag else None)
    files = [
        _make_file(MARKER, LAYOUT),
        *(_make_file(f"{KEYS}/{key.identifier.replace(':', '-').replace('/', '_')}.pub", key.pem) for key in keys),
        *(_make_file(blob_path(manifest.digest), manifest.content) for manifest in (*image.indexes, *manifests)),
        *(
            LayoutFile(blob_path(blob.digest), blob.size, blob.digest, partial(registry.get_blob, blob.digest))
            for blob in sorted(_list_blobs(manifests), key=lambda blob: (blob.size, blob.digest))
        ),
        _make_file("manifest.json", json.dumps(saved, sort_keys=True).encode()),
        _make_file(INDEX, json.dumps(index, sort_keys=True).encode()),
    ]
    # Images share layers, and readers refuse two files with one name.
    unique = {file.name: file for file in files}
    return ImageLayout(digest=image.digest, files=tuple(unique.values()), attestations=len(attestations))


def _describe_saved(image: RegistryImage, name: str | None) -> list[dict[str, object]]:
    """Return the manifest.json of `docker save`, which engines with the classic store need."""
    return [
        {
            "Config": blob_path(platform.config_descriptor.digest),
            "RepoTags": [name] if name else [],
            "Layers": [blob_path(layer.digest) for layer in platform.layers],
        }
        for platform in image.platforms[:1]
        if platform.config_descriptor
    ]


def _collect_attestations(registry: Reader, image: RegistryImage) -> Iterator[tuple[Descriptor, Manifest]]:
    """Yield the manifests that refer to the image or its platforms."""
    digests = dict.fromkeys([image.digest, *(platform.manifest.digest for platform in image.images)])
    seen: set[str] = set()
    size = 0
    for descriptor in (one for digest in digests for one in registry.list_referrers(digest)):
        if descriptor.digest in seen or (manifest := registry.find(descriptor.digest)) is None:
            continue
        seen.add(descriptor.digest)
        size += len(manifest.content)
        if len(seen) > MAX_MANIFESTS or size > MAX_TOTAL_BYTES:
            raise TamperedError(
                f"{registry.repository}@{image.digest} has more than {MAX_MANIFESTS} attestations, or more than "
                f"{MAX_TOTAL_BYTES >> 20} MiB of their manifests.",
                next_step="Find out who attached them, and delete those that are not the publisher's.",
            )
        yield replace(descriptor, size=len(manifest.content)), manifest


def _list_blobs(manifests: Sequence[Manifest]) -> Iterator[Descriptor]:
    for manifest in manifests:
        try:
            image = manifest.image
        except InvalidDocument as error:
            raise TamperedError(
                f"The attestation {manifest.digest} is malformed: {error}.", next_step="Do not use the image."
            ) from None
        yield from (blob for blob in (image.config, *image.layers) if blob)


def _make_file(name: str, content: bytes) -> LayoutFile:
    return LayoutFile(name=name, size=len(content), digest=digest_of(content), pieces=lambda: iter([content]))


def require_target(path: Path) -> None:
    """Raise `FileError` if a layout cannot be written there. As `cp`, it makes no parent folders."""
    folder, is_tar = path.resolve().parent, path.suffix == ".tar"
    if not folder.is_dir():
        problem = f"there is no folder {folder}"
    elif path.exists() and not (path.is_file() if is_tar else path.is_dir()):
        problem = "it is not a " + ("file" if is_tar else "folder, nor is its name that of a .tar")
    elif not is_tar and path.is_dir() and any(path.iterdir()) and not (path / MARKER).is_file():
        problem = "it has other files"
    elif not os.access(path if path.is_dir() else folder, os.W_OK):
        problem = "you may not write there"
    else:
        return
    raise FileError(
        f"The image cannot be saved as {path}: {problem}.",
        next_step="Name a new folder, or a new file that ends in .tar, in a folder that you may write to.",
    )


def save_layout(layout: ImageLayout, path: Path, *, on_progress: OnProgress = lambda *_: None) -> None:
    """Write a layout as a folder, or as a tar if the name ends so.

    Whatever an earlier run has written is compared with its digest, and reused. Of a folder, the index is written last;
    a tar gets its name when it is complete. Raises `DiskSpaceError`, `FileError`, and the errors of reading the image.
    """
    require_target(path)
    if not path.exists() and not _partial(path).exists():
        _require_space(path.resolve().parent, layout.size)  # before a file or folder is made
    (_save_tar if path.suffix == ".tar" else _save_folder)(layout, path, on_progress)


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def _save_folder(layout: ImageLayout, folder: Path, on_progress: OnProgress) -> None:
    folder.mkdir(exist_ok=True)
    with _lock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), folder):
        with (folder / MARKER).open("ab"):
            pass  # after an interruption, it shows the next run that the folder is a layout
        if (folder / INDEX).exists() and (other := LayoutRegistry(folder).digest) != layout.digest:
            raise FileError(f"{folder} has another image, {other}.", next_step="Name a new folder, or remove it.")
        missing = [file for file in layout.files if not _has(folder / file.name, file)]
        done = layout.size - sum(file.tar_size for file in missing)
        _require_space(folder, layout.size - done)
        for file in missing:
            path = folder / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = _partial(path)
            partial.unlink(missing_ok=True)  # of a killed run
            try:
                with partial.open("xb") as out:
                    done = _write(out, file.read(), done, layout.size, on_progress)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)


def _save_tar(layout: ImageLayout, path: Path, on_progress: OnProgress) -> None:
    partial = _partial(path)
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    with _lock(descriptor, partial), os.fdopen(descriptor, "r+b", closefd=False) as out:
        kept = _keep_members(out, layout.files)
        done, total = out.tell(), layout.size
        _require_space(path.parent, total - done)
        for file in layout.files[kept:]:
            done = _write(out, file.stream(), done, total, on_progress)
        _write(out, [END], done, total, on_progress)
        partial.replace(path)


def _keep_members(out: BinaryIO, files: Sequence[LayoutFile]) -> int:
    """Keep those of the files that a tar begins with, complete and right, and cut the rest; return their number."""
    end, kept = os.fstat(out.fileno()).st_size, 0
    for file in files:
        start = out.tell()
        header, padding = stream_member(file.name, file.size, ())
        is_whole = start + file.tar_size <= end and out.read(BLOCK) == header
        if not is_whole or _digest(out, file.size) != file.digest or out.read(len(padding)) != padding:
            out.seek(start)
            break
        kept += 1
    out.truncate()
    return kept


def _has(path: Path, file: LayoutFile) -> bool:
    """Return whether a file is there, with the content that it should have."""
    with suppress(OSError), open_plain(path) as found:
        return os.fstat(found.fileno()).st_size == file.size and _digest(found, file.size) == file.digest
    return False


def _digest(content: BinaryIO, size: int) -> str:
    hashed = hashlib.sha256()
    while size and (piece := content.read(min(PIECE, size))):
        raise_if_cancelled()
        hashed.update(piece)
        size -= len(piece)
    return f"sha256:{hashed.hexdigest()}"


def _write(out: BinaryIO, pieces: Iterable[bytes], done: int, total: int, on_progress: OnProgress) -> int:
    """Write pieces to the disk; return how many bytes of `total` are done then."""
    for piece in pieces:
        raise_if_cancelled()
        out.write(piece)
        done += len(piece)
        on_progress(done, total)
    out.flush()
    os.fsync(out.fileno())
    return done


def _require_space(folder: Path, needed: int) -> None:
    if (free := shutil.disk_usage(folder).free) < needed:
        raise DiskSpaceError(
            f"Saving the image needs {needed / 1e6:,.0f} MB, and its disk has {free / 1e6:,.0f} MB free.",
            next_step="Free some space and run it again, or name a place on another disk.",
        )


@contextmanager
def _lock(descriptor: int, path: Path) -> Iterator[None]:
    """Hold the lock of an open file or folder, and close it. Raises `FileError` if another run holds it."""
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = os.path.samestat(os.fstat(descriptor), path.stat())  # not renamed meanwhile
        except (BlockingIOError, FileNotFoundError):
            is_free = False
        if not is_free:
            raise FileError(f"Another run writes {path}.", next_step="Wait for it, or name another place.")
        yield
    finally:
        os.close(descriptor)
