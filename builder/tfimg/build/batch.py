"""Build many images on several engines; leave those alone that exist unchanged."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from tfimg.build.base import record_base
from tfimg.build.builder import Builder
from tfimg.build.capacity import predict_disk_bytes
from tfimg.build.events import BuildResult, Validated
from tfimg.build.inventory import Inventories, clean_up, free_space, take_inventories
from tfimg.build.journal import BuildEnded, BuildStarted, RunInterrupted, RunStarted, open_journal
from tfimg.build.recorded import find_recorded, predict_build
from tfimg.build.results import CONTINUE, BatchResult, ImageResult, ImagesQueued, failed_result
from tfimg.build.schedule import Item, Schedule
from tfimg.build.settings import BuildSettings
from tfimg.core.cancellation import Cancellation
from tfimg.core.error_conversion import to_tfimg_error
from tfimg.core.errors import EngineUnavailable, Interrupted, TfimgError
from tfimg.core.events import Event, ImageEvent, Message, OnEvent
from tfimg.core.journal import Journal
from tfimg.core.runs import RunFinished
from tfimg.engine.candidates import candidate_name
from tfimg.engine.protocol import Engine, LocalImage
from tfimg.matrix.spec import ImageSpec
from tfimg.project.evidence import record_evidence
from tfimg.project.project import Project
from tfimg.recipe.labels import RECIPE_LABEL
from tfimg.recipe.plan import Plan


def build_many(
    project: Project, engines: Sequence[Engine], settings: BuildSettings, specs: Sequence[ImageSpec], on_event: OnEvent
) -> BatchResult:
    """Build images, as many at once as the engines have room for; return a result for each, in order.

    With `reuse_reports`, images that exist unchanged are not built. One run at a time for each state folder. Raises
    `BatchRunning`, and `EngineUnavailable` if no engine answers.
    """
    began = time.monotonic()
    with open_journal(project.services.state / "batch") as journal:
        builders = _usable_builders(project, engines, settings, on_event)
        with ThreadPoolExecutor(1) as pool:
            # The engine takes as long to list its images as we take to know what they should be.
            listing = pool.submit(take_inventories, builders, journal)
            plans, results = _plan_images(project, specs)
        images = clean_up(journal, listing.result(), on_event)
        once = _Once(on_event)
        items, unchanged = _choose_items(plans, images, settings, once)
        results += unchanged
        on_event(ImagesQueued(identifiers=tuple(item.identifier for item in items)))
        for result in results:
            on_event(result)
        if items:
            cancellation = Cancellation()
            journal.write(RunStarted(images=len(items), jobs=settings.jobs))
            results += Schedule(
                builders=builders,
                attempt=partial(_build_item, journal=journal, cancellation=cancellation, on_event=once),
                free_space=partial(_free_space, journal=journal),
                on_event=once,
                cancellation=cancellation,
                jobs=settings.jobs,
            ).run(items)
            journal.write(RunInterrupted() if cancellation.is_cancelled else RunFinished())
    order = {spec.identifier: number for number, spec in enumerate(specs)}
    return BatchResult(
        results=tuple(sorted(results, key=lambda result: order[result.identifier])),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=time.monotonic() - began,
    )


def _usable_builders(
    project: Project, engines: Sequence[Engine], settings: BuildSettings, on_event: OnEvent
) -> list[Builder]:
    """Return a builder for each engine that answers. Raises `EngineUnavailable` if none does."""
    builders, lost = [], None
    for engine in engines:
        builder = Builder(project, engine, settings)
        try:
            _ = builder.capabilities, builder.validator.target_host
        except EngineUnavailable as error:
            lost = error
            on_event(Message(text=f"Not used: {error}"))
        else:
            builders.append(builder)
    if not builders and lost:
        raise lost
    return builders


def _plan_images(project: Project, specs: Sequence[ImageSpec]) -> tuple[list[Plan], list[ImageResult]]:
    """Return the plans, and the results of the images that cannot be planned."""
    plans, results = [], []
    for spec in specs:
        try:
            plans.append(project.plan(spec))
        except TfimgError as error:
            results.append(failed_result(spec.identifier, error))
    return plans, results


def _choose_items(
    plans: Sequence[Plan], inventories: Inventories, settings: BuildSettings, on_event: OnEvent
) -> tuple[list[Item], list[ImageResult]]:
    """Return the images that have to be built, and the results of those that exist unchanged."""
    by_name = {
        builder: {name: image for image in images for name in image.names} for builder, images in inventories.items()
    }
    known = [image for images in inventories.values() for image in images]
    packed = all(builder.capabilities.accepts_layers for builder in inventories)
    items, results = [], []
    for plan in plans:
        result = _find_unchanged(plan, by_name, on_event) if settings.reuse_reports else None
        if result is None and settings.reuse_reports and settings.evidence_only:
            result = find_recorded(plan, inventories, on_event)
        if result:
            results.append(result)
        else:
            items.append(Item(plan=plan, disk_bytes=predict_disk_bytes(plan.spec, known, packed=packed)))
    return items, results


def _find_unchanged(
    plan: Plan, images: Mapping[Builder, Mapping[str, LocalImage]], on_event: OnEvent
) -> ImageResult | None:
    """Return the result of an image that an engine has just as it would be built, validated, with all its tags."""
    for builder, by_name in images.items():
        image = by_name.get(plan.tags[0])
        if image is None:  # do not bootstrap a base only to compare
            continue
        predicted = predict_build(builder, plan, on_event)
        if predicted is None or image.labels.get(RECIPE_LABEL) != predicted[0]:
            continue
        recipe, target = predicted
        tagged = all(name in by_name and by_name[name].digest == image.digest for name in plan.tags)
        subject = builder.validator.subject(plan.spec, target, image.content)
        if not tagged or (target.level != "built" and not builder.validator.reports.has(subject)):
            continue
        if builder.settings.record and target.level != "built":
            report = builder.validator.reports.read(subject)
            if report is None:
                continue
            recorded = replace(report, digest=image.digest)
            base = record_base(plan.spec, builder.prepare_base(plan.spec, on_event))
            workspace = builder.project.workspace
            record_evidence(workspace, recorded, content=image.content, recipe=recipe, base=base)
        return ImageResult(
            identifier=plan.spec.identifier,
            status="unchanged",
            seconds=0.0,
            engine=builder.name,
            digest=image.digest,
            tags=plan.tags,
            level=target.level,
            reused=True,
            unpacked_bytes=image.unpacked_bytes,
            compressed_bytes=image.compressed_bytes,
        )
    return None


def _build_item(
    item: Item, builder: Builder, *, journal: Journal, cancellation: Cancellation, on_event: OnEvent
) -> ImageResult:
    """Build one image of many in a thread of its own; its failure is a result.

    Raises `EngineUnavailable` if the engine was lost, and `BrokenPipeError`.
    """
    identifier, began = item.identifier, time.monotonic()
    name = candidate_name(identifier)
    journal.write(BuildStarted(identifier=identifier, candidate=name, engine=builder.host))
    try:
        with cancellation.activate():
            result = builder.build_plan(item.plan, name, partial(_forward, identifier, on_event)).summary
    except Exception as error:
        if isinstance(error, EngineUnavailable | BrokenPipeError) and not cancellation.is_cancelled:
            journal.write(BuildEnded(identifier=identifier, status="lost"))
            raise
        # After a cancellation, work fails in whatever way.
        failure = Interrupted(next_step=CONTINUE) if cancellation.is_cancelled else to_tfimg_error(error)
        result = failed_result(identifier, failure, seconds=time.monotonic() - began, engine=builder.name)
    digest = result.digest if builder.settings.evidence_only and result.is_green else None
    journal.write(BuildEnded(identifier=identifier, status=result.status, digest=digest))
    return result


def _free_space(builder: Builder, item: Item, waiting: Sequence[Item], *, journal: Journal) -> None:
    free_space(builder, journal, item.disk_bytes, [other.plan.spec for other in waiting])


def _forward(identifier: str, on_event: OnEvent, event: Event) -> None:
    if isinstance(event, Message):
        on_event(event)
    elif not isinstance(event, BuildResult | Validated):  # the image's result says the same
        on_event(ImageEvent(identifier=identifier, event=event))


@dataclass(frozen=True, slots=True)
class _Once:
    """Forward events, but each message only once: many images give the same."""

    on_event: OnEvent
    _texts: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Message):
            with self._lock:
                if event.text in self._texts:
                    return
                self._texts.add(event.text)
        self.on_event(event)
