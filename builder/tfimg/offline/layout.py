"""An image layout in one uncompressed tar (image specification, image-layout.md), as a registry that can be read.

`tfimg bundle` writes one. Whatever is read is held against its digest; everything else in it is somebody's word.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tfimg.contents.images import LARGEST_DOCUMENT, descriptor
from tfimg.errors import FileError, NotInRegistry, TamperedError, UsageError
from tfimg.registry.protocol import Descriptor, Manifest, digest_of

INDEX, MARKER = "index.json", "oci-layout"
REF_NAME = "org.opencontainers.image.ref.name"
"""The annotation under which an index keeps a tag."""

FULL_NAME = "io.containerd.image.name"
"""That of the whole reference, which containerd gives an image when it reads a layout."""

KEYS = "keys/"
"""Public keys that came along, below this folder."""

PIECE = 1 << 20
MOST_KEYS = 100
LARGEST_KEY = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Where a file's content lies in the archive, in bytes."""

    offset: int
    size: int


class LayoutRegistry:
    """See `Registry`: an archive in the place of a repository. Nothing can be put into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places = _places(path)

    @property
    def repository(self) -> str:
        """HOST[:PORT]/PATH that the image had, as the archive tells it; else the archive's own name."""
        name, at, _ = self._named.partition("@")
        return (name if at else name.rpartition(":")[0]) or self.path.name

    @property
    def reference(self) -> str:
        """The tag of the image, as the archive tells it, else its digest."""
        image = self._image
        return image.annotations.get(REF_NAME) or image.digest

    @property
    def digest(self) -> str:
        """Of the image that the archive is about: the first that its index lists."""
        return self._image.digest

    @cached_property
    def keys(self) -> Mapping[str, bytes]:
        """Public keys that came along, by file name. Nobody has said that they are anybody's."""
        names = [name for name in self._places if name.startswith(KEYS)][:MOST_KEYS]
        return {name.removeprefix(KEYS): self._read(name, LARGEST_KEY) for name in names}

    def find(self, reference: str) -> Manifest | None:
        """See `Registry`."""
        tagged = (one.digest for one in self._entries if one.annotations.get(REF_NAME) == reference)
        digest = reference if reference.startswith("sha256:") else next(tagged, None)
        if digest is None or _blob(digest) not in self._places:
            return None
        content = self._read(_blob(digest), LARGEST_DOCUMENT)
        if digest_of(content) != digest:
            raise self._tampered(f"its {digest} has other bytes than that")
        listed = (one.media_type for one in self._entries if one.digest == digest)
        manifest = Manifest(media_type=next(listed, ""), content=content)
        kind = self._document(manifest).get("mediaType") or manifest.media_type
        return Manifest(media_type=str(kind), content=content)

    def tags(self) -> Sequence[str]:
        """See `Registry`."""
        return tuple(name for one in self._entries if (name := one.annotations.get(REF_NAME)))

    def blob(self, digest: str) -> Iterator[bytes]:
        """See `Registry`. Raises `NotInRegistry` where the archive lacks it."""
        place = self._places.get(_blob(digest))
        if place is None:
            raise NotInRegistry(
                f"{self.path} lacks {digest}.", next_step="Get the file again; it is not whole."
            )
        hashed = hashlib.sha256()
        for piece in self._pieces(place):
            hashed.update(piece)
            yield piece
        if f"sha256:{hashed.hexdigest()}" != digest:
            raise self._tampered(f"its {digest} has other bytes than that")

    def referrers(self, digest: str) -> Sequence[Descriptor]:
        """See `Registry`: those that the archive's index lists."""
        found = []
        for listed in self._entries:
            manifest = self.find(listed.digest)
            document = self._document(manifest) if manifest else {}
            subject = document.get("subject")
            if manifest and isinstance(subject, dict) and subject.get("digest") == digest:
                found.append(
                    Descriptor(
                        media_type=manifest.media_type, digest=manifest.digest, size=len(manifest.content),
                        annotations=document.get("annotations") or {}, artifact_type=document.get("artifactType"),
                    )
                )  # fmt: skip
        return tuple(found)

    def put(self, reference: str, manifest: Manifest) -> None:
        """Not possible. Raises `UsageError`."""
        raise self._closed(f"{manifest.digest} as {reference}")

    def untag(self, tag: str) -> bool:
        """Not possible."""
        return not tag

    def put_blob(self, content: bytes) -> Descriptor:
        """Not possible. Raises `UsageError`."""
        raise self._closed(digest_of(content))

    def put_stream(self, digest: str, size: int, pieces: Iterable[bytes]) -> None:  # noqa: ARG002  (they stay unread)
        """Not possible. Raises `UsageError`."""
        raise self._closed(f"{digest} of {size} bytes")

    def refer(self, manifest: Manifest, *, subject: str, artifact_type: str) -> Descriptor:
        """Not possible. Raises `UsageError`."""
        raise self._closed(f"{artifact_type} about {subject} ({manifest.digest})")

    @cached_property
    def _entries(self) -> tuple[Descriptor, ...]:
        try:
            document = json.loads(self._read(INDEX, LARGEST_DOCUMENT))
            return tuple(descriptor(entry) for entry in document["manifests"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _no_layout(self.path, f"its {INDEX} cannot be understood ({error})") from None

    @property
    def _image(self) -> Descriptor:
        if not self._entries:
            raise _no_layout(self.path, "it lists no image")
        return self._entries[0]

    @property
    def _named(self) -> str:
        return self._image.annotations.get(FULL_NAME, "")

    def _document(self, manifest: Manifest) -> dict[str, Any]:
        try:
            return manifest.document
        except ValueError:
            raise self._tampered(f"its {manifest.digest} is no manifest") from None

    def _read(self, name: str, largest: int) -> bytes:
        place = self._places.get(name)
        if place is None:
            raise _no_layout(self.path, f"it has no {name}")
        if place.size > largest:
            raise self._tampered(f"its {name} is larger than any that tfimg writes")
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
        return UsageError(
            f"{what} cannot be put into {self.path}: it is a file that is only read.", next_step=""
        )


def _places(path: Path) -> dict[str, _Place]:
    """The regular files of an archive, the first of each name. Raises `FileError` for what is no image layout."""
    places: dict[str, _Place] = {}
    try:
        with tarfile.open(path, mode="r:") as archive:
            for member in archive:
                if member.isreg():
                    places.setdefault(member.name, _Place(offset=member.offset_data, size=member.size))
    except tarfile.TarError as error:
        raise _no_layout(path, f"it is no uncompressed tar archive, or not a whole one ({error})") from None
    if MARKER not in places:
        raise _no_layout(path, f"it has no {MARKER}")
    return places


def _no_layout(path: Path, why: str) -> FileError:
    return FileError(
        f"{path} is no image layout in a tar archive: {why}.",
        next_step="`tfimg bundle IMAGE FILE` writes one; if it was one, get it again.",
    )


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/', 1)}"
