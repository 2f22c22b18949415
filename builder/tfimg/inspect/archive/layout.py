"""Read a bundle as a registry: an image layout in one uncompressed tar (image specification, image-layout.md).

`tfimg bundle` writes one. Content is compared with its digest; everything else in the file is its author's claim.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tarfile import AREGTYPE, REGTYPE, TarInfo

from tfimg.core.documents import InvalidDocument, parse_document
from tfimg.core.errors import FileError, NotInRegistry, TamperedError, UsageError
from tfimg.core.tar import InvalidArchive, TarReader
from tfimg.registry.images import MAX_DOCUMENT_BYTES, MAX_MANIFESTS, MAX_TOTAL_BYTES
from tfimg.registry.protocol import Descriptor, ImageIndex, ImageManifest, Manifest, digest_of
from tfimg.registry.reference import TAG, Reference, parse_reference

INDEX, MARKER = "index.json", "oci-layout"
REF_NAME = "org.opencontainers.image.ref.name"
"""The annotation under which an index keeps a tag."""

FULL_NAME = "io.containerd.image.name"
"""That of the whole reference, which containerd gives an image when it reads a layout."""

KEYS = "keys/"
"""Public keys that came along, below this folder."""

PIECE = 1 << 20
MAX_KEYS = 100
MAX_KEY_BYTES = 10_000

MAX_FILES = 20_000
"""Files in a bundle. Ours have less than 200: layers, evidence, keys."""

PLAIN = (REGTYPE, AREGTYPE)

MAX_PADDING = 1 << 20
"""Zeros behind the end of the archive; programs fill their last record, of 10 KiB as a rule."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Where a file's content lies in the archive, in bytes."""

    offset: int
    size: int


class ArchiveRegistry:
    """See `Registry`: an archive in the place of a repository. Nothing can be put into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places = _places(path)

    @cached_property
    def claimed(self) -> Reference | None:
        """The name that the file claims for its image, which no one has signed. Raises `FileError`."""
        text = self._image.annotations.get(FULL_NAME)
        if text is None:
            return None
        try:
            name = parse_reference(text)
        except UsageError as error:
            raise _no_layout(self.path, f"its {INDEX} names the image wrongly: {error.what.rstrip('.')}") from None
        tag = self._image.annotations.get(REF_NAME)
        if name.digest not in (None, self.digest) or name.tag != tag:
            raise _no_layout(self.path, f"its {INDEX} has two names for the image: {text!r} and {tag!r}")
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
        """The digest of the image that the file is about: the first that its index lists."""
        return self._image.digest

    @cached_property
    def keys(self) -> Mapping[str, bytes]:
        """Public keys that the file brings, by file name. They prove nothing by themselves."""
        names = [name for name in self._places if name.startswith(KEYS)][:MAX_KEYS]
        return {name.removeprefix(KEYS): self._read(name, MAX_KEY_BYTES) for name in names}

    def find(self, reference: str) -> Manifest | None:
        """See `Registry`."""
        tagged = (one.digest for one in self._entries if one.annotations.get(REF_NAME) == reference)
        digest = reference if reference.startswith("sha256:") else next(tagged, None)
        if digest is None or _blob(digest) not in self._places:
            return None
        content = self._read(_blob(digest), MAX_DOCUMENT_BYTES)
        if digest_of(content) != digest:
            raise self._tampered(f"its {digest} has other bytes than that")
        listed = (one.media_type for one in self._entries if one.digest == digest)
        manifest = Manifest(media_type=next(listed, ""), content=content)
        return Manifest(media_type=self._parsed(manifest).media_type or manifest.media_type, content=content)

    def list_tags(self) -> Sequence[str]:
        """See `Registry`."""
        return tuple(name for one in self._entries if (name := one.annotations.get(REF_NAME)))

    def get_blob(self, digest: str) -> Iterator[bytes]:
        """See `Registry`. Raises `NotInRegistry` where the archive lacks it."""
        place = self._places.get(_blob(digest))
        if place is None:
            raise NotInRegistry(f"{self.path} lacks {digest}.", next_step="Get the file again; it is not whole.")
        hashed = hashlib.sha256()
        for piece in self._pieces(place):
            hashed.update(piece)
            yield piece
        if f"sha256:{hashed.hexdigest()}" != digest:
            raise self._tampered(f"its {digest} has other bytes than that")

    def list_referrers(self, digest: str) -> Sequence[Descriptor]:
        """See `Registry`: those that the archive's index lists."""
        return tuple(described for subject, described in self._listed if subject == digest)

    def put(self, reference: str, manifest: Manifest) -> None:
        """Not possible. Raises `UsageError`."""
        raise self._closed(f"{manifest.digest} as {reference}")

    def delete_tag(self, tag: str) -> bool:
        """Not possible."""
        return not tag

    def put_blob(self, content: bytes) -> Descriptor:
        """Not possible. Raises `UsageError`."""
        raise self._closed(digest_of(content))

    def put_stream(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:  # noqa: ARG002  (they stay unread)
        """Not possible. Raises `UsageError`."""
        raise self._closed(f"{digest} of {size} bytes")

    def put_referrer(self, manifest: Manifest, *, subject: str, artifact_type: str) -> Descriptor:
        """Not possible. Raises `UsageError`."""
        raise self._closed(f"{artifact_type} about {subject} ({manifest.digest})")

    @cached_property
    def _entries(self) -> tuple[Descriptor, ...]:
        try:
            found = parse_document(ImageIndex, self._read(INDEX, MAX_DOCUMENT_BYTES)).manifests
        except InvalidDocument as error:
            raise _no_layout(self.path, f"its {INDEX} cannot be understood: {error}") from None
        if len(found) > MAX_MANIFESTS:
            raise _no_layout(self.path, f"its {INDEX} lists more than {MAX_MANIFESTS} manifests")
        return found

    @cached_property
    def _listed(self) -> tuple[tuple[str | None, Descriptor], ...]:
        """The manifests that the index lists, each with the digest of its subject."""
        found, size = [], 0
        for digest in dict.fromkeys(one.digest for one in self._entries):
            if (manifest := self.find(digest)) is None:
                continue
            size += len(manifest.content)
            if size > MAX_TOTAL_BYTES:
                raise self._tampered(f"its manifests have more than {MAX_TOTAL_BYTES >> 20} MiB")
            image = self._parsed(manifest)
            described = Descriptor(
                media_type=manifest.media_type,
                digest=digest,
                size=len(manifest.content),
                annotations=image.annotations,
                artifact_type=image.artifact_type,
            )
            found.append((image.subject.digest if image.subject else None, described))
        return tuple(found)

    @property
    def _image(self) -> Descriptor:
        if not self._entries:
            raise _no_layout(self.path, "it lists no image")
        return self._entries[0]

    def _parsed(self, manifest: Manifest) -> ImageManifest:
        try:
            return manifest.image
        except InvalidDocument as error:
            raise self._tampered(f"its {manifest.digest} is not a manifest: {error}") from None

    def _read(self, name: str, max_bytes: int) -> bytes:
        place = self._places.get(name)
        if place is None:
            raise _no_layout(self.path, f"it has no {name}")
        if place.size > max_bytes:
            raise self._tampered(f"its {name} has more than {max_bytes:,} bytes")
        return b"".join(self._pieces(place))

    def _pieces(self, place: _Place) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            file.seek(place.offset)
            left = place.size
            while left and (piece := file.read(min(PIECE, left))):
                left -= len(piece)
                yield piece

    def _tampered(self, why: str) -> TamperedError:
        return TamperedError(
            f"{self.path} is damaged, or was changed: {why}.",
            next_step="Do not use it; get it again from its source.",
        )

    def _closed(self, what: str) -> UsageError:
        return UsageError(f"{what} cannot be put into {self.path}: it is a file that is only read.", next_step="")


def _places(path: Path) -> dict[str, _Place]:
    """Return the files of an archive by name. Raises `FileError` for anything but plain files and folders."""
    places: dict[str, _Place] = {}
    try:
        with path.open("rb") as file:
            for member in TarReader(file, max_members=MAX_FILES):
                if member.isdir():
                    continue
                if member.type not in PLAIN or member.pax_headers:
                    raise InvalidArchive(f"{member.name[:100]!r} is not a plain file")
                if places.setdefault(member.name, place := _place(member)) is not place:
                    raise InvalidArchive(f"it has two files {member.name[:100]!r}")
            if len(rest := file.read(MAX_PADDING + 1)) > MAX_PADDING or rest.strip(b"\0"):
                raise InvalidArchive("something follows its end")
    except InvalidArchive as error:
        raise _no_layout(path, f"it is not an uncompressed tar archive of plain files: {error}") from None
    if MARKER not in places:
        raise _no_layout(path, f"it has no {MARKER}")
    return places


def _place(member: TarInfo) -> _Place:
    return _Place(offset=member.offset_data, size=member.size)


def _no_layout(path: Path, why: str) -> FileError:
    return FileError(
        f"{path} is not an image layout in a tar archive: {why}.",
        next_step="`tfimg bundle IMAGE FILE` writes one; if it was one, get it again.",
    )


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/', 1)}"
