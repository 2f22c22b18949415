"""Many images on the engines at hand: as many at once as there is room for; what one loses, another makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from tfimg.build.capacity import Decision, Need, decide
from tfimg.build.pipeline import Progress, Work
from tfimg.build.results import Result
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import DiskSpaceError, EngineUnavailable, Interrupted, TfimgError
from tfimg.core.process import defer_signals
from tfimg.engine.protocol import Capabilities, Engine, Resources
from tfimg.recipe.plan import Plan

AGAIN = "The same command goes on where this one ended."

POLL_SECONDS = 5.0
"""How often it is looked whether somebody else has made room, while jobs wait."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Worker:
    """An engine that makes images. `prepare` says what a plan means on it: the base that it has, what it can show.

    `name` is for people. `own` says that it is tfimg's own, with nobody else's build cache.
    """

    name: str
    engine: Engine
    capabilities: Capabilities
    prepare: Callable[[Plan], Work]
    own: bool = False

    @property
    def host(self) -> str:
        """Where the images end up: several workers may share it, and its disk."""
        return self.capabilities.host


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """An image to make."""

    plan: Plan
    need: Need

    @property
    def identifier(self) -> str:
        """Its name."""
        return self.plan.spec.identifier


class Listener(Protocol):
    """Who is told how a run goes. Called from several threads, for one image from one at a time."""

    def item(self, identifier: str) -> Progress:
        """Who is told what happens with an image."""
        ...

    def started(self, identifier: str, engine: str) -> None:
        """An image's turn begins."""

    def requeued(self, identifier: str, reason: str) -> None:
        """Its engine was lost, and another will take it."""

    def pruned(self, engine: str) -> None:
        """Room was made on an engine's disk."""

    def room(self, engine: str, left: Resources) -> None:
        """What an engine's machine has left."""

    def ended(self, result: Result) -> None:
        """An image's turn has ended."""


@dataclass(kw_only=True)
class Schedule:
    """A run. `attempt` makes an image on an engine and returns how it ended; it raises `EngineUnavailable` alone.

    Whatever else it raises ends the run. `prune` makes room on an engine. `jobs`: see `decide`; on each engine.
    """

    workers: Sequence[Worker]
    attempt: Callable[[Item, Worker], Result]
    prune: Callable[[Worker], None]
    listener: Listener
    cancellation: Cancellation
    jobs: int | None = None
    poll: float = POLL_SECONDS
    clock: Callable[[], float] = time.monotonic
    _queue: list[Item] = field(default_factory=list)
    _running: dict[Future[Result], tuple[Item, Worker]] = field(default_factory=dict)
    _alive: list[Worker] = field(default_factory=list)
    _tried: dict[str, list[Worker]] = field(default_factory=dict)
    _lost: EngineUnavailable | None = None
    _results: list[Result] = field(default_factory=list)

    def run(self, items: Sequence[Item]) -> tuple[Result, ...]:
        """Make all of them. On Ctrl-C, what runs is ended, and the results say of whom that was the end."""
        self._queue, self._alive = list(items), list(self.workers)
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
        """Start what there is room for, the first in the queue first; fail what there never will be."""
        rooms = self._rooms()
        for item in list(self._queue):
            worker = self._place(item, rooms)
            if worker is None:
                continue
            self._queue.remove(item)
            self._tried.setdefault(item.identifier, []).append(worker)
            self.listener.started(item.identifier, worker.name)
            self._running[pool.submit(self.attempt, item, worker)] = item, worker

    def _rooms(self) -> dict[Worker, Resources]:
        rooms = {}
        for worker in list(self._alive):
            try:
                rooms[worker] = worker.engine.get_resources()
            except EngineUnavailable as error:
                self._lose(worker, error)
            else:
                self.listener.room(worker.name, rooms[worker])
        return rooms

    def _place(self, item: Item, rooms: dict[Worker, Resources]) -> Worker | None:
        """The engine that an item starts on now, the least busy of those that have room; it fails where none will."""
        open_to = [worker for worker in rooms if worker not in self._tried.get(item.identifier, ())]
        decisions = {worker: self._decide(item, worker, rooms[worker]) for worker in open_to}
        if decisions and set(decisions.values()) == {"prune"}:
            decisions = {
                worker: self._decide(item, worker, rooms[worker], pruned=True)
                for worker in open_to
                if self._prune(worker, rooms)
            }
        starting = [worker for worker, decision in decisions.items() if decision == "start"]
        if starting:
            return min(starting, key=lambda worker: len(self._needs(worker)))
        if not any(decision in ("wait", "prune") for decision in decisions.values()):
            self._queue.remove(item)
            self._fail(item, self._no_room(item, rooms) if decisions else self._nobody())
        return None

    def _prune(self, worker: Worker, rooms: dict[Worker, Resources]) -> bool:
        """Make room on an engine; False where it was lost over that."""
        try:
            self.prune(worker)
            rooms[worker] = worker.engine.get_resources()
        except EngineUnavailable as error:
            self._lose(worker, error)
            del rooms[worker]
            return False
        self.listener.pruned(worker.name)
        return True

    def _decide(self, item: Item, worker: Worker, at: Resources, *, pruned: bool = False) -> Decision:
        return decide(item.need, at, self._needs(worker), jobs=self.jobs, pruned=pruned)

    def _needs(self, worker: Worker) -> list[Need]:
        return [item.need for item, at in self._running.values() if at.host == worker.host]

    def _collect(self, seconds: float | None) -> None:
        """Take in what has ended; waits for the first."""
        done, _ = wait(self._running, timeout=seconds, return_when=FIRST_COMPLETED)
        for future in done:
            item, worker = self._running.pop(future)
            try:
                self._end(future.result())
            except EngineUnavailable as error:
                self._lose(worker, error)
                self.listener.requeued(item.identifier, str(error))
                self._queue.insert(0, item)

    def _lose(self, worker: Worker, error: EngineUnavailable) -> None:
        self._lost = error
        if worker in self._alive:
            self._alive.remove(worker)

    def _fail(self, item: Item, failure: TfimgError) -> None:
        self._end(Result(identifier=item.identifier, status="failed", seconds=0.0, failure=failure))

    def _end(self, result: Result) -> None:
        self._results.append(result)
        self.listener.ended(result)

    def _nobody(self) -> TfimgError:
        """Why there is no engine for an item."""
        return self._lost or EngineUnavailable("No engine was given.", next_step="Name one.")

    def _no_room(self, item: Item, rooms: Mapping[Worker, Resources]) -> TfimgError:
        most = max(rooms, key=lambda worker: rooms[worker].disk_bytes or 0)
        return DiskSpaceError(
            f"The engine's disk has {(rooms[most].disk_bytes or 0) / 1e9:.1f} GB free below "
            f"{most.capabilities.data_root}, and {item.identifier} needs about {item.need.disk_bytes / 1e9:.1f} GB.",
            next_step="What tfimg may remove is gone already. `docker system df` shows what takes the space; or use an "
            "engine with more.",
        )

    def _stop(self) -> None:
        """End what runs and wait until it has cleaned up behind itself; a second Ctrl-C changes nothing."""
        with suppress(KeyboardInterrupt), defer_signals():
            self.cancellation.cancel()
            wait(self._running)
            for future, (item, worker) in self._running.items():
                # Who is gone is told by nobody: its work has ended all the same.
                with suppress(OSError):
                    self._end(_left(item, worker) if future.exception() else future.result())
            for item in self._queue:
                with suppress(OSError):
                    self._end(_left(item, None))
            self._running, self._queue = {}, []


def _left(item: Item, worker: Worker | None) -> Result:
    """The end of an item whose turn did not come to one."""
    why = Interrupted("Interrupted before its end." if worker else "Interrupted before its turn.", next_step=AGAIN)
    return Result(
        identifier=item.identifier,
        status="interrupted",
        seconds=0.0,
        failure=why,
        engine=worker.name if worker else None,
    )
