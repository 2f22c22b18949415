"""Schedule builds on engines: as many at once as there is room for; a lost engine's images go to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field

from tfimg.build import results
from tfimg.build.builder import Builder
from tfimg.build.capacity import Action, choose_action
from tfimg.build.results import CONTINUE, ImageResult, failed_result
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import DiskSpaceError, EngineUnavailable, Interrupted
from tfimg.core.events import OnEvent
from tfimg.core.process import defer_signals
from tfimg.engine.protocol import Resources
from tfimg.recipe.plan import Plan

POLL_SECONDS = 5.0
"""Time between two looks at the engines' resources while images wait."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """An image to build, and the disk space that its build needs."""

    plan: Plan
    disk_bytes: int

    @property
    def identifier(self) -> str:
        """The image's identifier."""
        return self.plan.spec.identifier


@dataclass(kw_only=True)
class Schedule:
    """A run over many images.

    `attempt` builds an image on an engine and returns its result; it raises `EngineUnavailable` if the engine was
    lost, and any other exception ends the run. `free_space` frees disk space of an engine for an item,
    one of those that wait. `jobs`: see `choose_action`.
    """

    builders: Sequence[Builder]
    attempt: Callable[[Item, Builder], ImageResult]
    free_space: Callable[[Builder, Item, Sequence[Item]], None]
    on_event: OnEvent
    cancellation: Cancellation
    jobs: int | None = None
    poll: float = POLL_SECONDS
    _queue: list[Item] = field(default_factory=list)
    _running: dict[Future[ImageResult], tuple[Item, Builder]] = field(default_factory=dict)
    _alive: list[Builder] = field(default_factory=list)
    _tried: dict[str, list[Builder]] = field(default_factory=dict)
    _lost: EngineUnavailable | None = None
    _results: list[ImageResult] = field(default_factory=list)

    def run(self, items: Sequence[Item]) -> tuple[ImageResult, ...]:
        """Build all images. After Ctrl-C, running builds are cancelled, and the results say which were interrupted."""
        self._queue, self._alive = list(items), list(self.builders)
        with ThreadPoolExecutor(max_workers=max(1, len(items))) as pool:
            try:
                while self._queue or self._running:
                    self._start(pool)
                    self._collect(self.poll)
            except KeyboardInterrupt:
                self._stop()
            except BaseException:
                self._stop()
                raise
        return tuple(self._results)

    def _start(self, pool: ThreadPoolExecutor) -> None:
        """Start the images for which an engine has resources, in order."""
        resources = self._query_resources()
        for item in list(self._queue):
            builder = self._place(item, resources)
            if builder is None:
                continue
            self._queue.remove(item)
            self._tried.setdefault(item.identifier, []).append(builder)
            self.on_event(results.ImageStarted(identifier=item.identifier, engine=builder.name))
            self._running[pool.submit(self.attempt, item, builder)] = item, builder

    def _query_resources(self) -> dict[Builder, Resources]:
        resources = {}
        for builder in list(self._alive):
            try:
                resources[builder] = builder.engine.get_resources()
            except EngineUnavailable as error:
                self._lose(builder, error)
            else:
                self.on_event(results.EngineResources(engine=builder.name, resources=resources[builder]))
        return resources

    def _place(self, item: Item, resources: dict[Builder, Resources]) -> Builder | None:
        """Return the least busy engine that can start an item now; fail the item if no engine ever can."""
        candidates = [builder for builder in resources if builder not in self._tried.get(item.identifier, ())]
        actions = {builder: self._choose_action(item, builder, resources[builder]) for builder in candidates}
        if actions and set(actions.values()) == {"prune"}:
            actions = {
                builder: self._choose_action(item, builder, resources[builder], pruned=True)
                for builder in candidates
                if self._free_space(builder, item, resources)
            }
        starting = [builder for builder, action in actions.items() if action == "start"]
        if starting:
            return min(starting, key=lambda builder: len(self._reserved(builder)))
        if not any(action in ("wait", "prune") for action in actions.values()):
            self._queue.remove(item)
            no_engine = self._lost or EngineUnavailable("No engine was given.", next_step="Pass an engine.")
            failure = _too_little_space(item, resources) if actions else no_engine
            self._end(failed_result(item.identifier, failure))
        return None

    def _free_space(self, builder: Builder, item: Item, resources: dict[Builder, Resources]) -> bool:
        """Free disk space of an engine for an item; return False if the engine was lost."""
        try:
            self.free_space(builder, item, self._queue)
            resources[builder] = builder.engine.get_resources()
        except EngineUnavailable as error:
            self._lose(builder, error)
            del resources[builder]
            return False
        self.on_event(results.EngineSpaceFreed(engine=builder.name))
        return True

    def _choose_action(self, item: Item, builder: Builder, free: Resources, *, pruned: bool = False) -> Action:
        return choose_action(item.disk_bytes, free, self._reserved(builder), jobs=self.jobs, pruned=pruned)

    def _reserved(self, builder: Builder) -> list[int]:
        """Return the disk space of each build that runs on an engine's machine."""
        return [item.disk_bytes for item, other in self._running.values() if other.host == builder.host]

    def _collect(self, seconds: float | None) -> None:
        """Wait for the first build to end; take in the results of all that have ended."""
        done, _ = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        for future in done:
            item, builder = self._running.pop(future)
            try:
                self._end(future.result())
            except EngineUnavailable as error:
                self._lose(builder, error)
                self.on_event(results.ImageRequeued(identifier=item.identifier, reason=str(error)))
                self._queue.insert(0, item)

    def _lose(self, builder: Builder, error: EngineUnavailable) -> None:
        self._lost = error
        if builder in self._alive:
            self._alive.remove(builder)

    def _end(self, result: ImageResult) -> None:
        self._results.append(result)
        self.on_event(result)

    def _stop(self) -> None:
        """Cancel what runs and wait until it has cleaned up; a second Ctrl-C changes nothing."""
        with suppress(KeyboardInterrupt), defer_signals():
            self.cancellation.cancel()
            wait(self._running)
            for future, (item, builder) in self._running.items():
                # Work has ended even if the program that reads the events has left.
                with suppress(OSError):
                    self._end(_interrupted_result(item, builder) if future.exception() else future.result())
            for item in self._queue:
                with suppress(OSError):
                    self._end(_interrupted_result(item, None))
            self._running, self._queue = {}, []


def _too_little_space(item: Item, resources: Mapping[Builder, Resources]) -> DiskSpaceError:
    roomiest = max(resources, key=lambda builder: resources[builder].disk_bytes or 0)
    free = resources[roomiest].disk_bytes or 0
    return DiskSpaceError(
        f"The engine's disk has {free / 1e9:.1f} GB free below {roomiest.capabilities.data_root}, and "
        f"{item.identifier} needs about {item.disk_bytes / 1e9:.1f} GB.",
        next_step="tfimg has already removed its own leftovers. `docker system df` shows what takes the space; or use "
        "an engine with more.",
    )


def _interrupted_result(item: Item, builder: Builder | None) -> ImageResult:
    """Return the result of an item whose build did not end or start."""
    failure = Interrupted(f"Interrupted before it {'ended' if builder else 'started'}.", next_step=CONTINUE)
    return failed_result(item.identifier, failure, engine=builder.name if builder else None)
