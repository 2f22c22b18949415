"""Build several images, on one engine or on several.

A run that was interrupted continues where it was: tags and records are set when an image is validated, not before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from tfimg.build import results
from tfimg.build.builder import Builder, BuildResult, BuildSettings, Validated, record_base
from tfimg.build.results import CONTINUE, BatchResult, ImageResult, ImagesQueued, failed_result
from tfimg.core.cache import make_cache_key, read_cache, write_cache
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import EngineUnavailable, FileError, Interrupted, TfimgError
from tfimg.core.events import Event, ImageEvent, InfoEvent, OnEvent
from tfimg.core.failures import to_tfimg_error
from tfimg.core.levels import Level
from tfimg.core.process import defer_signals
from tfimg.core.text import read_clock
from tfimg.engine import interface
from tfimg.engine.interface import Engine, LocalImage
from tfimg.engine.machine import required_disk_bytes
from tfimg.host.survey import TargetLevel
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project, read_record, write_record
from tfimg.recipe.labels import RECIPE_LABEL
from tfimg.recipe.plan import Plan
from tfimg.recipe.tags import list_tags


@dataclass(kw_only=True)
class Schedule:
    """A run over many images.

    `attempt` builds an image on an engine and returns its result; it raises `EngineUnavailable` if the engine was
    lost, and any other exception ends the run.
    """

    builders: Sequence[Builder]
    attempt: Callable[[Plan, Builder], ImageResult]
    on_event: OnEvent
    cancellation: Cancellation
    _queue: list[Plan] = field(default_factory=list)
    _running: dict[Future[ImageResult], tuple[Plan, Builder]] = field(default_factory=dict)
    _lost: dict[Builder, EngineUnavailable] = field(default_factory=dict)
    _results: list[ImageResult] = field(default_factory=list)

    def run(self, plans: Sequence[Plan]) -> tuple[ImageResult, ...]:
        """Build all images. After Ctrl-C, running builds are cancelled, and the results say which were interrupted."""
        self._queue = list(plans)
        with ThreadPoolExecutor(max_workers=max(1, len(plans))) as pool:
            try:
                while self._queue or self._running:
                    self._start(pool)
                    self._collect()
            except KeyboardInterrupt:
                self._stop()
            except BaseException:
                self._stop()
                raise
        return tuple(self._results)

    def _start(self, pool: ThreadPoolExecutor) -> None:
        """Start the images for which an engine has room, in order, each on the least busy one."""
        for plan in list(self._queue):
            left = [builder for builder in self.builders if builder not in self._lost]
            ready = [builder for builder in left if self._has_room(builder, plan)]
            if left and not ready:
                continue
            self._queue.remove(plan)
            if ready:
                builder = min(ready, key=self._count_running)
                self.on_event(results.ImageStarted(identifier=plan.spec.identifier, engine=builder.name))
                self._running[pool.submit(self.attempt, plan, builder)] = plan, builder
            else:
                self._end(failed_result(plan.spec.identifier, next(reversed(self._lost.values()))))

    def _count_running(self, builder: Builder) -> int:
        return sum(other is builder for _, other in self._running.values())

    def _has_room(self, builder: Builder, plan: Plan) -> bool:
        """Whether an engine has a job left, and space beside all that its disk's builds may still need.

        A build that is alone there always starts: it says itself what it lacks.
        """
        others = [other for other, at in self._running.values() if at.host == builder.host]
        if not others:
            return True
        if self._count_running(builder) >= builder.jobs:
            return False
        try:
            free = builder.engine.find_free_bytes()
        except EngineUnavailable as error:
            self._lost[builder] = error
            return False
        packed = builder.capabilities.accepts_layers
        needed = sum(required_disk_bytes(one.spec.device, packed=packed) for one in [*others, plan])
        return free is None or needed <= free

    def _collect(self) -> None:
        """Wait for the first build to end; take in the results of all that have ended."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            plan, builder = self._running.pop(future)
            try:
                self._end(future.result())
            except EngineUnavailable as error:
                self._lost[builder] = error
                self.on_event(results.ImageRequeued(identifier=plan.spec.identifier, reason=str(error)))
                self._queue.insert(0, plan)

    def _end(self, result: ImageResult) -> None:
        self._results.append(result)
        self.on_event(result)

    def _stop(self) -> None:
        """Cancel what runs and wait until it has cleaned up; a second Ctrl-C changes nothing."""
        with suppress(KeyboardInterrupt), defer_signals():
            self.cancellation.cancel()
            wait(self._running)
            for future, (plan, builder) in self._running.items():
                # Work has ended even if the program that reads the events has left.
                with suppress(OSError):
                    self._end(_interrupted_result(plan, builder) if future.exception() else future.result())
            for plan in self._queue:
                with suppress(OSError):
                    self._end(_interrupted_result(plan, None))
            self._running, self._queue = {}, []


def _interrupted_result(plan: Plan, builder: Builder | None) -> ImageResult:
    failure = Interrupted(f"Interrupted before it {'ended' if builder else 'started'}.", next_step=CONTINUE)
    return failed_result(plan.spec.identifier, failure, engine=builder.name if builder else None)


MAX_NAMED = 10
"""Up to this number of images, an engine lists them by name, and not all that it has."""

MAX_KNOWN = 1000
"""Images whose descriptions are kept for later runs."""

NAMES = {"names", "by_digest"}
"""Fields of images that an engine lists each time."""

Inventories = Mapping[Builder, Sequence[LocalImage]]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Images that have to be built, and the results of those that need not or cannot be.

    `seconds` is how long it took to find out, `said` the messages about it.
    """

    order: Sequence[str]
    builders: Sequence[Builder]
    plans: Sequence[Plan]
    results: Sequence[ImageResult]
    seconds: float
    said: set[str]

    def build(self, on_event: OnEvent) -> BatchResult:
        """Build the images, `Builder.jobs` at once on each engine; return a result for each of all, in order."""
        began, once, cancellation = time.monotonic(), _once(on_event, self.said), Cancellation()
        on_event(ImagesQueued(identifiers=tuple(plan.spec.identifier for plan in self.plans)))
        for result in self.results:
            on_event(result)
        schedule = Schedule(
            builders=self.builders,
            attempt=partial(_build_item, cancellation=cancellation, on_event=once),
            on_event=once,
            cancellation=cancellation,
        )
        by_name = {result.identifier: result for result in (*self.results, *schedule.run(self.plans))}
        return BatchResult(
            results=tuple(by_name[identifier] for identifier in self.order),
            date=read_clock().isoformat(timespec="seconds"),
            seconds=self.seconds + time.monotonic() - began,
        )


def build_many(
    project: Project, engines: Sequence[Engine], settings: BuildSettings, specs: Sequence[ImageSpec], on_event: OnEvent
) -> BatchResult:
    """Build images; return a result for each, in order. See `plan_batch`."""
    return plan_batch(project, engines, settings, specs, on_event).build(on_event)


def plan_batch(
    project: Project,
    engines: Sequence[Engine],
    settings: BuildSettings,
    images: Sequence[ImageSpec | Plan],
    on_event: OnEvent,
    failed: Sequence[ImageResult] = (),
) -> Batch:
    """Find out which images have to be built: with `reuse_reports`, not those that exist unchanged.

    An unchanged image gets the tags that it lacks; it is built to export build cache. The results of images that have
    `failed` already come first. Raises `EngineUnavailable` if no engine answers.
    """
    began, said = time.monotonic(), set[str]()
    may_be_unchanged = settings.reuse_reports and not settings.cache.targets
    builders = _usable_builders(project, engines, settings, on_event)
    with ThreadPoolExecutor(1) as pool:
        # The engine takes as long to list its images as we take to know what they should be.
        specs = [one.spec if isinstance(one, Plan) else one for one in images]
        few = specs if len(specs) <= MAX_NAMED else ()
        names = [tag for spec in few for tag in list_tags(spec, repository=project.repository)]
        listing = pool.submit(_list_images, builders, names, project.services.cache / "images.json")
        plans, results = list[Plan](), [*failed]
        for spec, one in zip(specs, images, strict=True):
            try:
                plans.append(one if isinstance(one, Plan) else project.plan(one))
            except TfimgError as error:
                results.append(failed_result(spec.identifier, error))
    once, inventories, items = _once(on_event, said), listing.result(), list[Plan]()
    by_name = {at: {name: image for image in images for name in image.names} for at, images in inventories.items()}
    for plan in plans:
        unchanged = (_find_unchanged(plan, builder, by_name[builder], once) for builder in builders)
        result = next(filter(None, unchanged), None) if may_be_unchanged else None
        if result is None and settings.reuse_reports and settings.record_only:
            result = _find_recorded(plan, inventories, once)
        if result:
            results.append(result)
        else:
            items.append(plan)
    if items:  # a folder that cannot be used is one error, rather than one of each image
        (project.services.state / "batch").mkdir(parents=True, exist_ok=True)
    return Batch(
        order=[*(one.identifier for one in failed), *(spec.identifier for spec in specs)],
        builders=builders,
        plans=items,
        results=results,
        seconds=time.monotonic() - began,
        said=said,
    )


def _usable_builders(
    project: Project, engines: Sequence[Engine], settings: BuildSettings, on_event: OnEvent
) -> list[Builder]:
    """Return a builder for each engine that answers. Raises `EngineUnavailable` if none does."""
    builders, lost = [], list[EngineUnavailable]()
    for engine in engines:
        builder = Builder(project, engine, settings)
        try:
            _ = builder.capabilities, builder.validator.target_host
        except EngineUnavailable as error:
            lost.append(error)
        else:
            builders.append(builder)
    if not builders:
        raise lost[-1] if lost else EngineUnavailable("No engine was given.", next_step="Pass an engine.")
    for missing in lost:
        on_event(InfoEvent(text=f"Not used: {missing}"))
    return builders


def _list_images(builders: Sequence[Builder], names: Sequence[str], file: Path) -> Inventories:
    """Return the images of each engine, or those of some names, asking only for those that are not in `file`."""
    key = make_cache_key(modules=(interface.__file__,))
    known = {one["digest"]: LocalImage(names=(), **one) for one in read_cache(file, key) or ()}
    images = {builder: builder.engine.list_images(known, names) for builder in builders}
    found = {image.digest: replace(image, names=(), by_digest=()) for one in images.values() for image in one}
    if not found.items() <= known.items():
        newest = [*(known | found).values()][-MAX_KNOWN:]
        documents = [asdict(image) for image in newest]
        write_cache(file, key, [{name: one[name] for name in one.keys() - NAMES} for one in documents])
    return images


def _predict_build(builder: Builder, plan: Plan, on_event: OnEvent) -> tuple[str, TargetLevel] | None:
    """Return the recipe that a build would have, and the level to prove; None if the build will report an error.

    Raises `EngineUnavailable`.
    """
    try:
        recipe = builder.hash_recipe(plan, builder.prepare_base(plan.spec, on_event))
        return recipe, builder.validator.target(plan.spec)
    except EngineUnavailable:
        raise
    except TfimgError:
        return None


def _find_unchanged(
    plan: Plan, builder: Builder, images: Mapping[str, LocalImage], on_event: OnEvent
) -> ImageResult | None:
    """Return the result of an image that an engine has just as it would be built, validated; give it its tags.

    `images` are those of the engine, by name.
    """
    if not any(name in images for name in plan.tags):  # do not bootstrap a base only to compare
        return None
    predicted = _predict_build(builder, plan, on_event)
    if predicted is None:
        return None
    recipe, target = predicted
    named = (name for name in plan.tags if name in images and images[name].labels.get(RECIPE_LABEL) == recipe)
    name = next(named, None)
    if name is None:
        return None
    image, proven = images[name], None
    if target.level != Level.BUILT:
        kept = builder.validator.kept_report(plan.spec, target, image.content)
        proven = kept.read_date()
        report = kept.read() if builder.settings.record else None
        if proven is None or (builder.settings.record and report is None):
            return None
        if report:
            base = record_base(plan.spec, builder.prepare_base(plan.spec, on_event))
            recorded = replace(report, digest=image.digest)
            write_record(builder.project.workspace, recorded, content=image.content, recipe=recipe, base=base)
    if lacked := [tag for tag in plan.tags if tag not in images or images[tag].digest != image.digest]:
        with defer_signals():
            builder.engine.tag(name, lacked)
        on_event(InfoEvent(text=f"{plan.spec.identifier} is unchanged and got the tags {', '.join(lacked)}."))
    return ImageResult(
        identifier=plan.spec.identifier,
        status="unchanged",
        seconds=0.0,
        engine=builder.name,
        digest=image.digest,
        tags=plan.tags,
        level=target.level,
        proven=proven,
        reused=True,
        unpacked_bytes=image.unpacked_bytes,
        compressed_bytes=image.compressed_bytes,
    )


def _find_recorded(plan: Plan, builders: Iterable[Builder], on_event: OnEvent) -> ImageResult | None:
    """Return the result of an image whose record is of the recipe and level that one of the builders would give."""
    for builder in builders:
        with suppress(FileError):  # recording replaces it
            record = read_record(builder.project.workspace, plan.spec.identifier)
            if record is None or record.recipe is None or record.profile != builder.settings.checks.profile:
                continue
            predicted = _predict_build(builder, plan, on_event)
            if predicted is None or predicted[0] != record.recipe:
                continue
            if record.status.level >= predicted[1].level:
                return ImageResult(
                    identifier=plan.spec.identifier,
                    status="recorded",
                    seconds=0.0,
                    digest=record.digest,
                    level=record.level,
                    proven=record.date,
                    reused=True,
                )
    return None


def _build_item(plan: Plan, builder: Builder, *, cancellation: Cancellation, on_event: OnEvent) -> ImageResult:
    """Build one image of many in a thread of its own; its failure is a result.

    Raises `EngineUnavailable` if the engine was lost, and `BrokenPipeError`.
    """
    identifier, began = plan.spec.identifier, time.monotonic()

    def forward(event: Event) -> None:
        if isinstance(event, InfoEvent):
            on_event(event)
        elif not isinstance(event, BuildResult | Validated):  # the image's result says the same
            on_event(ImageEvent(identifier=identifier, event=event))

    try:
        with cancellation.activate():
            return builder.build(plan, forward).summary
    except Exception as error:
        if isinstance(error, EngineUnavailable | BrokenPipeError) and not cancellation.is_cancelled:
            raise
        state = builder.project.services.state
        # After a cancellation, work fails in whatever way.
        failure = Interrupted(next_step=CONTINUE) if cancellation.is_cancelled else to_tfimg_error(error, [state])
        return failed_result(identifier, failure, seconds=time.monotonic() - began, engine=builder.name)


def _once(on_event: OnEvent, texts: set[str]) -> OnEvent:
    """Return a function that forwards events, but no message that is in `texts` already: many images give the same."""
    lock = threading.Lock()

    def forward(event: Event) -> None:
        if isinstance(event, InfoEvent):
            with lock:
                if event.text in texts:
                    return
                texts.add(event.text)
        on_event(event)

    return forward
