"""Build cache in a real registry: what one engine has done, an empty one takes from there."""

import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.cli import assert_refused, run_tfimg
from support.docker_daemon import daemon, find_dockerd, machine
from support.registry_container import registry
from tfimg.core.events import StepEvent
from tfimg.engine.buildx import parse_cache_options
from tfimg.engine.docker import DockerEngine
from tfimg.engine.interface import BuildRequest

pytestmark = pytest.mark.full

NAME = "tfimg-test/cached:1"
TWO_STAGES = "FROM scratch AS one\nCOPY Dockerfile /one\nFROM scratch\nCOPY --from=one /one /two\n"
STEPS = ["[one 1/1] COPY Dockerfile /one", "[stage-1 1/1] COPY --from=one /one /two"]
ONCE = secrets.token_hex(8)
"""So that no engine has seen these steps in a run before."""

UNREACHABLE = "127.0.0.1:9/nobody/cache:1"
"""Port 9 of loopback: no registry answers."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """A cache in a registry as two engines name it, and the second of them, which has nothing."""

    local: str
    there: str
    empty: DockerEngine


@pytest.fixture(autouse=True)
def nothing_left(engine: DockerEngine) -> Iterator[None]:
    yield
    engine.remove(NAME)


@pytest.fixture
def places(engine: DockerEngine, base: str, tmp_path: Path) -> Iterator[Places]:
    # Not below pytest's own folder: the path of a socket has 104 characters at most.
    with (
        registry(engine, tmp_path) as address,
        tempfile.TemporaryDirectory(prefix="tfimg-") as folder,
        machine() as apart,
    ):
        network = f"{apart.host}/30"
        settings = Path(folder, "daemon.json")
        settings.write_text(
            json.dumps({"features": {"containerd-snapshotter": True}, "insecure-registries": [network]})
        )
        program = apart.program(find_dockerd(), Path(folder))
        with daemon(Path(folder), program, f"--config-file={settings}") as host:
            port = address.rpartition(":")[2]
            yield Places(
                local=f"{address}/tfimg/cache:1",
                there=f"{apart.host}:{port}/tfimg/cache:1",
                empty=DockerEngine(host=host, environ=os.environ),
            )


def order(folder: Path, *, sources: list[str] | None = None, targets: list[str] | None = None) -> BuildRequest:
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(f"{TWO_STAGES}# {folder} {ONCE}\n")
    cache = parse_cache_options(sources or [], targets or [])
    return BuildRequest(
        dockerfile=folder / "Dockerfile",
        context=folder,
        name=NAME,
        output=f"type=image,name={NAME}",
        cache_from=cache.sources,
        cache_to=cache.targets,
    )


def states(engine: DockerEngine, wanted: BuildRequest) -> dict[str, set[str]]:
    """How each step of a build ended; one that is cached is opened again to fetch what it made."""
    reported: dict[str, set[str]] = {}
    for event in engine.build(wanted):
        if isinstance(event, StepEvent):
            reported.setdefault(event.step, set()).add(event.state)
    return reported


def test_an_empty_engine_takes_every_step_from_the_registry(
    engine: DockerEngine, places: Places, tmp_path: Path
) -> None:
    known, unknown = tmp_path / "known", tmp_path / "unknown"
    made = states(engine, order(known, targets=[places.local]))
    assert [made[step] for step in STEPS] == [{"started", "done"}] * 2
    taken = states(places.empty, order(known, sources=[places.there]))
    assert all("cached" in taken[step] for step in STEPS), list(taken.items())
    assert places.empty.find_digest(NAME)
    # What the cache does not have is made.
    made = states(places.empty, order(unknown, sources=[places.there]))
    assert [made[step] for step in STEPS] == [{"started", "done"}] * 2


def test_a_cache_that_cannot_be_read_or_written_is_reported_and_fails_no_build(
    engine: DockerEngine, tmp_path: Path
) -> None:
    reported = states(engine, order(tmp_path / "context", sources=[UNREACHABLE], targets=[UNREACHABLE]))
    assert engine.find_digest(NAME)
    assert "failed" in reported[f"importing cache manifest from {UNREACHABLE}"]
    assert "failed" in reported["exporting cache to registry"]


@pytest.mark.usefixtures("engine")
def test_a_classic_store_exports_no_cache(tmp_path: Path) -> None:
    with daemon(tmp_path, find_dockerd(), "--storage-driver=vfs") as host:
        ended = run_tfimg("build", "--tf", "2.15", "--cache-to", UNREACHABLE, env={"DOCKER_HOST": host})
    assert_refused(ended, code=10, says="cannot export build cache: its image store is the classic one")
