"""A verified archive → an image in an engine, by the digest that was verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from tfimg.contents.images import open_image
from tfimg.engine.protocol import Engine
from tfimg.errors import TamperedError, TfimgError, UsageError
from tfimg.offline.archive import Archive, Entry, image_alone
from tfimg.offline.layout import LayoutRegistry
from tfimg.offline.write import Told, stream
from tfimg.recipe.labels import IDENTIFIER
from tfimg.registry.reference import DIGEST, Reference, parse


def load(layout: LayoutRegistry, digest: str, engine: Engine, *, told: Told = lambda *_: None) -> str:
    """Hand the image `digest` of an archive to an engine, once every byte of it is what its digest says.

    Returns the name that it has there: the one that the archive tells. Raises `TamperedError`, and what engines raise.
    """
    image = open_image(layout, digest)
    name = _name(layout, digest)
    archive = image_alone(layout, digest, repository=name.repository, tag=str(name.tag))
    # Nothing that was changed reaches the engine, not even a part of it.
    for _ in _counted(archive, told):
        pass
    before = engine.digest(str(name))
    try:
        engine.load(stream(archive))
    except BaseException:
        # The containerd store tags an image before it unpacks its layers, and keeps the tag when the disk is full.
        if before is None:
            with suppress(TfimgError):  # the first error says more
                engine.remove(str(name))
        raise
    there = engine.digest(str(name))
    configured = {one.configured.digest for one in image.images if one.configured}
    # The containerd store calls an image by its manifest or index, the classic one by its configuration.
    if there != digest and there not in configured:
        raise TamperedError(
            f"{digest} was loaded as {name}, and the engine has {there} there.",
            next_step="Do not run it; remove it, and load it into an engine that nobody else uses.",
        )
    return str(name)


def _name(layout: LayoutRegistry, digest: str) -> Reference:
    tag = layout.reference
    if DIGEST.fullmatch(tag):
        labels = open_image(layout, digest).labels
        tag = labels.get(IDENTIFIER) or digest.removeprefix("sha256:")[:12]
    name = parse(f"{layout.repository}:{tag}")
    if name.tag != tag:
        raise UsageError(
            f"{layout.path} calls its image {layout.repository}:{tag}.", next_step="Bundle it anew."
        )
    return name


def _counted(archive: Archive, told: Callable[[int, int], object]) -> Iterator[Entry]:
    done = 0
    for entry in archive.entries:
        for piece in entry.pieces():
            done += len(piece)
            told(done, archive.size)
        yield entry
