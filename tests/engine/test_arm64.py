"""An image for arm64 on a machine that emulates it: built without running its programs, then run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.cli import run_tfimg
from support.containers import run_container
from support.planted_faults import spec_of
from tfimg.build.builder import Builder
from tfimg.build.image import BuiltImage
from tfimg.build.settings import BuildSettings
from tfimg.core.events import Event, LogEvent
from tfimg.engine.docker.engine import DockerEngine
from tfimg.engine.emulation import EMULATE
from tfimg.project.project import Project
from tfimg.project.services import Services

pytestmark = [pytest.mark.full, pytest.mark.group("other engines")]

IDENTIFIER = "2.15.1-cpu-py3.11-arm64"
NAME = f"tfimg-test/tensorflow:{IDENTIFIER}"


def test_an_engine_says_which_platforms_it_runs(engine: DockerEngine) -> None:
    assert engine.can_run(engine.get_device_support().platform)
    before = {name for image in engine.list_images() for name in image.names}
    engine.can_run("linux/arm64")
    after = {name for image in engine.list_images() for name in image.names}
    assert not {name for name in after - before if name.startswith("tfimg/probe")}


@pytest.fixture(scope="module")
def arm64(engine: DockerEngine) -> Iterator[tuple[BuiltImage, list[Event]]]:
    if not engine.can_run("linux/arm64"):
        pytest.skip(f"the engine runs no programs of linux/arm64, as the base of Debian packages needs: {EMULATE}")
    project, events = Project(services=Services(environ=os.environ)), list[Event]()
    builder = Builder(project, project.services.engine(), BuildSettings(base="bootstrap"))
    try:
        with builder.candidate(project.plan(spec_of(IDENTIFIER)), f"{NAME}-candidate", events.append) as image:
            engine.tag(image.name, [NAME])
            yield image, events
    finally:
        engine.remove(NAME)


def test_it_is_for_arm64_and_has_byte_code_of_its_python(
    arm64: tuple[BuiltImage, list[Event]], engine: DockerEngine
) -> None:
    image, events = arm64
    found = engine.client.images.get(NAME)
    assert (found.attrs["Os"], found.attrs["Architecture"]) == ("linux", "arm64")
    assert image.base.name == "tfimg/base:bookworm-py3.11-arm64"
    assert image.stored.unpacked_bytes > 10**9
    assert not [event for event in events if isinstance(event, LogEvent) and "exec format error" in event.line]
    program = (
        "import importlib.util, numpy, platform, sysconfig; "
        "print(platform.machine(), importlib.util.cache_from_source(numpy.__file__), numpy.__spec__.cached)"
    )
    ended = run_container(engine, NAME, "python", "-c", program)
    machine, expected, cached = ended.stdout.split()
    assert (machine, expected) == ("aarch64", cached)


def test_its_own_suite_passes_on_an_emulator_and_says_so(arm64: tuple[BuiltImage, list[Event]]) -> None:
    ended = run_tfimg("validate", NAME, "--profile", "smoke", "--json")
    assert ended.code == 0, ended.stderr
    report = ended.documents[-1]
    assert (report["passed"], report["aim"], report["environment"]["machine"]) == (True, "linked", "aarch64")
    assert report["environment"]["emulated"] is True
    assert report["level"] == "built", "the smoke profile leaves out what level linked needs"


def test_its_layers_are_the_same_bytes_again(arm64: tuple[BuiltImage, list[Event]]) -> None:
    image, _ = arm64
    project = Project(services=Services(environ=os.environ))
    builder = Builder(project, project.services.engine(), BuildSettings(base="bootstrap", no_cache=True))
    with builder.candidate(project.plan(spec_of(IDENTIFIER)), f"{NAME}-again") as again:
        assert [layer.digest for layer in again.stored.layers] == [layer.digest for layer in image.stored.layers]
