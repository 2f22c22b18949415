"""Engines on other machines: three daemons behind networks of their own, reached as docker contexts.

Two speak plain TCP, and one TLS with certificates of both sides.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.cli import assert_refused, run_tfimg
from support.docker_daemon import Machine, daemon, find_dockerd, machine
from tfimg.core.errors import EngineUnavailable
from tfimg.core.events import StepEvent
from tfimg.engine.connect import connect_builders
from tfimg.engine.docker import DockerEngine
from tfimg.engine.interface import BuildRequest, RunRequest
from tfimg.engine.machine import remove_name

pytestmark = pytest.mark.full

IMAGE = "tfimg-test/farm-base:1"
DOCKERFILE = """\
FROM tfimg/base:bookworm-py3.11 AS base
RUN mkdir /small && cp --parents --dereference /bin/sh /bin/sleep \\
    $(ldd /bin/sh /bin/sleep | grep -o '/[^ :]*so[^ :]*') /small
FROM scratch
COPY --from=base /small /
"""
"""A shell and `sleep`: two megabytes, which every engine has to load."""

NAME = "tfimg-test/farm:1"
PORT = 2376
NAPPING = f"{os.getpid() % 1000}.25"
"""Seconds that no other process on this machine sleeps for."""


@dataclass(frozen=True, kw_only=True)
class Farm:
    """Three machines with an engine each, by the names of their docker contexts; the third speaks TLS."""

    machines: tuple[Machine, ...]
    pids: tuple[int, ...]
    environ: dict[str, str]
    engines: tuple[DockerEngine, ...]


@pytest.fixture
def farm(engine: DockerEngine, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Farm]:
    """Three engines with a small image; all of it is gone afterwards."""
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    subprocess.run(
        ["docker", "--host", engine.host, "build", f"--tag={IMAGE}", str(tmp_path)], check=True, capture_output=True
    )
    # What a company's machine has: it is not to hide an engine's own authority.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt")
    if os.geteuid() != 0:
        pytest.skip("only root makes network namespaces")
    environ = {**os.environ, "DOCKER_CONFIG": str(tmp_path / "config")}
    with ExitStack() as stack:
        machines, pids = [], []
        for number in (1, 2, 3):
            there = stack.enter_context(machine())
            folder = tmp_path / str(number)
            folder.mkdir()
            stack.callback(_wake)
            address = f"tcp://{there.address}:{PORT}"
            secure = number == 3
            tls, endpoint = _certificates(folder, there.address) if secure else (["--tls=false"], "")
            host = stack.enter_context(daemon(folder, there.program(find_dockerd(), tmp_path), "--host", address, *tls))
            _copy_image(engine.host, host)
            create = ["docker", "context", "create", there.name, "--docker", f"host={address}{endpoint}"]
            subprocess.run(create, env=environ, check=True, capture_output=True)
            machines.append(there)
            pids.append(int((folder / "pid").read_text()))
        found = connect_builders(environ, tmp_path, [there.name for there in machines])
        yield Farm(machines=tuple(machines), pids=tuple(pids), environ=environ, engines=found)


def _certificates(folder: Path, address: str) -> tuple[list[str], str]:
    """Options of a daemon that speaks TLS and knows its clients, and what a docker context says of them."""
    openssl = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN={0} -keyout {0}-key.pem -out {0}.pem {1}"
    signed = "-CA ca.pem -CAkey ca-key.pem -addext basicConstraints=critical,CA:FALSE -addext {}"
    for name, more in (
        ("ca", "-addext keyUsage=critical,keyCertSign"),
        ("server", signed.format(f"subjectAltName=IP:{address}")),
        ("client", signed.format("extendedKeyUsage=clientAuth")),
    ):
        subprocess.run(openssl.format(name, more).split(), cwd=folder, check=True, capture_output=True)
    ca, server, client = f"{folder}/ca.pem", f"{folder}/server", f"{folder}/client"
    return (
        ["--tlsverify", f"--tlscacert={ca}", f"--tlscert={server}.pem", f"--tlskey={server}-key.pem"],
        f",ca={ca},cert={client}.pem,key={client}-key.pem",
    )


def _copy_image(source: str, sink: str) -> None:
    with subprocess.Popen(["docker", "--host", source, "save", IMAGE], stdout=subprocess.PIPE) as save:
        subprocess.run(["docker", "--host", sink, "load"], stdin=save.stdout, check=True, capture_output=True)


def _wake() -> None:
    """End what a killed engine was running for us."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if NAPPING.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


class Build(threading.Thread):
    """A build on one engine, in the background: it sleeps in its step."""

    def __init__(self, engine: DockerEngine, folder: Path, seconds: str) -> None:
        super().__init__()
        folder.mkdir()
        self.engine = engine
        self.running = threading.Event()
        self.error: BaseException | None = None
        self.ended = 0.0
        (folder / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN --network=none sleep {seconds}\n")
        self.order = BuildRequest(
            dockerfile=folder / "Dockerfile", context=folder, name=NAME, output=f"type=image,name={NAME}"
        )
        self.start()

    def run(self) -> None:
        try:
            for event in self.engine.build(self.order):
                if isinstance(event, StepEvent) and "sleep" in event.step and event.state == "started":
                    self.running.set()
        except BaseException as error:
            self.error = error
        self.ended = time.monotonic()


class Run(threading.Thread):
    """A program on one engine, in the background: it says one word and sleeps."""

    def __init__(self, engine: DockerEngine) -> None:
        super().__init__()
        self.engine = engine
        self.running = threading.Event()
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        order = RunRequest(image=IMAGE, command=["sh", "-c", f"echo up; sleep {NAPPING}"], files={})
        try:
            for _ in self.engine.run(order, timeout=600):
                self.running.set()
        except BaseException as error:
            self.error = error


def test_two_of_three_engines_are_lost_in_the_middle_of_builds(farm: Farm, tmp_path: Path) -> None:
    """The first is killed, and the second unplugged, while builds and programs run; the third serves on."""
    *lost, kept = (
        Build(engine, tmp_path / f"context-{number}", seconds)
        for number, (engine, seconds) in enumerate(zip(farm.engines, (NAPPING, NAPPING, "3"), strict=True))
    )
    programs = [Run(engine) for engine in farm.engines[:2]]
    for background in (*programs, *lost, kept):
        assert background.running.wait(60), background.error
    start = time.monotonic()
    os.kill(farm.pids[0], signal.SIGKILL)
    farm.machines[1].unplug()
    for build, program in zip(lost, programs, strict=True):
        # The longest: 30 s of silence, 20 s to answer, 20 s for buildx to end.
        build.join(100)
        assert not build.is_alive()
        assert build.ended - start < 75
        assert isinstance(build.error, EngineUnavailable), build.error
        assert build.error.next_step in str(build.error)
        program.join(75)
        assert not program.is_alive()
        assert isinstance(program.error, EngineUnavailable), program.error
        # The name of what was being built cannot be removed any more, and that does not hide the reason.
        remove_name(build.engine, NAME)
    assert time.monotonic() - start < 150
    kept.join(60)
    assert kept.error is None
    assert kept.engine.find_digest(NAME)
    # The next command reports it before anything is built, and the engine that is left still serves.
    *gone, there = (machine.name for machine in farm.machines)
    for name in gone:
        assert_refused(
            run_tfimg("build", "--tf", "2.15", "--builder", name, env=farm.environ),
            code=10,
            says=rf"The builder {name} does not answer: .*[^?.][?.] Start it, .* name another --builder\.",
        )
    plan = run_tfimg("plan", "2.15.1-cpu-py3.11", "--builder", there, "--json", env=farm.environ)
    assert plan.documents[-1]["engine"] == kept.engine.host
