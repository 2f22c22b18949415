"""A real engine pushes to a real registry and pulls from it; what fails on the way is raised, not passed over."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from support.faulty_proxy import Fault, faulty
from support.registry_container import Behaviour, docker, registry
from support.signing import OURS
from tfimg.core.errors import EngineError, NetworkError, NotInRegistry, RegistryError
from tfimg.core.events import ProgressEvent
from tfimg.core.levels import Level
from tfimg.core.retry import RetryPolicy
from tfimg.engine.docker import DockerEngine
from tfimg.project.project import Project
from tfimg.project.services import Services
from tfimg.project.validator import Validator
from tfimg.publish.repository import SignedRepository
from tfimg.publish.send import EngineSteps, PublishJob
from tfimg.registry.client import open_registry
from tfimg.registry.http import ConnectionSettings
from tfimg.registry.reference import parse_repository

pytestmark = pytest.mark.full


class Made(Protocol):
    """Makes a new image under a name in a registry."""

    def __call__(self, address: str, *, size: int = ...) -> str: ...


@pytest.fixture(scope="module")
def address(engine: DockerEngine, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a registry that is open to all."""
    with registry(engine, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def made(engine: DockerEngine, tmp_path: Path) -> Iterator[Made]:
    names: list[str] = []

    def make(address: str, *, size: int = 2_000_000) -> str:
        context = tmp_path / secrets.token_hex(4)
        context.mkdir()
        (context / "content").write_bytes(os.urandom(size))
        (context / "Dockerfile").write_text("FROM scratch\nCOPY content /\n")
        names.append(f"{address}/team/{context.name}:1")
        docker("build", f"--tag={names[-1]}", str(context), host=engine.host)
        return names[-1]

    yield make
    for name in names:
        engine.remove(name)


def digest_there(address: str, name: str, state: Path) -> str | None:
    """What the registry has under a name, read by our own client."""
    repository, _, tag = name.replace(name.partition("/")[0], address, 1).rpartition(":")
    found = open_registry(parse_repository(repository), {}, state, settings=ConnectionSettings()).find(tag)
    return found.digest if found else None


def ignore(event: ProgressEvent) -> None:
    """Discard an event."""


def test_what_is_pushed_is_pulled_by_its_digest(engine: DockerEngine, address: str, made: Made, tmp_path: Path) -> None:
    name = made(address, size=100_000_000)  # the containerd store tells nothing of what takes a moment
    reported: list[ProgressEvent] = []
    digest = engine.push(name, reported.append)
    assert digest == digest_there(address, name, tmp_path)
    assert {event.step for event in reported} == {"push"}
    assert max(event.total for event in reported) >= 100_000_000
    by_digest = f"{name.rpartition(':')[0]}@{digest}"
    engine.remove(name)
    assert engine.pull(by_digest, ignore) == digest
    assert engine.find_digest(by_digest) is not None
    engine.remove(by_digest)
    assert engine.pull(name, ignore) == digest


def test_a_missing_image_is_not_pushed(engine: DockerEngine, address: str) -> None:
    with pytest.raises(EngineError, match=rf"has no image {address}/team/nothing:1"):
        engine.push(f"{address}/team/nothing:1", ignore)


def test_a_missing_image_is_not_pulled(engine: DockerEngine, address: str, made: Made) -> None:
    name = made(address)
    engine.push(name, ignore)
    for missing in (f"{address}/team/nothing:1", f"{name}2", f"{name.rpartition(':')[0]}@sha256:{'a' * 64}"):
        with pytest.raises(NotInRegistry, match=rf"does not have {missing}"):
            engine.pull(missing, ignore)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(method="PUT", path="/manifests/", status=503, times=-1),
        Fault(method="PUT", path="/manifests/", drop_answer=True, times=-1),
        Fault(method="PATCH|PUT", path="/blobs/", cut_request=100_000, times=-1),
        Fault(method="POST", status=500, times=-1),
    ],
    ids=["manifest refused", "answer lost", "layer cut", "upload refused"],
)
def test_a_push_that_fails_is_raised_and_tried_again_until_it_succeeds(
    fault: Fault, engine: DockerEngine, address: str, made: Made, tmp_path: Path
) -> None:
    """As publishing pushes. The fault lasts until the wait before the second attempt: an engine's own retries fail."""
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        fault.times = 0

    with faulty(address) as between:
        name = made(between.address)
        between.faults.append(fault)
        repository = SignedRepository(
            registry=open_registry(
                parse_repository(name.rpartition(":")[0]), {}, tmp_path, settings=ConnectionSettings()
            ),
            key=OURS,
            state=tmp_path,
        )
        job = PublishJob(
            identifier="1",
            tensorflow="1",
            name=name,
            digest=engine.find_digest(name) or "",
            aliases=(),
            level=Level.LINKED,
        )
        validator = Validator(project=Project(services=Services(environ=os.environ)), engine=engine)
        steps = EngineSteps(
            validator=validator, repository=repository, specs={}, images={}, retries=RetryPolicy(sleep=wait)
        )
        digest = steps.push(job, "candidate", ignore)
        candidate = f"{repository.name}:candidate"
        assert digest == digest_there(address, candidate, tmp_path)
        assert len(waits) == 1
        assert engine.find_digest(candidate) is None


def test_a_stopped_registry_is_an_error(engine: DockerEngine, made: Made) -> None:
    """Port 9 of loopback: no registry answers."""
    with pytest.raises(NetworkError, match=r"failed in the network: .*refused"):
        engine.push(made("127.0.0.1:9"), ignore)


def test_a_push_without_permission_is_refused_and_works_after_login(
    engine: DockerEngine, base: str, made: Made, tmp_path: Path
) -> None:
    environ = {**os.environ, "DOCKER_CONFIG": str(tmp_path / "docker")}
    ours = DockerEngine(host=engine.host, environ=environ)
    with registry(engine, tmp_path, Behaviour(users={"ann": "secret"})) as there:
        name = made(there)
        with pytest.raises(RegistryError, match=rf"The registry {there} does not accept .*docker login {there}"):
            ours.push(name, ignore)
        docker("login", "--username=ann", "--password=secret", there, host=engine.host, env=environ)
        assert ours.push(name, ignore).startswith("sha256:")


def test_a_full_registry_is_an_error_and_has_no_such_tag(
    engine: DockerEngine, base: str, made: Made, tmp_path: Path
) -> None:
    with registry(engine, tmp_path, Behaviour(megabytes=1)) as there:
        name = made(there)
        with pytest.raises((NetworkError, RegistryError), match=r"failed in the network|is full"):
            engine.push(name, ignore)
        assert digest_there(there, name, tmp_path) is None
