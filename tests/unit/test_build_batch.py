"""Many images on engines that are small, full, or die: who builds what, and how many at once."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from support.environment import TestEnvironment
from support.memory_engine import FakeEngine, capabilities
from tfimg.build.batch import Schedule
from tfimg.build.builder import Builder, BuildSettings
from tfimg.build.results import ImageRequeued, ImageResult
from tfimg.core.cancellation import Cancellation
from tfimg.core.errors import EngineUnavailable
from tfimg.core.events import Event
from tfimg.matrix.spec import ImageSpec
from tfimg.project.project import Project
from tfimg.recipe.plan import Plan

GB = 10**9
GONE = EngineUnavailable("It is gone.", next_step="Start it.")


class Events(list[Event]):
    """The events of a schedule."""

    @property
    def requeued(self) -> list[str]:
        return [event.identifier for event in self if isinstance(event, ImageRequeued)]

    @property
    def results(self) -> list[ImageResult]:
        return [event for event in self if isinstance(event, ImageResult)]


class Dying(FakeEngine):
    """Does not answer any more when a test lets it die."""

    dead = False

    def find_free_bytes(self) -> int | None:
        if self.dead:
            raise GONE
        return super().find_free_bytes()


def builder(
    name: str, free: int | None = 1000 * GB, host: str | None = None, *, jobs: int | None = None, memory: int = 8 * GB
) -> Builder:
    found = replace(capabilities(), host=host or name, builder=name, memory_bytes=memory)
    engine = Dying(free_bytes=free, found=found)
    return Builder(Project(services=TestEnvironment()), engine, BuildSettings(jobs=jobs))


@pytest.fixture
def plans(specs: Sequence[ImageSpec]) -> list[Plan]:
    """Images for CPU, whose builds need 5 GB each."""
    cpu = [spec for spec in specs if spec.device == "cpu"]
    return [Plan(spec=spec, lock={}, dockerfile="", steps="", tags=()) for spec in cpu[:6]]


class Attempts:
    """Makes nothing; knows how many builds were requested at once, and on which builder.

    None ends before `gather` were requested at once, or 10 s are over: a slow machine starts threads late.
    """

    def __init__(
        self, act: Callable[[Plan, Builder], None] = lambda _plan, _worker: time.sleep(0.02), *, gather: int = 1
    ) -> None:
        self._act, self._gather, self._lock = act, gather, threading.Lock()
        self.begun: list[str] = []
        self.made: list[tuple[str, str]] = []
        self.now = self.most = 0

    def __call__(self, plan: Plan, at: Builder) -> ImageResult:
        with self._lock:
            self.begun.append(plan.spec.identifier)
            self.now += 1
            self.most = max(self.most, self.now)
        deadline = time.monotonic() + 10
        while self.most < self._gather and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            self._act(plan, at)
        finally:
            with self._lock:
                self.now -= 1
        self.made.append((plan.spec.identifier, at.name))
        return ImageResult(identifier=plan.spec.identifier, status="built", seconds=0.0, engine=at.name)


def schedule(builders: Sequence[Builder], attempts: Attempts) -> tuple[Schedule, Events]:
    heard = Events()
    made = Schedule(builders=builders, attempt=attempts, on_event=heard.append, cancellation=Cancellation())
    return made, heard


def names(plans: Sequence[Plan]) -> list[str]:
    return [plan.spec.identifier for plan in plans]


@pytest.mark.parametrize(
    ("at", "most"),
    [
        (builder("a"), 2),
        (builder("a", jobs=1), 1),
        (builder("a", jobs=6), 6),
        (builder("a", memory=4 * GB), 2),
        (builder("a", memory=4 * GB - 1), 1),
        (builder("a", memory=1, jobs=3), 3),
        (builder("a", 15 * GB, jobs=6), 3),
        (builder("a", 15 * GB - 1, jobs=6), 2),
        (builder("a", 0, jobs=6), 1),
        (builder("a", None, jobs=6), 6),
    ],
    ids=["default", "one", "more", "just-enough-memory", "little-memory", "jobs-memory", "disk", "less-disk",
         "no-disk", "remote"],
)  # fmt: skip
def test_builds_at_once_are_limited_by_jobs_and_disk(at: Builder, most: int, plans: list[Plan]) -> None:
    """Without any space a build starts alone: it says itself what it lacks."""
    attempts = Attempts(gather=most)
    made, heard = schedule([at], attempts)
    results = made.run(plans)
    assert sorted(result.identifier for result in results) == sorted(names(plans))
    assert {result.status for result in results} == {"built"}
    assert attempts.most == most
    assert [result.identifier for result in heard.results] == [result.identifier for result in results]


def test_a_small_one_passes_a_large_one_that_has_to_wait(plans: list[Plan], specs: Sequence[ImageSpec]) -> None:
    """An image for GPUs needs 13 GB, one for CPU 5 GB."""
    gpu = [replace(plans[0], spec=spec) for spec in specs if spec.device == "gpu"][:2]
    attempts = Attempts(gather=2)
    schedule([builder("a", 20 * GB)], attempts)[0].run([*gpu, plans[0]])
    assert attempts.begun == [gpu[0].spec.identifier, plans[0].spec.identifier, gpu[1].spec.identifier]


def test_engines_share_the_work(plans: list[Plan]) -> None:
    attempts = Attempts(gather=4)
    schedule([builder("a"), builder("b")], attempts)[0].run(plans)
    assert attempts.most == 4
    assert {at for _, at in attempts.made} == {"a", "b"}


def test_builders_of_one_engine_share_its_disk(plans: list[Plan]) -> None:
    attempts = Attempts(gather=2)
    schedule([builder("a", 14 * GB, "host"), builder("b", 14 * GB, "host")], attempts)[0].run(plans)
    assert attempts.most == 2


def dying_engine(name: str) -> Callable[[Plan, Builder], None]:
    """An attempt at which an engine dies: at its second image."""
    seen: list[str] = []

    def act(plan: Plan, at: Builder) -> None:
        if at.name != name:
            time.sleep(0.01)
            return
        seen.append(plan.spec.identifier)
        if len(seen) > 1:
            at.engine.dead = True  # type: ignore[attr-defined]
            raise GONE

    return act


def test_what_a_dying_engine_loses_another_makes(plans: list[Plan]) -> None:
    attempts = Attempts(dying_engine("a"))
    made, heard = schedule([builder("a", jobs=1), builder("b", jobs=1)], attempts)
    results = made.run(plans)
    assert {result.status for result in results} == {"built"}
    assert len(heard.requeued) == 1
    assert [at for _, at in attempts.made].count("a") == 1
    assert sorted(identifier for identifier, _ in attempts.made) == sorted(names(plans)), "each once"


def test_without_any_engine_left_the_rest_fails_with_that_reason(plans: list[Plan]) -> None:
    attempts = Attempts(dying_engine("a"))
    made, heard = schedule([builder("a", jobs=1)], attempts)
    results = made.run(plans)
    assert [result.status for result in results] == ["built", *["failed"] * 5]
    assert {result.reason for result in results[1:]} == {"It is gone. Start it."}
    assert {type(result.failure) for result in results[1:]} == {EngineUnavailable}
    assert heard.requeued == [plans[1].spec.identifier]


def test_an_image_that_every_engine_dies_of_is_tried_once_on_each(plans: list[Plan]) -> None:
    tried: list[str] = []

    def act(_plan: Plan, at: Builder) -> None:
        tried.append(at.name)
        raise GONE

    results = schedule([builder("a"), builder("b")], Attempts(act))[0].run(plans[:1])
    assert (sorted(tried), [result.status for result in results]) == (["a", "b"], ["failed"])


def test_an_engine_that_dies_while_its_space_is_read_is_left_alone(plans: list[Plan]) -> None:
    first, second = builder("a"), builder("b", jobs=1)
    first.engine.dead = True  # type: ignore[attr-defined]
    attempts = Attempts()
    made, heard = schedule([first, second], attempts)
    assert {result.status for result in made.run(plans)} == {"built"}
    assert ([at for _, at in attempts.made].count("a"), heard.requeued) == (1, [])


def test_an_engine_that_is_full_leaves_the_image_to_another(plans: list[Plan]) -> None:
    attempts = Attempts(gather=3)
    schedule([builder("a", 5 * GB), builder("b")], attempts)[0].run(plans[:3])
    assert sorted(at for _, at in attempts.made) == ["a", "b", "b"]


def test_a_listener_that_raises_ends_the_run_and_its_builds(plans: list[Plan]) -> None:
    made, _ = schedule([builder("a")], Attempts())

    def leave(event: Event) -> None:
        if isinstance(event, ImageResult):
            raise BrokenPipeError

    made.on_event = leave
    with pytest.raises(BrokenPipeError):
        made.run(plans)
    assert made.cancellation.is_cancelled
