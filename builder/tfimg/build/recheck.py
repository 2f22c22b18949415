"""Build images with evidence again, and compare: a few each day, so that the turn of every one comes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from tfimg.core.errors import NotReproducible
from tfimg.core.events import Message, OnEvent
from tfimg.core.paths import Workspace
from tfimg.engine.protocol import StoredImage
from tfimg.matrix.spec import ImageSpec
from tfimg.project.evidence import read_evidence
from tfimg.recipe.labels import RECIPE_LABEL
from tfimg.validation.image_record import find_contradictions
from tfimg.validation.report import Report


def choose_turn(specs: Sequence[ImageSpec], day: date, count: int) -> tuple[ImageSpec, ...]:
    """Return the images whose turn it is on a day: each of N has one within N / `count` days, rounded up."""
    count = min(count, len(specs))
    start = day.toordinal() * count % len(specs) if specs else 0
    return tuple((*specs, *specs)[start : start + count])


def require_same_evidence(workspace: Workspace, report: Report, stored: StoredImage, on_event: OnEvent) -> None:
    """Raise `NotReproducible` if an image that was built and validated again contradicts its evidence."""
    record = read_evidence(workspace, report.identifier)
    if record is None:
        return
    recipe = stored.labels.get(RECIPE_LABEL)
    if recipe != record.recipe:
        other = "its evidence is of another recipe (base, lock, suite or build scripts)"
        on_event(Message(text=f"{report.identifier}: only the level is compared, as {other}."))
    if found := [*find_contradictions(record, report, content=stored.content, recipe=recipe)]:
        raise NotReproducible(
            f"{report.identifier} was built again and contradicts its evidence of {record.date[:10]}: "
            f"{'; '.join(found)}.",
            next_step="Find out what has changed (`tfimg compare`), then record it again with "
            f"`tfimg build {report.identifier} --record --revalidate`.",
        )
