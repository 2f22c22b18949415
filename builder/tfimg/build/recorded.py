"""Images whose evidence is in the workspace: they are not built again, and their bytes make room for others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from tfimg.build.builder import Builder
from tfimg.build.journal import BuildEnded
from tfimg.build.results import ImageResult
from tfimg.core.errors import EngineError, EngineUnavailable, FileError, TfimgError
from tfimg.core.events import OnEvent
from tfimg.core.journal import Journal
from tfimg.core.levels import LEVELS
from tfimg.engine.protocol import LocalImage
from tfimg.host.target_level import TargetLevel
from tfimg.matrix.spec import ImageSpec
from tfimg.project.evidence import read_evidence
from tfimg.recipe.labels import LABEL_PREFIX, RECIPE_LABEL
from tfimg.recipe.plan import Plan


def predict_build(builder: Builder, plan: Plan, on_event: OnEvent) -> tuple[str, TargetLevel] | None:
    """Return the recipe that a build would have, and the level to prove; None if the build will report an error.

    Raises `EngineUnavailable`.
    """
    try:
        labels = builder.labels(plan, builder.prepare_base(plan.spec, on_event))
        return labels[RECIPE_LABEL], builder.validator.target(plan.spec)
    except EngineUnavailable:
        raise
    except TfimgError:
        return None


def find_recorded(plan: Plan, builders: Iterable[Builder], on_event: OnEvent) -> ImageResult | None:
    """Return the result of an image whose evidence is of the recipe and level that one of the builders would give."""
    for builder in builders:
        with suppress(FileError):  # recording replaces it
            evidence = read_evidence(builder.project.workspace, plan.spec.identifier)
            if evidence is None or evidence.recipe is None or evidence.profile != builder.settings.checks.profile:
                continue
            predicted = predict_build(builder, plan, on_event)
            if predicted is None or predicted[0] != evidence.recipe:
                continue
            if LEVELS.index(evidence.status.level) >= LEVELS.index(predicted[1].level):
                return ImageResult(
                    identifier=plan.spec.identifier,
                    status="recorded",
                    seconds=0.0,
                    digest=evidence.digest,
                    level=evidence.level,
                    reused=True,
                )
    return None


def remove_recorded(
    builder: Builder,
    journal: Journal,
    images: Iterable[LocalImage],
    waiting: Iterable[ImageSpec],
    is_enough: Callable[[], bool],
) -> None:
    """Remove images that runs have built for their evidence alone, until there is enough room.

    Those that share TensorFlow's layers with an image that waits go last.
    """
    digests = {record.digest for record in journal.read(BuildEnded) if record.digest}
    recorded = [image for image in images if image.digest in digests]
    needed = {(spec.tensorflow, spec.device) for spec in waiting}
    for shares in (False, True):
        for image in recorded:
            if is_enough():
                return
            if _is_shared(image, needed) == shares:
                _remove(builder, image)


def _is_shared(image: LocalImage, needed: Collection[tuple[str, str]]) -> bool:
    labels = image.labels
    return (labels.get(f"{LABEL_PREFIX}tensorflow", ""), labels.get(f"{LABEL_PREFIX}device", "")) in needed


def _remove(builder: Builder, image: LocalImage) -> None:
    """Remove the image's names in the repository of the project; others are of a user, and keep it."""
    for name in image.names:
        if name.startswith(f"{builder.project.repository}:"):
            with suppress(EngineError):  # a container still needs it
                builder.engine.remove(name)
    if builder.is_private:
        builder.engine.prune_cache()
