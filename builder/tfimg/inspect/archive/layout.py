"""Read an OCI image layout as a registry: a folder, or an uncompressed tar (image specification, image-layout.md).

Content is compared with its digest; everything else in the layout is an unverified claim.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.documents import InvalidDocument, parse_document
from tfimg.core.errors import FileError, NotInRegistry, TamperedError, UsageError
from tfimg.core.text import quote_value
from tfimg.registry.images import MAX_DOCUMENT_BYTES, MAX_MANIFESTS, MAX_TOTAL_BYTES
from tfimg.registry.protocol import Descriptor, ImageIndex, ImageManifest, Manifest, digest_of
from tfimg.registry.reference import TAG, parse_reference

INDEX, MARKER = "index.json", "oci-layout"
REF_NAME = "org.opencontainers.image.ref.name"
"""The annotation with the tag in an index."""

FULL_NAME = "io.containerd.image.name"
"""The annotation with the whole reference: containerd names an image by it."""

KEYS = "keys"
"""Folder of the public keys."""

MAX_KEYS = 100
MAX_KEY_BYTES = 10_000

MAX_FILES = 20_000
"""Members of a tar. Ours have fewer than 200: layers, attestations, keys."""

PIECE = 1 << 20
"""Bytes that are read at once."""


def blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/', 1)}"


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file to read. Raises `OSError` for a link, device, pipe or folder, and does not wait for it."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is not a plain file")
    return file


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of a layout: `size` bytes of `path` from `offset`."""

    path: Path
    offset: int
    size: int

    def read(self) -> Iterator[bytes]:
        with open_plain(self.path) as file:
            file.seek(self.offset)
            left = self.size
            while left and (piece := file.read(min(PIECE, left))):
                raise_if_cancelled()
                left -= len(piece)
                yield piece


class LayoutRegistry:
    """A `Reader` of a layout. Raises `FileError` for what is not one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._members = None if path.is_dir() else self._read_members(Path(os.path.realpath(path)))
        self._require(MARKER)

    @property
    def repository(self) -> str:
        """The name of the folder or file, for messages: the names in it are not signed."""
        return self.path.resolve().name

    @property
    def digest(self) -> str:
        """The digest of the image: the first that the index lists."""
        return self._image.digest

    @property
    def tag(self) -> str | None:
        """The unsigned tag of the image in the index."""
        tag = self._image.annotations.get(REF_NAME, "")
        return tag if TAG.fullmatch(tag) else None

    @property
    def claimed_repository(self) -> str | None:
        """The unsigned repository of the image in the index. Raises `FileError` for a malformed name."""
        if (name := self._image.annotations.get(FULL_NAME)) is None:
            return None
        try:
            return parse_reference(name).repository
        except UsageError as error:
            raise self._not_a_layout(f"its {INDEX} names the image wrongly: {error.what.rstrip('.')}") from None

    @cached_property
    def keys(self) -> Mapping[str, bytes]:
        """The public keys in the layout by name. They are not trusted."""
        if self._members is None:
            names = [file.name for file in islice((self.path / KEYS).glob("*"), MAX_KEYS)]
        else:
            names = [name.removeprefix(f"{KEYS}/") for name in self._members if name.startswith(f"{KEYS}/")]
        return {name: self._read(f"{KEYS}/{name}", MAX_KEY_BYTES) for name in names[:MAX_KEYS]}

    def find(self, reference: str) -> Manifest | None:
        tagged = (entry.digest for entry in self._index if entry.annotations.get(REF_NAME) == reference)
        digest = reference if reference.startswith("sha256:") else next(tagged, None)
        if digest is None or self._find(blob_path(digest)) is None:
            return None
        content = self._read(blob_path(digest), MAX_DOCUMENT_BYTES)
        if digest_of(content) != digest:
            raise self._tampered(f"the content of {digest} does not match its digest")
        media_type = next((entry.media_type for entry in self._index if entry.digest == digest), "")
        manifest = Manifest(media_type=media_type, content=content)
        return replace(manifest, media_type=self._parse(manifest).media_type or media_type)

    def list_tags(self) -> Sequence[str]:
        return tuple(tag for entry in self._index if (tag := entry.annotations.get(REF_NAME)))

    def get_blob(self, digest: str) -> Iterator[bytes]:
        """See `Reader`. Raises `NotInRegistry` if the layout lacks it."""
        part = self._find(blob_path(digest))
        if part is None:
            raise NotInRegistry(f"{self.path} lacks {digest}.", next_step="Get it again; it is incomplete.")
        hashed = hashlib.sha256()
        for piece in part.read():
            hashed.update(piece)
            yield piece
        if f"sha256:{hashed.hexdigest()}" != digest:
            raise self._tampered(f"the content of {digest} does not match its digest")

    def list_referrers(self, digest: str) -> Sequence[Descriptor]:
        """See `Reader`: those that the index lists."""
        return tuple(descriptor for subject, descriptor in self._subjects if subject == digest)

    @cached_property
    def _index(self) -> tuple[Descriptor, ...]:
        try:
            entries = parse_document(ImageIndex, self._read(INDEX, MAX_DOCUMENT_BYTES)).manifests
        except InvalidDocument as error:
            raise self._not_a_layout(f"its {INDEX} cannot be parsed: {error}") from None
        if len(entries) > MAX_MANIFESTS:
            raise self._not_a_layout(f"its {INDEX} lists more than {MAX_MANIFESTS} manifests")
        return entries

    @cached_property
    def _subjects(self) -> tuple[tuple[str | None, Descriptor], ...]:
        """The manifests of the index, each with the digest of its subject."""
        found, size = [], 0
        for digest in dict.fromkeys(entry.digest for entry in self._index):
            if (manifest := self.find(digest)) is None:
                continue
            size += len(manifest.content)
            if size > MAX_TOTAL_BYTES:
                raise self._tampered(f"its manifests have more than {MAX_TOTAL_BYTES >> 20} MiB")
            image = self._parse(manifest)
            descriptor = replace(manifest.descriptor, annotations=image.annotations, artifact_type=image.artifact_type)
            found.append((image.subject.digest if image.subject else None, descriptor))
        return tuple(found)

    @property
    def _image(self) -> Descriptor:
        if not self._index:
            raise self._not_a_layout("it lists no image")
        return self._index[0]

    def _parse(self, manifest: Manifest) -> ImageManifest:
        try:
            return manifest.image
        except InvalidDocument as error:
            raise self._tampered(f"{manifest.digest} is not a valid manifest: {error}") from None

    def _find(self, name: str) -> _Part | None:
        """Return a file of the layout; None without it. Raises `FileError` for what is not a plain file."""
        if self._members is not None:
            return self._members.get(name)
        path = self.path / name
        try:
            with open_plain(path) as file:
                return _Part(path, 0, os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            return None
        except OSError:
            raise self._not_a_layout(f"its {name} is not a plain file that can be read") from None

    def _require(self, name: str) -> _Part:
        part = self._find(name)
        if part is None:
            raise self._not_a_layout(f"it has no {name}")
        return part

    def _read(self, name: str, max_bytes: int) -> bytes:
        part = self._require(name)
        if part.size > max_bytes:
            raise self._tampered(f"its {name} has more than {max_bytes:,} bytes")
        return b"".join(part.read())

    def _read_members(self, path: Path) -> dict[str, _Part]:
        """Return the plain files of a tar. Nothing is unpacked, and extended headers are refused unread."""
        members: dict[str, _Part] = {}
        try:
            with open_plain(path) as file:
                end = os.fstat(file.fileno()).st_size
                while (block := file.read(tarfile.BLOCKSIZE)).strip(b"\0"):
                    member = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
                    name, start = member.name.removeprefix("./"), file.tell()
                    if not member.isdir():
                        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                            raise ValueError(f"{quote_value(name)} is not a plain file, or has an extended header")
                        if name in members or len(members) == MAX_FILES:
                            raise ValueError(f"it has two files {quote_value(name)}, or more than {MAX_FILES:,} files")
                        members[name] = _Part(path, start, member.size)
                    if not 0 <= member.size <= end - start:
                        raise ValueError(f"{quote_value(name)} breaks off")
                    file.seek(start + member.size + -member.size % tarfile.BLOCKSIZE)
        except (OSError, tarfile.TarError, ValueError) as error:
            raise self._not_a_layout(f"it is no uncompressed tar of plain files: {error}") from None
        return members

    def _tampered(self, reason: str) -> TamperedError:
        return TamperedError(
            f"{self.path} is damaged, or was changed: {reason}.",
            next_step="Do not use it; get it again from its source.",
        )

    def _not_a_layout(self, reason: str) -> FileError:
        return FileError(
            f"{self.path} is not an OCI image layout: {reason}.",
            next_step="`tfimg save IMAGE DIR` writes one. If it was one, get it again.",
        )
