"""What is done with an image, and what each part of it takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.images.contestants import Built, Contestant
from benchmarks.images.engines import SECOND, Docker, engine, require_space, timed
from benchmarks.images.failure import CannotMeasure
from benchmarks.images.namespace import UNCONNECTED
from benchmarks.images.registry import Registry
from benchmarks.images.targets import Knob, Target

SCENARIOS = ("cold", "warm", "knob", "second", "family")

BUILD_BYTES = {"cpu": 10e9, "gpu": 28e9}
"""Free disk that a build from nothing is begun with: tfimg asks for 7 and 20 GB, and a pushed image comes on top."""

NEXT_BYTES = {"cpu": 8e9, "gpu": 21e9}
"""The same for another image of a family, beside what is cached of those before."""

AGAIN_BYTES = {"cpu": 5e9, "gpu": 16e9}
"""The same beside an image that is there already, and for pulling one: unpacked and compressed it is twice on disk."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """Where contestants run: an engine, a registry, the images, and where progress is reported."""

    docker: Docker
    registry: Registry
    target: Target
    knob: Knob
    family: Sequence[Target]
    scenarios: Sequence[str]
    say: Callable[[str], None]


def run_course(course: Course, contestant: Contestant) -> dict[str, float]:
    """All that a contestant does, each part from a cold start → seconds and bytes by the names in `figures`."""
    found: dict[str, float] = {}
    if {"cold", "warm", "knob"} & set(course.scenarios):
        found |= one_image(course, contestant)
    if "family" in course.scenarios:
        found |= family(course, contestant, course.family)
    elif "second" in course.scenarios:
        found["second"] = family(course, contestant, course.family)["second"]
    return found


def one_image(course: Course, contestant: Contestant) -> dict[str, float]:
    """Cold, then again with nothing changed, then with the knob turned, and pulled by another engine at the end."""
    docker, target = course.docker, course.target
    _start(course)
    built = contestant.build(docker, target)
    course.say(f"cold: in the store after {built.seconds:.1f} s")
    found, pushed = {}, ""
    if "cold" in course.scenarios:
        found["run"] = built.seconds + docker.import_tensorflow(built.name)
        found |= _validated("run", built)
        seconds, pushed = _push(course, built, "cold")
        found |= {"push": built.seconds + seconds, "size": course.registry.size(pushed)}
    if "warm" in course.scenarios:
        found |= _again(course, contestant, "warm", None)
        requested = contestant.ask_again(docker, target)
        found |= {"asked": requested} if requested is not None else {}
    if "knob" in course.scenarios:
        require_space(docker.folder, AGAIN_BYTES[target.device], "Building it with another package")
        found |= _again(course, contestant, "knob", course.knob)
    if pushed:
        docker.forget()
        found["pull"] = found["push"] + _pull(course, pushed)
    return found


def family(course: Course, contestant: Contestant, members: Sequence[Target]) -> dict[str, float]:
    """Several images of one release, each built, pushed and then removed; what the builds have cached stays."""
    _start(course)
    seconds, suites, emptied = [], 0.0, 0
    for target in members:
        emptied += _make_room(course, NEXT_BYTES[target.device])
        built = contestant.build(course.docker, target)
        pushing, _ = _push(course, built, target.identifier)
        seconds_taken = f"in the store after {built.seconds:.1f} s, pushed in {pushing:.1f} s"
        course.say(f"family: {target.identifier} {seconds_taken}")
        course.docker.forget_images()
        seconds.append(built.seconds)
        suites += built.suite
    held = float(course.registry.held_bytes())
    found = {"second": seconds[1], "family": sum(seconds), "family-bytes": held}
    found |= {"family-emptied": emptied} if emptied else {}
    return found | ({"family-validated": sum(seconds) + suites} if suites else {})


def _start(course: Course) -> None:
    course.docker.forget()
    course.registry.empty()
    require_space(course.docker.folder, BUILD_BYTES[course.target.device], "A build from nothing")


def _make_room(course: Course, needed: float) -> bool:
    """Where the disk is too full for the next image, cached steps go and downloaded wheels stay; whether it was."""
    folder = course.docker.folder
    try:
        require_space(folder, needed, "The next image")
        return False
    except CannotMeasure:
        course.say("family: the cache of finished steps is removed, the disk is too full")
        course.docker("builder", "prune", "--all", "--force", "--filter=type=regular")
        require_space(folder, needed, "The next image")
        return True


def _again(course: Course, contestant: Contestant, figure: str, knob: Knob | None) -> dict[str, float]:
    before = course.registry.held_bytes()
    built = contestant.build(course.docker, course.target, knob)
    course.say(f"{figure}: in the store after {built.seconds:.1f} s")
    found = {figure: built.seconds, **_validated(figure, built)}
    if knob and before:
        seconds, _ = _push(course, built, "knob")
        found |= {"knob-push": built.seconds + seconds, "knob-bytes": course.registry.held_bytes() - before}
    return found


def _validated(figure: str, built: Built) -> dict[str, float]:
    return {f"{figure}-validated": built.seconds + built.suite} if built.suite else {}


def _push(course: Course, built: Built, tag: str) -> tuple[float, str]:
    pushed: list[str] = []
    seconds = timed(lambda: pushed.append(course.registry.push(built.name, tag)))
    return seconds, pushed[0]


def _pull(course: Course, pushed: str) -> float:
    docker = course.docker
    require_space(docker.folder, AGAIN_BYTES[course.target.device], "Pulling the image")
    with engine(docker.folder.with_name(SECOND), docker.store, *UNCONNECTED) as second:
        seconds = timed(lambda: second("pull", "--quiet", pushed)) + second.import_tensorflow(pushed)
    course.say(f"cold: pulled and imported in {seconds:.1f} s")
    return seconds
