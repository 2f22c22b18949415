"""Many images on engines that are small, full, or die: who makes what, and how many at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, capabilities
from tfimg.build.builder import Builder
from tfimg.build.results import EngineSpaceFreed, ImageRequeued, ImageResult
from tfimg.build.schedule import Item, Schedule
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import EngineUnavailable
from tfimg.core.events import Event
from tfimg.engine.protocol import Resources
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.plan import Plan

GB = 10**9
ROOMY = Resources(cpus=4, memory_bytes=100 * GB, disk_bytes=1000 * GB)
GONE = EngineUnavailable("It is gone.", next_step="Start it.")


class Events(list[Event]):
    """The events of a schedule."""

    @property
    def requeued(self) -> list[str]:
        return [event.identifier for event in self if isinstance(event, ImageRequeued)]

    @property
    def freed(self) -> list[str]:
        return [event.engine for event in self if isinstance(event, EngineSpaceFreed)]

    @property
    def results(self) -> list[ImageResult]:
        return [event for event in self if isinstance(event, ImageResult)]


class Dying(FakeEngine):
    """Cannot be asked any more once it is told to die."""

    dead = False

    def get_resources(self) -> Resources:
        if self.dead:
            raise GONE
        return super().get_resources()


def builder(name: str, left: Resources = ROOMY, host: str | None = None) -> Builder:
    found = replace(capabilities(), host=host or name, builder=name)
    return Builder(Project(services=TestEnvironment()), Dying(left=left, found=found))


@pytest.fixture
def items(specs: Sequence[ImageSpec]) -> list[Item]:
    return [
        Item(
            plan=Plan(spec=spec, lock={}, dockerfile="", tags=()),
            disk_bytes=10 * GB,
        )
        for spec in specs[:6]
    ]


class Attempts:
    """Makes nothing; knows how many it was asked for at once, and by whom.

    None ends before `gather` have been asked for at once, or 10 s are over: a slow machine starts threads late.
    """

    def __init__(
        self,
        act: Callable[[Item, Builder], None] = lambda _item, _worker: time.sleep(0.02),
        *,
        gather: int = 1,
    ) -> None:
        self._act, self._gather, self._lock = act, gather, threading.Lock()
        self.begun: list[str] = []
        self.made: list[tuple[str, str]] = []
        self.now = self.most = 0

    def __call__(self, item: Item, at: Builder) -> ImageResult:
        with self._lock:
            self.begun.append(item.identifier)
            self.now += 1
            self.most = max(self.most, self.now)
        deadline = time.monotonic() + 10
        while self.most < self._gather and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            self._act(item, at)
        finally:
            with self._lock:
                self.now -= 1
        self.made.append((item.identifier, at.name))
        return ImageResult(identifier=item.identifier, status="built", seconds=0.0, engine=at.name)


def schedule(
    builders: Sequence[Builder],
    attempts: Attempts,
    *,
    jobs: int | None = None,
    prune: Callable[[Builder, Item, Sequence[Item]], None] = lambda *_: None,
) -> tuple[Schedule, Events]:
    heard = Events()
    made = Schedule(
        builders=builders, attempt=attempts, free_space=prune, on_event=heard.append, cancellation=Cancellation(),
        jobs=jobs, poll=0.01,
    )  # fmt: skip
    return made, heard


def names(items: Sequence[Item]) -> list[str]:
    return [item.identifier for item in items]


@pytest.mark.parametrize(
    ("left", "jobs", "most"),
    [
        (ROOMY, None, 4),
        (ROOMY, 2, 2),
        (ROOMY, 6, 6),
        (replace(ROOMY, cpus=1), None, 1),
        (replace(ROOMY, memory_bytes=5 * GB), None, 2),
        (replace(ROOMY, memory_bytes=1), None, 1),
        (replace(ROOMY, memory_bytes=1), 3, 3),
        (replace(ROOMY, disk_bytes=35 * GB), None, 3),
        (replace(ROOMY, disk_bytes=35 * GB), 6, 3),
        (replace(ROOMY, disk_bytes=None), None, 4),
    ],
    ids=["cpus", "jobs", "more-jobs", "one-cpu", "memory", "no-memory", "jobs-memory", "disk", "jobs-disk", "remote"],
)  # fmt: skip
def test_builds_at_once_are_limited_by_resources(
    left: Resources, jobs: int | None, most: int, items: list[Item]
) -> None:
    attempts = Attempts(gather=most)
    made, heard = schedule([builder("a", left)], attempts, jobs=jobs)
    results = made.run(items)
    assert sorted(result.identifier for result in results) == sorted(names(items))
    assert {result.status for result in results} == {"built"}
    assert attempts.most == most
    assert [result.identifier for result in heard.results] == [result.identifier for result in results]


def test_a_small_one_passes_a_large_one_that_has_to_wait(items: list[Item]) -> None:
    sized = [replace(item, disk_bytes=size * GB) for item, size in zip(items, (20, 20, 5, 5, 5, 5), strict=True)]
    attempts = Attempts(gather=3)
    schedule([builder("a", replace(ROOMY, disk_bytes=30 * GB))], attempts)[0].run(sized)
    assert attempts.most == 3
    assert attempts.begun.index(sized[2].identifier) < attempts.begun.index(sized[1].identifier)


def test_engines_share_the_work(items: list[Item]) -> None:
    attempts = Attempts(gather=6)
    schedule([builder("a"), builder("b")], attempts)[0].run(items)
    assert attempts.most == 6
    assert {at for _, at in attempts.made} == {"a", "b"}


def test_workers_of_one_engine_share_its_disk(items: list[Item]) -> None:
    left = replace(ROOMY, disk_bytes=25 * GB)
    attempts = Attempts(gather=2)
    schedule([builder("a", left, "host"), builder("b", left, "host")], attempts)[0].run(items)
    assert attempts.most == 2


def dying_engine(name: str, *, once: bool = False) -> Callable[[Item, Builder], None]:
    """An attempt at which an engine dies: at its second image, or at once."""
    seen: list[str] = []

    def act(item: Item, at: Builder) -> None:
        if at.name != name:
            time.sleep(0.01)
            return
        seen.append(item.identifier)
        if once or len(seen) > 1:
            at.engine.dead = True  # type: ignore[attr-defined]
            raise GONE

    return act


def test_what_a_dying_engine_loses_another_makes(items: list[Item]) -> None:
    attempts = Attempts(dying_engine("a"))
    made, heard = schedule([builder("a"), builder("b")], attempts, jobs=1)
    results = made.run(items)
    assert {result.status for result in results} == {"built"}
    assert len(heard.requeued) == 1
    assert [at for _, at in attempts.made].count("a") == 1
    assert sorted(identifier for identifier, _ in attempts.made) == sorted(names(items)), "each once"


def test_an_engine_that_dies_between_two_images_is_left_alone(items: list[Item]) -> None:
    def act(_item: Item, at: Builder) -> None:
        if at.name == "a":
            at.engine.dead = True  # type: ignore[attr-defined]

    attempts = Attempts(act)
    made, heard = schedule([builder("a"), builder("b")], attempts, jobs=1)
    assert {result.status for result in made.run(items)} == {"built"}
    assert ([at for _, at in attempts.made].count("a"), heard.requeued) == (1, [])


def test_without_any_engine_left_the_rest_fails_with_that_reason(items: list[Item]) -> None:
    attempts = Attempts(dying_engine("a"))
    made, heard = schedule([builder("a")], attempts, jobs=1)
    results = made.run(items)
    assert [result.status for result in results] == ["built", *["failed"] * 5]
    assert {result.reason for result in results[1:]} == {"It is gone. Start it."}
    assert {type(result.failure) for result in results[1:]} == {EngineUnavailable}
    assert heard.requeued == [items[1].identifier]


def test_an_image_that_every_engine_dies_of_is_tried_once_on_each(items: list[Item]) -> None:
    tried: list[str] = []

    def act(_item: Item, at: Builder) -> None:
        tried.append(at.name)
        raise GONE

    results = schedule([builder("a"), builder("b")], Attempts(act))[0].run(items[:1])
    assert (sorted(tried), [result.status for result in results]) == (["a", "b"], ["failed"])


def test_room_is_made_before_an_image_is_refused(items: list[Item]) -> None:
    full = builder("a", replace(ROOMY, disk_bytes=GB))

    def prune(at: Builder, *_: object) -> None:
        at.engine.left = replace(ROOMY, disk_bytes=12 * GB)  # type: ignore[attr-defined]

    attempts = Attempts()
    made, heard = schedule([full], attempts, prune=prune)
    assert {result.status for result in made.run(items)} == {"built"}
    assert (attempts.most, heard.freed) == (1, ["a"])


def test_an_image_too_large_for_the_disk_fails_alone(items: list[Item]) -> None:
    large = replace(items[1], disk_bytes=50 * GB)
    made, heard = schedule([builder("a", replace(ROOMY, disk_bytes=20 * GB))], Attempts())
    results = {result.identifier: result for result in made.run([items[0], large, items[2]])}
    assert [results[name].status for name in names([items[0], large, items[2]])] == [
        "built",
        "failed",
        "built",
    ]
    assert results[large.identifier].reason == (
        f"The engine's disk has 20.0 GB free below /var/lib/fake, and {large.identifier} needs about 50.0 GB. tfimg "
        "has already removed its own leftovers. `docker system df` shows what takes the space; or use an "
        "engine with more."
    )
    assert heard.freed == ["a"]


def test_nothing_is_removed_while_something_runs(items: list[Item]) -> None:
    running: list[int] = []
    attempts = Attempts()
    large = replace(items[5], disk_bytes=50 * GB)
    schedule(
        [builder("a", replace(ROOMY, disk_bytes=20 * GB))], attempts, prune=lambda *_: running.append(attempts.now)
    )[0].run([large, *items[:5]])  # fmt: skip
    assert running == [0]


def test_an_engine_that_is_full_leaves_the_image_to_another(items: list[Item]) -> None:
    attempts = Attempts()
    made, heard = schedule([builder("a", replace(ROOMY, disk_bytes=GB)), builder("b")], attempts)
    made.run(items)
    assert ({at for _, at in attempts.made}, heard.freed) == ({"b"}, [])


def test_a_listener_that_raises_ends_the_run_and_its_builds(items: list[Item]) -> None:
    made, _ = schedule([builder("a")], Attempts(), jobs=2)

    def leave(event: Event) -> None:
        if isinstance(event, ImageResult):
            raise BrokenPipeError

    made.on_event = leave
    with pytest.raises(BrokenPipeError):
        made.run(items)
    assert made.cancellation.is_cancelled
