"""Layers of an image from an export or from the files of the engine.

The API reports no media types before Docker 28, and an export of a GPU image takes half a minute.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from tfimg.core.documents import Digest, Document, InvalidDocument, blob_path, digest_of, parse_document
from tfimg.core.errors import BaseImageError, EngineError
from tfimg.core.files import name_in_errors, open_chunks
from tfimg.core.tar import TarReader
from tfimg.engine.interface import StoredLayer

CONTENT = "io.containerd.content.v1.content"  # where containerd keeps blobs below its root (its docs/content-flow.md)

SMALL = 1_000_000  # size of a file of an export above which it is not a JSON document. Ours have less than 10 kB
MAX_DOCUMENTS = 64 << 20  # bytes of all documents of an export


class _Entry(Document):
    """A descriptor of a manifest or layer."""

    media_type: str = Field(alias="mediaType", max_length=255)
    digest: Digest


class _Manifest(Document):
    """A manifest, which has layers, or an index, which has manifests."""

    layers: tuple[_Entry, ...] | None = None
    manifests: tuple[_Entry, ...] | None = None

    @property
    def first(self) -> _Entry:
        """The first manifest of an index. Raises `InvalidDocument`."""
        if not self.manifests:
            raise InvalidDocument("it lists no image")
        return self.manifests[0]


class _Saved(Document):
    """An image in the manifest.json of `docker save`."""

    layers: tuple[str, ...] = Field(alias="Layers")


def saved_layers(content: bytes) -> tuple[str, ...]:
    """Return the layers of the first image of a manifest.json. Raises `InvalidDocument`."""
    for image in parse_document(tuple[_Saved, ...], content):
        return image.layers
    raise InvalidDocument("it lists no image")


def containerd_layers(digest: str, roots: Sequence[Path]) -> tuple[StoredLayer, ...] | None:
    """Return the layers of a manifest in a containerd store below one of `roots`, base first.

    None where no such store is readable, or a part of the image is absent.
    """
    for root in roots:
        with suppress(OSError, InvalidDocument):
            return _stored_layers(digest, root / CONTENT)
    return None


def _stored_layers(digest: str, content: Path) -> tuple[StoredLayer, ...]:
    return _layers(digest, lambda path: (content / path).read_bytes(), lambda path: (content / path).stat().st_size)


def _layers(digest: str, read: Callable[[str], bytes], size: Callable[[str], int]) -> tuple[StoredLayer, ...]:
    """Return the layers of a manifest, or of the first one of an index. Raises `InvalidDocument`.

    `read` and `size` take the path of a blob.
    """
    manifest = parse_document(_Manifest, read(blob_path(digest)))
    if manifest.layers is None:
        manifest = parse_document(_Manifest, read(blob_path(manifest.first.digest)))
    return tuple(
        StoredLayer(digest=layer.digest, media_type=layer.media_type, size=size(blob_path(layer.digest)))
        for layer in manifest.layers or ()
    )


def classic_layers(diff_ids: Sequence[str], store: Path) -> tuple[StoredLayer, ...] | None:
    """Return the layers of an image from the layer database of a classic store; sizes are of their files.

    None where it is not readable, or lacks a layer. The key of a layer is its chain ID (OCI image specification,
    config.md).
    """
    layers, chain = [], ""
    try:
        for diff_id in diff_ids:
            chain = digest_of(f"{chain} {diff_id}".encode()) if chain else diff_id
            size = int(store.joinpath(*chain.split(":"), "size").read_text())
            layers.append(StoredLayer(digest=diff_id, media_type="tar", size=size))
    except (OSError, ValueError):
        return None
    return tuple(layers)


def exported_layers(pieces: Iterator[bytes]) -> tuple[StoredLayer, ...]:
    """Return the layers of an exported image, base first. Raises `EngineError` for an invalid export."""
    try:
        documents, sizes, left = {}, {}, MAX_DOCUMENTS
        for member in (reader := TarReader(open_chunks(pieces))):
            sizes[member.name] = member.size
            if member.isreg() and member.size < min(SMALL, left):
                documents[member.name] = reader.read(SMALL)
                left -= member.size
        if "index.json" not in documents:
            names = saved_layers(documents["manifest.json"])
            return tuple(StoredLayer(digest=name, media_type="tar", size=sizes[name]) for name in names)
        first = parse_document(_Manifest, documents["index.json"]).first
        return _layers(first.digest, documents.__getitem__, sizes.__getitem__)
    except KeyError as error:
        problem = f"it lacks {error}"
    except ValueError as error:
        problem = str(error)
    raise EngineError(
        f"The engine's export of the image cannot be read: {problem}.",
        next_step="Build or load the image again; if that does not help, upgrade the engine.",
    )


def extract_layout(pieces: Iterator[bytes], folder: Path) -> str:
    """Extract an exported image into `folder` as an OCI image layout, and return its digest.

    Raises `BaseImageError` for an export that is not a layout (engines before 25 with the classic store).
    """
    try:
        for member in (reader := TarReader(open_chunks(pieces))):
            target = folder / member.name
            if not target.resolve().is_relative_to(folder.resolve()):
                raise InvalidDocument(f"a file is outside of the image: {member.name!r}")
            if member.isreg():
                target.parent.mkdir(parents=True, exist_ok=True)
                with name_in_errors(target), target.open("wb") as out:
                    out.writelines(reader.content())
        index = folder / "index.json"
        if index.exists():
            return parse_document(_Manifest, index.read_bytes()).first.digest
        problem = "is not an OCI image layout, which the builder needs"
    except ValueError as error:
        problem = f"cannot be read: {error}"
    raise BaseImageError(
        f"The engine's export of its base {problem}.",
        next_step="Use a base of a registry that both reach (--base registry), or upgrade the engine.",
    )
