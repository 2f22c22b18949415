"""Schedule builds on engines: a number of jobs on each; a lost engine's images go to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field

from tfimg.build import results
from tfimg.build.builder import Builder
from tfimg.build.results import CONTINUE, ImageResult, failed_result
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import EngineUnavailable, Interrupted
from tfimg.core.events import OnEvent
from tfimg.core.process import defer_signals
from tfimg.recipe.plan import Plan


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
        return free is None or sum(map(builder.count_needed_bytes, [*others, plan])) <= free

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
    """Return the result of an image whose build did not end or start."""
    failure = Interrupted(f"Interrupted before it {'ended' if builder else 'started'}.", next_step=CONTINUE)
    return failed_result(plan.spec.identifier, failure, engine=builder.name if builder else None)
