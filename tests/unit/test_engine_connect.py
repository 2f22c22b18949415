"""Podman behind its Docker-compatible socket: answers of 4.3.1 and 5.4.2, and where its socket is looked for."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliRunner
from support.environment import TestEnvironment
from support.http_server import AnyMethod, serving
from support.memory_engine import FakeEngine, toolkit
from support.messages import exactly
from support.programs import program
from tfimg.core.errors import EngineCannotBuild, EngineSetupError, EngineTooOld, EngineUnavailable
from tfimg.engine import connect
from tfimg.engine.docker import DockerEngine
from tfimg.engine.interface import RunRequest
from tfimg.engine.machine import INSTALL_ENGINE, PrivateEngine, describe_access, may_use
from tfimg.project.services import Services

CONFIGURATION, MANIFEST, OTHER = (f"sha256:{digit * 64}" for digit in "123")
NAME = "registry.example/team/tf"


@dataclass
class _Podman:
    """What the service answers; `digests` are those of the one image that it has."""

    version: str = "5.4.2"
    rootless: bool = False
    machine: str = ""
    root: str = "/var/lib/containers/storage"
    digests: tuple[str, ...] = (MANIFEST,)
    stream: tuple[Mapping[str, Any], ...] = ()
    requested: list[str] = field(default_factory=list)


class _Service(AnyMethod):
    def answer(self) -> None:
        podman: _Podman = self.server.subject  # type: ignore[attr-defined]
        path = self.path.partition("?")[0]
        podman.requested.append(path)
        if path.endswith("/version"):
            self._json([{"Name": "Podman Engine", "Version": podman.version}, {"Name": "Conmon", "Version": "2.1"}])
        elif path.endswith("/info"):
            self._send(
                {
                    "ServerVersion": podman.version, "Rootless": podman.rootless, "Runtimes": {"crun": {}, "runc": {}},
                    "Name": podman.machine, "DockerRootDir": podman.root,
                }
            )  # fmt: skip
        elif path.endswith("/images/create"):
            self._stream(podman.stream)
        else:
            names = [f"{NAME}@{digest}" for digest in podman.digests]
            self._send({"Id": CONFIGURATION, "RepoTags": [f"{NAME}:1"], "RepoDigests": names})

    def _json(self, components: object) -> None:
        self._send({"ApiVersion": "1.41", "Components": components})

    def _send(self, document: object) -> None:
        self.reply(200, {"Content-Type": "application/json"}, json.dumps(document).encode())

    def _stream(self, lines: Sequence[object]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for text in (*(f"{json.dumps(line)}\n" for line in lines), ""):
            self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())


@pytest.fixture
def podman() -> _Podman:
    return _Podman()


@pytest.fixture
def engine(podman: _Podman) -> Iterator[DockerEngine]:
    with serving(_Service, podman) as address:
        yield DockerEngine(host=f"tcp://{address}", environ={})


def test_podman_runs_images_and_does_not_build_them(engine: DockerEngine) -> None:
    with pytest.raises(EngineCannotBuild) as caught:
        engine.get_capabilities()
    assert str(caught.value) == (
        f"The engine at {engine.host} is Podman 5.4.2, which has no BuildKit to build with. `tfimg run`, `validate`, "
        "`publish --renew`, `pull` and `load` use it; for builds, start Docker, or "
        f"{INSTALL_ENGINE} sets up an engine of tfimg's own beside it."
    )


@pytest.mark.parametrize("rootless", [False, True])
def test_podman_has_cdi_alone(engine: DockerEngine, podman: _Podman, rootless: bool) -> None:
    podman.rootless = rootless
    found = engine.get_device_support()
    assert (found.engine, found.version, found.rootless) == ("Podman", "5.4.2", rootless)
    assert (found.runtimes, found.cdi_folders) == (("crun", "runc"), ("/etc/cdi", "/var/run/cdi"))


@pytest.mark.parametrize("different", ["nothing", "machine", "root", "host"])
def test_an_engine_on_the_same_machine_shares_its_files(
    different: str, engine: DockerEngine, podman: _Podman, tmp_path: Path
) -> None:
    """Behind a local socket may be a virtual machine, another machine through SSH, or the host of a container."""
    engine.is_local = different != "host"
    podman.machine = "another" if different == "machine" else os.uname().nodename
    podman.root = str(tmp_path / "missing" if different == "root" else tmp_path)
    assert engine.get_device_support().shares_files is (different == "nothing")


def test_an_image_is_identified_by_its_manifest_if_it_has_one(engine: DockerEngine, podman: _Podman) -> None:
    assert engine.find_digest(f"{NAME}:1") == MANIFEST
    podman.digests = (MANIFEST, OTHER)
    assert engine.find_digest(f"{NAME}:1") == CONFIGURATION
    podman.digests = ()
    assert engine.find_digest(f"{NAME}:1") == CONFIGURATION


ADDRESSES = (
    "tcp://127.0.0.1:99999", "tcp://127.0.0.1:abc", "tcp://127.0.0.1:-1", "tcp://127.0.0.1:1:2", "tcp://127.0.0.1:",
    "tcp://[::1", "tcp://[zz]:1", "ssh://host:abc", "tcp://", "tcp:/127.0.0.1:1", "engine", "https://x y:1", "-x",
    "\x1b[31m",
)  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_of_no_engine_is_an_error_of_its_own(address: str, tmp_path: Path) -> None:
    says = rf"^No container engine answers at {re.escape(address)}: .+\. Correct the address: unix:///PATH or tcp://"
    for ask in (DockerEngine.get_device_support, DockerEngine.ping):
        with pytest.raises(EngineUnavailable, match=says):
            connect.connect({"DOCKER_HOST": address}, tmp_path, ask=ask)


def test_a_long_address_of_no_engine_is_cut() -> None:
    with pytest.raises(EngineUnavailable, match=r"^No container engine answers at tcp://x{294}…: "):
        DockerEngine(host=f"tcp://{'x' * 100_000}", environ={}).ping()


def test_an_engine_behind_ssh_is_reached_through_a_forwarded_socket(tmp_path: Path) -> None:
    says = (
        "No container engine answers at ssh://me@host: tfimg does not speak SSH. Forward its socket with `ssh -nNT -L "
        "/tmp/engine.sock:/var/run/docker.sock USER@HOST &`, and set DOCKER_HOST=unix:///tmp/engine.sock."
    )
    with pytest.raises(EngineUnavailable, match=exactly(says)):
        connect.connect({"DOCKER_HOST": "ssh://me@host"}, tmp_path)


def test_a_socket_with_a_name_that_no_file_can_have_is_not_there() -> None:
    host = f"unix:///{'a' * 300}"
    assert may_use(host)
    assert describe_access(host).startswith("Start it; or unset DOCKER_HOST")
    assert Services(environ={}).survey(host).socket == "absent"


PULLED = (
    {"status": "Pulling fs layer", "progressDetail": {}, "id": "5f70bf18a086"},
    {"status": "Download complete", "progressDetail": {}, "id": "5f70bf18a086"},
    {"status": "Download complete", "progressDetail": {}, "id": CONFIGURATION[7:19]},
)
"""The last line has the first digits of the image's id."""


def test_the_digest_of_a_pull_is_that_of_the_pulled_name(engine: DockerEngine, podman: _Podman) -> None:
    podman.stream, podman.digests = PULLED, (OTHER, MANIFEST)
    assert engine.pull(f"{NAME}@{MANIFEST}", lambda _: None) == MANIFEST
    podman.digests = (MANIFEST,)
    assert engine.pull(f"{NAME}:1", lambda _: None) == MANIFEST


@pytest.mark.parametrize("stream", [PULLED[:1], PULLED[:2], (*PULLED, {"status": "Pulling fs layer", "id": "1"})])
def test_an_interrupted_pull_is_an_error(engine: DockerEngine, podman: _Podman, stream: tuple[Any, ...]) -> None:
    """Although the engine has an image of that name: an older one."""
    podman.stream = stream
    with pytest.raises(Exception, match="answer ended before it reported the digest of the pull"):
        engine.pull(f"{NAME}:1", lambda _: None)


def test_a_pull_of_another_digest_is_an_error(engine: DockerEngine, podman: _Podman) -> None:
    podman.stream, podman.digests = PULLED, (OTHER,)
    with pytest.raises(Exception, match=f"returned another digest: {OTHER}"):
        engine.pull(f"{NAME}@{MANIFEST}", lambda _: None)


def test_an_old_podman_would_ignore_the_request_for_a_gpu(engine: DockerEngine, podman: _Podman) -> None:
    podman.version = "4.3.1"
    request = RunRequest(image="tf", command=(), files={}, access="cdi")
    with pytest.raises(EngineTooOld) as caught:
        list(engine.run(request, timeout=1))
    assert str(caught.value) == (
        f"Podman 4.3.1 at {engine.host} gives no GPU to containers that are started through its socket. Run the suite "
        "with its command, or upgrade it: `tfimg run tf -- tfimg-selftest`."
    )
    assert not any("create" in path for path in podman.requested)


def find_hosts(environ: Mapping[str, str], state: Path) -> list[str]:
    """Return every host that a search tries, while none answers."""
    hosts = []

    def refuse(engine: DockerEngine) -> None:
        hosts.append(engine.host)
        raise EngineUnavailable("It is off.", next_step="Start it.")

    with pytest.raises(EngineUnavailable):
        connect.connect(environ, state, ask=refuse)
    return hosts


@pytest.fixture
def no_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the sockets of services below a folder of the test."""
    monkeypatch.setattr(connect, "DOCKER_SOCKET", tmp_path / "docker.sock")
    monkeypatch.setattr(connect, "SYSTEM_RUNTIME", tmp_path / "run")
    monkeypatch.setattr(connect, "SYSTEM_STATE", tmp_path / "system")
    monkeypatch.setattr(connect, "PROCESSES", tmp_path / "proc")


@pytest.mark.usefixtures("no_sockets")
def test_podmans_sockets_come_after_dockers(tmp_path: Path) -> None:
    for folder in ("run", "user"):
        (tmp_path / folder / "podman").mkdir(parents=True)
        (tmp_path / folder / "podman/podman.sock").touch()
    user = {"XDG_RUNTIME_DIR": f"{tmp_path}/user", "CONTAINER_HOST": "tcp://far:1"}
    sockets = ["tcp://far:1", *(f"unix://{tmp_path}/{folder}/podman/podman.sock" for folder in ("user", "run"))]

    docker = program(tmp_path / "bin", "docker", "echo unix:///here.sock")
    assert find_hosts({**docker, **user}, tmp_path) == ["unix:///here.sock", *sockets]
    assert find_hosts({**docker, "CONTAINER_HOST": "ssh://far"}, tmp_path) == ["unix:///here.sock", sockets[-1]]
    assert find_hosts({**docker, **user, "DOCKER_HOST": "tcp://named:1"}, tmp_path) == ["tcp://named:1"]


@pytest.mark.usefixtures("no_sockets")
def test_podmans_stand_in_for_docker_prints_no_host(tmp_path: Path) -> None:
    """`podman context inspect` of podman-docker succeeds silently (4.3.1, 5.4.2); the package links docker.sock."""
    docker = program(tmp_path / "bin", "docker", "exit 0")
    assert find_hosts(docker, tmp_path) == []
    (tmp_path / "docker.sock").touch()
    assert find_hosts(docker, tmp_path) == [f"unix://{tmp_path}/docker.sock"]


@pytest.mark.usefixtures("no_sockets")
def test_docker_names_the_host_if_a_context_is_chosen(tmp_path: Path) -> None:
    environ = {**program(tmp_path / "bin", "docker", "echo unix:///here.sock"), "HOME": str(tmp_path)}
    default = tmp_path / "docker.sock"
    default.touch()
    (tmp_path / ".docker").mkdir()
    config = tmp_path / ".docker/config.json"
    for text in (None, '{"auths": {}}'):
        if text:
            config.write_text(text)
        assert find_hosts(environ, tmp_path) == [f"unix://{default}"]
    assert find_hosts({**environ, "DOCKER_CONTEXT": "far"}, tmp_path) == ["unix:///here.sock"]
    config.write_text('{"currentContext": "far"}')
    assert find_hosts(environ, tmp_path) == ["unix:///here.sock"]
    assert find_hosts({**environ, "DOCKER_CONFIG": str(tmp_path)}, tmp_path) == [f"unix://{default}"]


@pytest.mark.usefixtures("no_sockets")
def test_podman_without_its_socket(tmp_path: Path) -> None:
    environ = program(tmp_path / "bin", "podman", "exit 0")
    with pytest.raises(EngineUnavailable) as caught:
        connect.connect({**environ, "PATH": str(tmp_path / "bin")}, tmp_path)
    assert str(caught.value) == (
        "No container engine answers on this machine. Start Podman's service (`systemctl --user enable --now "
        "podman.socket`; without systemd, `podman system service --time=0 &`), or Docker, or let "
        f"{INSTALL_ENGINE} set up an engine of tfimg's own."
    )


def test_status_describes_an_engine_that_cannot_build(engine: DockerEngine, podman: _Podman, tmp_path: Path) -> None:
    podman.rootless = True
    tfimg = CliRunner(home=tmp_path, services=Services(), environ={"DOCKER_HOST": engine.host})
    status = tfimg("engine", "status").succeeded()
    assert status.lines[:2] == [f"host {engine.host} (not started by tfimg)", "engine Podman 5.4.2, rootless"]
    assert status.lines[2].startswith(
        "builds no. `tfimg run`, `validate`, `publish --renew`, `pull` and `load` use it;"
    )
    found = tfimg("engine", "status", "--json").succeeded().json
    assert (found["engine"], found["version"], found["rootless"], found["builds"]) == ("Podman", "5.4.2", True, False)
    assert "is Podman 5.4.2, which has no BuildKit" in tfimg("engine", "up").refusal(10)


def test_doctor_names_podman(tfimg: CliRunner, environment: TestEnvironment) -> None:
    environment.docker = FakeEngine(device_support=toolkit(engine="Podman", version="5.4.2", rootless=True))
    findings = {finding["name"]: finding for finding in tfimg("doctor", "--json").documents[0]["findings"]}
    assert findings["engine"]["found"].startswith("Podman, which runs images and does not build them, responds at unix")


@pytest.fixture
def shared_engine(tmp_path: Path) -> PrivateEngine:
    """The folder of an engine of tfimg that another user has started; its socket is a file."""
    engine = PrivateEngine(tmp_path / "shared")
    engine.folder.mkdir(parents=True)
    engine.settings.touch()
    engine.socket.touch()
    return engine


@pytest.mark.usefixtures("no_sockets")
def test_the_engine_of_another_user_is_found_by_users_alone(
    tmp_path: Path, shared_engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "SYSTEM_STATE", shared_engine.folder.parent)
    docker = program(tmp_path / "bin", "docker", "exit 0")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert shared_engine.host in find_hosts(docker, tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert find_hosts(docker, tmp_path) == []


@pytest.mark.usefixtures("no_sockets")
def test_an_engine_of_any_state_folder_is_found_by_its_process(
    tmp_path: Path, shared_engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, words in (("7", ["dockerd", "--host", shared_engine.host, "--pidfile", "x"]), ("8", ["sleep"])):
        (tmp_path / "proc" / number).mkdir(parents=True)
        (tmp_path / "proc" / number / "cmdline").write_bytes("\0".join(words).encode())
    assert list(connect.list_shared_engines()) == [shared_engine.host]
    monkeypatch.setattr(connect, "SYSTEM_STATE", shared_engine.folder.parent)
    assert list(connect.list_shared_engines()) == [shared_engine.host]


@pytest.mark.usefixtures("no_sockets")
def test_a_closed_socket_decides_the_message(
    tmp_path: Path, shared_engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "may_use", lambda host: host != shared_engine.host)
    docker = program(tmp_path / "bin", "docker", f"echo {shared_engine.host}")

    def refuse(engine: DockerEngine) -> None:
        raise EngineUnavailable(f"{engine.host} is closed.", next_step="Join its group.")

    with pytest.raises(EngineUnavailable, match=rf"{shared_engine.host} is closed\. Join its group\."):
        connect.connect(docker, tmp_path, ask=refuse)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts an engine")
def test_up_starts_a_stopped_engine_that_docker_host_names(
    tfimg: CliRunner, environment: TestEnvironment, shared_engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `engine down`, DOCKER_HOST still has what `engine env` printed."""
    started = []

    def start(engine: PrivateEngine, _: object) -> FakeEngine:
        started.append(engine.folder)
        return FakeEngine()

    environment.docker = EngineUnavailable("It is off.", next_step="Start it.")
    monkeypatch.setattr("tfimg.cli.commands.engine.start", start)
    replace(tfimg, environ={**tfimg.environ, "DOCKER_HOST": shared_engine.host})("engine", "up").succeeded()
    assert started == [shared_engine.folder]
    other = replace(tfimg, environ={**tfimg.environ, "DOCKER_HOST": "unix:///var/run/docker.sock"})
    assert other("engine", "up").refusal(10) == "It is off. Start it."
    assert len(started) == 1


def test_a_daemon_that_starts_slowly_is_waited_for_and_speaks_for_itself(tmp_path: Path) -> None:
    """Its process file comes late on a busy disk; what an earlier daemon wrote to the log is not its reason."""
    engine = PrivateEngine(tmp_path)
    engine.folder.mkdir()
    engine.log.write_text("level=error msg=earlier\n")
    environ = program(tmp_path / "bin", "dockerd", "sleep 2.5; echo level=error msg=later; exit 1")
    environ["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    with pytest.raises(EngineSetupError, match=r"ended at once\. Its log says: level=error msg=later"):
        connect.start(engine, environ)
