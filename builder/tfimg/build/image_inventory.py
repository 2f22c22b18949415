"""What engines have already: images that need not be made again, and what earlier runs left behind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tfimg.build.journal import candidates
from tfimg.build.pipeline import Means, Work
from tfimg.build.results import Result
from tfimg.build.schedule import Worker
from tfimg.core.errors import EngineError
from tfimg.core.files import write_atomically
from tfimg.core.journal import Journal
from tfimg.engine.protocol import LocalImage
from tfimg.recipe.labels import IDENTIFIER_LABEL, RECIPE_LABEL

FILE = "images.json"
"""Where the last inventory is kept, beside the journal."""

Stock = Mapping[str, LocalImage]
"""Name → the image that has it."""


def stock(images: Iterable[LocalImage]) -> Stock:
    """An engine's images by each of their names."""
    return {name: image for image in images for name in image.names}


def unchanged(work: Work, means: Means, at: Stock) -> LocalImage | None:
    """The image that a build would make again: all its tags are there, of the same recipe, and it was shown right."""
    image = at.get(work.plan.tags[0])
    if image is None or image.labels.get(RECIPE_LABEL) != work.labels[RECIPE_LABEL]:
        return None
    same = all(name in at and at[name].digest == image.digest for name in work.plan.tags)
    return image if same and means.kept.has(means.subject(work.trial, image.content)) else None


def told(work: Work, image: LocalImage, engine: str) -> Result:
    """The result of an image that need not be made."""
    return Result(
        identifier=work.plan.spec.identifier,
        status="unchanged",
        seconds=0.0,
        engine=engine,
        digest=image.digest,
        tags=work.plan.tags,
        level=work.aim.level,
        reused=True,
        unpacked_bytes=image.unpacked_bytes,
        compressed_bytes=image.compressed_bytes,
    )


def read_known(file: Path) -> Mapping[str, LocalImage]:
    """The images of the last inventory, by digest; none where it cannot be read."""
    with suppress(OSError, ValueError, TypeError):
        images = [LocalImage(**{**one, "names": tuple(one["names"])}) for one in json.loads(file.read_text())]
        return {image.digest: image for image in images}
    return {}


def write_known(file: Path, images: Iterable[LocalImage]) -> None:
    """Keep an inventory for the next run, which then asks for what is new alone."""
    text = json.dumps([asdict(image) for image in images])
    if not file.exists() or file.read_text() != text:
        write_atomically(file, text)


def sweep(worker: Worker, journal: Journal, images: Iterable[LocalImage]) -> Sequence[str]:
    """Remove candidates that earlier runs left in an engine, with their containers; returns their names.

    Only names that the journal has: another candidate is somebody else's build. Nothing of this run is among them.
    """
    mine = candidates(journal, worker.host)
    left = sorted(name for image in images for name in image.names if name in mine)
    for name in left:
        with suppress(EngineError):
            worker.engine.remove_with_containers(name)
    return left


def prune(worker: Worker, journal: Journal) -> None:
    """Make room with what is ours alone: left candidates, images of ours without a name, our own engine's cache."""
    images = worker.engine.list_images()
    sweep(worker, journal, images)
    for image in images:
        if not image.names and IDENTIFIER_LABEL in image.labels:
            with suppress(EngineError):  # a container still needs it
                worker.engine.remove(image.digest)
    if worker.own:
        worker.engine.prune_cache()
