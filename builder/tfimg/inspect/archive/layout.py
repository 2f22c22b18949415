"""Read an image archive as a registry: an image layout in an uncompressed tar (image specification, image-layout.md).

Content is compared with its digest; everything else in the file is an unverified claim.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tarfile import AREGTYPE, REGTYPE, TarInfo

from tfimg.core.documents import InvalidDocument, parse_document
from tfimg.core.errors import FileError, NotInRegistry, TamperedError, UsageError
from tfimg.core.tar import InvalidArchive, TarReader, read_member
from tfimg.core.text import quote_value
from tfimg.registry.images import MAX_DOCUMENT_BYTES, MAX_MANIFESTS, MAX_TOTAL_BYTES
from tfimg.registry.protocol import Descriptor, ImageIndex, ImageManifest, Manifest, digest_of
from tfimg.registry.reference import TAG, Reference, parse_reference

INDEX, MARKER = "index.json", "oci-layout"
REF_NAME = "org.opencontainers.image.ref.name"
"""The annotation with the tag in an index."""

FULL_NAME = "io.containerd.image.name"
"""The annotation with the whole reference: containerd names an image by it."""

KEYS = "keys/"
"""Folder of the public keys."""

MAX_KEYS = 100
MAX_KEY_BYTES = 10_000

MAX_FILES = 20_000
"""Files of an archive. Ours have fewer than 200: layers, evidence, keys."""


def blob_path(digest: str) -> str:
    """Return the path of a blob in a layout."""
    return f"blobs/{digest.replace(':', '/', 1)}"


class ArchiveRegistry:
    """A `Reader` of an archive. Raises `FileError` for a file that is not an image layout."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._members = _read_members(path)

    @cached_property
    def claimed(self) -> Reference | None:
        """The unsigned name of the image in the file. Raises `FileError`."""
        text = self._image.annotations.get(FULL_NAME)
        if text is None:
            return None
        try:
            name = parse_reference(text)
        except UsageError as error:
            raise _not_a_layout(self.path, f"its {INDEX} names the image wrongly: {error.what.rstrip('.')}") from None
        tag = self._image.annotations.get(REF_NAME)
        if name.digest not in (None, self.digest) or name.tag != tag:
            names = f"{quote_value(text)} and {quote_value(tag)}"
            raise _not_a_layout(self.path, f"its {INDEX} has two names for the image: {names}")
        return name

    @property
    def repository(self) -> str:
        """HOST[:PORT]/PATH that the file claims; else the file's own name."""
        return self.claimed.repository if self.claimed else self.path.name

    @property
    def reference(self) -> str:
        """The tag that the file claims for its image, else the digest."""
        tag = self._image.annotations.get(REF_NAME, "")
        return tag if TAG.fullmatch(tag) else self.digest

    @property
    def digest(self) -> str:
        """The digest of the image: the first that the index lists."""
        return self._image.digest

    @cached_property
    def keys(self) -> Mapping[str, bytes]:
        """The public keys in the file by name. They are not trusted."""
        names = [name for name in self._members if name.startswith(KEYS)][:MAX_KEYS]
        return {name.removeprefix(KEYS): self._read(name, MAX_KEY_BYTES) for name in names}

    def find(self, reference: str) -> Manifest | None:
        """See `Reader`."""
        tagged = (entry.digest for entry in self._index if entry.annotations.get(REF_NAME) == reference)
        digest = reference if reference.startswith("sha256:") else next(tagged, None)
        if digest is None or blob_path(digest) not in self._members:
            return None
        content = self._read(blob_path(digest), MAX_DOCUMENT_BYTES)
        if digest_of(content) != digest:
            raise self._tampered(f"the content of {digest} does not match its digest")
        media_type = next((entry.media_type for entry in self._index if entry.digest == digest), "")
        manifest = Manifest(media_type=media_type, content=content)
        return Manifest(media_type=self._parse(manifest).media_type or media_type, content=content)

    def list_tags(self) -> Sequence[str]:
        """See `Reader`."""
        return tuple(tag for entry in self._index if (tag := entry.annotations.get(REF_NAME)))

    def get_blob(self, digest: str) -> Iterator[bytes]:
        """See `Reader`. Raises `NotInRegistry` if the archive lacks it."""
        member = self._members.get(blob_path(digest))
        if member is None:
            raise NotInRegistry(f"{self.path} lacks {digest}.", next_step="Get the file again; it is incomplete.")
        hashed = hashlib.sha256()
        for piece in read_member(self.path, member):
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
            raise _not_a_layout(self.path, f"its {INDEX} cannot be parsed: {error}") from None
        if len(entries) > MAX_MANIFESTS:
            raise _not_a_layout(self.path, f"its {INDEX} lists more than {MAX_MANIFESTS} manifests")
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
            raise _not_a_layout(self.path, "it lists no image")
        return self._index[0]

    def _parse(self, manifest: Manifest) -> ImageManifest:
        try:
            return manifest.image
        except InvalidDocument as error:
            raise self._tampered(f"{manifest.digest} is not a valid manifest: {error}") from None

    def _read(self, name: str, max_bytes: int) -> bytes:
        member = self._members.get(name)
        if member is None:
            raise _not_a_layout(self.path, f"it has no {name}")
        if member.size > max_bytes:
            raise self._tampered(f"its {name} has more than {max_bytes:,} bytes")
        return b"".join(read_member(self.path, member))

    def _tampered(self, reason: str) -> TamperedError:
        return TamperedError(
            f"{self.path} is damaged, or was changed: {reason}.",
            next_step="Do not use it; get it again from its source.",
        )


def _read_members(path: Path) -> dict[str, TarInfo]:
    members: dict[str, TarInfo] = {}
    try:
        with path.open("rb") as file:
            for member in TarReader(file, max_members=MAX_FILES):
                if member.isdir():
                    continue
                if member.type not in (REGTYPE, AREGTYPE) or member.pax_headers:
                    raise InvalidArchive(f"{member.name[:100]!r} is not a plain file")
                if members.setdefault(member.name, member) is not member:
                    raise InvalidArchive(f"it has two files {member.name[:100]!r}")
    except InvalidArchive as error:
        raise _not_a_layout(path, f"it is not an uncompressed tar archive of plain files: {error}") from None
    if MARKER not in members:
        raise _not_a_layout(path, f"it has no {MARKER}")
    return members


def _not_a_layout(path: Path, reason: str) -> FileError:
    return FileError(
        f"{path} is not an image layout in a tar archive: {reason}.",
        next_step="`tfimg save IMAGE FILE` writes one. If the file was one, get it again.",
    )
