"""An image for arm64 on a machine that emulates it: built without running its programs, then run."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.cli import CliResult, run_tfimg
from support.containers import run_container
from support.docker_daemon import image_tags
from support.planted_faults import spec_of
from support.registry_container import Behaviour, docker, registry
from support.small_workspace import make_workspace
from tfimg.build.builder import Builder, BuildSettings, BuiltImage
from tfimg.core.events import Event, LogEvent
from tfimg.engine.docker import DockerEngine
from tfimg.engine.machine import EMULATE
from tfimg.project.project import Project
from tfimg.project.services import Services

pytestmark = [pytest.mark.full, pytest.mark.group("arm64")]

IDENTIFIER = "2.15.1-cpu-py3.11-arm64"
NAME = f"tfimg-test/tensorflow:{IDENTIFIER}"
AMD64 = "2.15.1-cpu-py3.11"
SMALL = "tfimg-test/platforms"


@dataclass(frozen=True, kw_only=True)
class Publisher:
    """A publisher with a repository `target` in a real registry, and a pair of keys."""

    target: str
    keys: Path
    env: dict[str, str]

    @property
    def key(self) -> tuple[str, ...]:
        return "--key", f"{self.keys}/tfimg.key", "--publisher", "both"

    @property
    def public_key(self) -> tuple[str, ...]:
        return "--public-key", f"{self.keys}/tfimg.pub"

    def ask(self, *words: str) -> CliResult:
        return run_tfimg(*words, "--json", env=self.env)

    def succeed(self, *words: str, code: int = 0) -> CliResult:
        ended = self.ask(*words)
        assert ended.code == code, ended.stderr
        return ended


def require_arm64(engine: DockerEngine) -> None:
    if not engine.can_run("linux/arm64"):
        pytest.skip(f"the engine runs no programs of linux/arm64, as the base of Debian packages needs: {EMULATE}")


def test_an_engine_says_which_platforms_it_runs(engine: DockerEngine) -> None:
    assert engine.can_run(engine.get_device_support().platform)
    before = {name for image in engine.list_images() for name in image.names}
    engine.can_run("linux/arm64")
    after = {name for image in engine.list_images() for name in image.names}
    assert not {name for name in after - before if name.startswith("tfimg/probe")}


def test_an_emulator_that_is_registered_is_not_installed_again(engine: DockerEngine) -> None:
    require_arm64(engine)
    ended = run_tfimg("engine", "up", "--emulate", env={"DOCKER_HOST": engine.host})
    assert ended.code == 0, ended.stderr
    assert "Containers of this machine run programs of linux/arm64." in ended.stderr
    assert "Installing" not in ended.stderr


@pytest.fixture(scope="module")
def arm64(engine: DockerEngine) -> Iterator[tuple[BuiltImage, list[Event]]]:
    require_arm64(engine)
    project, events = Project(services=Services(environ=os.environ)), list[Event]()
    builder = Builder(project, project.services.engine(), BuildSettings(base="bootstrap"))
    try:
        with builder.candidate(project.plan(spec_of(IDENTIFIER)), events.append) as image:
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
    assert (report["environment"]["emulated"], report["environment"]["time_factor"]) == (True, 20)
    assert report["level"] == "built", "the smoke profile leaves out what level linked needs"


def test_its_layers_are_the_same_bytes_again(arm64: tuple[BuiltImage, list[Event]]) -> None:
    image, _ = arm64
    project = Project(services=Services(environ=os.environ))
    builder = Builder(project, project.services.engine(), BuildSettings(base="bootstrap", no_cache=True))
    with builder.candidate(project.plan(spec_of(IDENTIFIER))) as again:
        assert [layer.digest for layer in again.stored.layers] == [layer.digest for layer in image.stored.layers]


@pytest.fixture(scope="module")
def published(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    """Small images of both platforms, published to a real registry with measured of their own."""
    require_arm64(engine)
    folder = tmp_path_factory.mktemp("platforms")
    make_workspace(folder / "workspace")
    env = {
        "TFIMG_WORKSPACE": str(folder / "workspace"),
        "TFIMG_STATE": str(folder / "state"),
        "TFIMG_KEY_PASSWORD": "correct horse battery staple",
        "DOCKER_HOST": engine.host,
    }
    with registry(engine, folder, Behaviour(deletes=True)) as address:
        publisher = Publisher(target=f"{address}/team/tensorflow", keys=folder / "keys", env=env)
        publisher.succeed("keygen", str(publisher.keys))
        identifiers = (AMD64, IDENTIFIER)
        publisher.succeed("build", *identifiers, "--base", "bootstrap", "--repository", SMALL)
        publisher.succeed("publish", publisher.target, *identifiers, "--from", SMALL, *publisher.key)
        yield publisher
    for name in image_tags(engine):
        if name.startswith((f"{SMALL}:", f"{publisher.target}:")):
            engine.remove(name)


def test_each_platform_pulls_and_verifies_its_image_from_one_tag(engine: DockerEngine, published: Publisher) -> None:
    digests = {}
    for platform, machine in (("linux/amd64", "x86_64"), ("linux/arm64", "aarch64")):
        for tag in (AMD64, "2.15.1", "2.15", "2.15-py3.11"):
            name = f"{published.target}:{tag}"
            verified = published.succeed("verify", name, "--platform", platform, *published.public_key)
            digests[platform] = verified.documents[-1]["digest"]
        docker("pull", f"--platform={platform}", name, host=engine.host)
        words = ("run", "--rm", f"--platform={platform}", name, "uname", "--machine")
        assert docker(*words, host=engine.host).split() == [machine]
        engine.remove(name)
        published.succeed("pull", name, "--platform", platform, *published.public_key)
        found = engine.client.images.get(name)
        assert f"{found.attrs['Os']}/{found.attrs['Architecture']}" == platform
        engine.remove(name)
    assert len({*digests.values()}) == 2
    own = published.succeed("verify", f"{published.target}:2.15-arm64", *published.public_key).documents[-1]
    assert own["digest"] == digests["linux/arm64"]
    assert own["tested"]["environment"]["host"] == "both"


def test_a_withdrawn_platform_is_in_no_index(published: Publisher) -> None:
    name = f"{published.target}:2.15"
    verified = published.succeed("verify", name, "--platform", "arm64", *published.public_key).documents[-1]
    withdrawn = f"{published.target}@{verified['digest']}"
    published.succeed("withdraw", withdrawn, "--reason", "wrong on Arm", *published.key)
    assert published.ask("verify", name, "--platform", "arm64", *published.public_key).code == 3
    assert published.ask("verify", f"{name}-arm64", *published.public_key).code == 17
    published.succeed("verify", name, "--platform", "amd64", *published.public_key)
    assert published.succeed("inspect", name).documents[-1]["platforms"] == ["linux/amd64"]
    identifiers = (AMD64, IDENTIFIER)
    published.succeed("publish", published.target, *identifiers, "--from", SMALL, "--reinstate", *published.key)
    published.succeed("verify", name, "--platform", "arm64", *published.public_key)
    assert published.succeed("inspect", name).documents[-1]["platforms"] == ["linux/amd64", "linux/arm64"]
    published.succeed("rollback", name, "--to", "0" * 12, *published.key, code=2)
