"""Images in engines: list them, remove what earlier runs left behind, free disk space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from tfimg.build.builder import Builder
from tfimg.build.journal import candidates, unfinished
from tfimg.build.recorded import remove_recorded
from tfimg.core.errors import EngineError
from tfimg.core.events import Message, OnEvent
from tfimg.core.files import write_atomically
from tfimg.core.journal import Journal
from tfimg.engine.protocol import LocalImage
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.labels import IDENTIFIER_LABEL

FILE = "images.json"
"""Where the last inventory is kept, beside the journal."""

IMAGES = TypeAdapter(tuple[LocalImage, ...])

Inventories = Mapping[Builder, Sequence[LocalImage]]


def take_inventories(builders: Sequence[Builder], journal: Journal) -> Inventories:
    """Return the images of each engine, asking only for those that the last run did not know."""
    file = journal.path.with_name(FILE)
    known = _read_known(file)
    images = {builder: builder.engine.list_images(known) for builder in builders}
    text = IMAGES.dump_json(tuple(image for found in images.values() for image in found)).decode()
    if not file.exists() or file.read_text() != text:
        write_atomically(file, text)
    return images


def _read_known(file: Path) -> Mapping[str, LocalImage]:
    """Return the images of the last inventory, by digest; none if the file cannot be read."""
    with suppress(OSError, ValueError):
        return {image.digest: image for image in IMAGES.validate_json(file.read_bytes())}
    return {}


def clean_up(journal: Journal, images: Inventories, on_event: OnEvent) -> Inventories:
    """Remove what a killed run left in the engines; return the images that are left."""
    removed = [name for builder, found in images.items() for name in remove_stale(builder, journal, found)]
    if removed:
        on_event(Message(text=f"Removed what an earlier run left behind: {', '.join(removed)}"))
        images = take_inventories(tuple(images), journal)
    if identifiers := unfinished(journal):
        on_event(Message(text=f"Continuing a killed run, with {', '.join(identifiers)}"))
    return images


def remove_stale(builder: Builder, journal: Journal, images: Iterable[LocalImage]) -> Sequence[str]:
    """Remove candidates that earlier runs left in an engine, with their containers; return their names.

    Only names in the journal: other candidates belong to builds of other users.
    """
    own = candidates(journal, builder.host)
    stale = sorted(name for image in images for name in image.names if name in own)
    for name in stale:
        with suppress(EngineError):
            builder.engine.remove_with_containers(name)
    return stale


def free_space(
    builder: Builder, journal: Journal, disk_bytes: int | None = None, waiting: Iterable[ImageSpec] = ()
) -> None:
    """Remove stale candidates, tfimg's images without a name, and the cache of tfimg's own engine.

    If `disk_bytes` are not free then, also images that were built for their evidence alone, those last that share
    layers with `waiting` images.
    """
    images = builder.engine.list_images()
    remove_stale(builder, journal, images)
    for image in images:
        if not image.names and IDENTIFIER_LABEL in image.labels:
            with suppress(EngineError):  # a container still needs it
                builder.engine.remove(image.digest)
    if builder.is_private:
        builder.engine.prune_cache()

    def is_enough() -> bool:
        free = builder.engine.get_resources().disk_bytes
        return free is None or disk_bytes is None or free >= disk_bytes

    if builder.settings.evidence_only:
        remove_recorded(builder, journal, images, waiting, is_enough)
