"""`tfimg jupyter` and `tfimg shell`: which image, which port and user, docker's arguments, and every way to end."""

import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from support.cli import CliRunner, assert_refused
from support.environment import TestEnvironment
from support.hosts import make_host, with_gpus
from support.memory_engine import FakeEngine, stored_image, toolkit
from support.programs import program
from tfimg.core.errors import EngineUnavailable, MissingVariant, NotebookFailed, PortInUse, UnsuitableHost, UsageError
from tfimg.engine.interface import LocalImage
from tfimg.host.jupyter import Notebook, choose_port, find_newest, map_user, plan_notebook, serve
from tfimg.host.run import RunOptions
from tfimg.host.survey import TargetHost
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec, with_variant
from tfimg.recipe.labels import IDENTIFIER_LABEL, VARIANT_LABEL

CPU, TPU = "2.15.1-cpu-py3.11", "2.20.0-tpu-py3.11"

SERVER = """\
import http.server, os, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers.get("Authorization") == "token " + os.environ["JUPYTER_TOKEN"]
        self.send_response(200 if known else 403)
        self.end_headers()

    def log_message(self, *words):
        pass

port = sys.argv[sys.argv.index("--publish") + 1].split(":")[1]
print("[I] serving", file=sys.stderr, flush=True)
http.server.HTTPServer(("127.0.0.1", int(port)), Answer).serve_forever()
"""


@dataclass(frozen=True)
class Docker:
    """A `docker` that serves what a container would; `calls` are its command lines."""

    folder: Path

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def become(self, script: str) -> dict[str, str]:
        """Let `docker run` be another script; return an environment that finds it."""
        lines = f'echo "$@" >> {self.folder}/calls\ncase $1 in\n(run) {script} ;;\nesac'
        return program(self.folder, "docker", lines)


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    found = Docker(tmp_path / "bin")
    found.folder.mkdir()
    (found.folder / "server.py").write_text(SERVER)
    found.become(f'exec {sys.executable} {found.folder}/server.py "$@"')
    return found


def image(name: str, created: int, variant: str | None) -> LocalImage:
    labels = {VARIANT_LABEL: variant} if variant else {}
    return LocalImage(
        digest=f"sha256:{created}", names=(f"{name}-long", name), labels=labels, content="", unpacked_bytes=1,
        compressed_bytes=1, created=created,
    )  # fmt: skip


def test_the_newest_image_of_a_variant_is_found_by_its_shortest_name() -> None:
    images = [image("old", 1, "dev"), image("new", 3, "jupyter"), image("runtime", 5, None), image("slim", 6, "slim")]
    assert find_newest(images, ("jupyter", "dev")) == "new"
    assert find_newest(images, ("dev",)) == "old"
    with pytest.raises(MissingVariant, match="no image of variant jupyter or dev") as refused:
        find_newest([image("runtime", 5, None), replace(image("x", 1, "dev"), names=())], ("jupyter", "dev"))
    assert "`tfimg build --tf 2.15 --variant jupyter`" in refused.value.next_step


def test_a_free_port_is_found_and_one_in_use_is_refused() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"Port {port} of 127\.0\.0\.1 is in use.*--port"):
            choose_port(port)
    assert choose_port(port) == port
    assert 1024 <= choose_port(None) < 65536


def test_a_folder_of_root_and_what_is_no_usable_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"-v /: the folder belongs to root.*`chown 1000 /`"):
        map_user(Path("/"), toolkit())
    with pytest.raises(UsageError, match="No such file or directory"):
        map_user(tmp_path / "missing", toolkit())
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="it is not a folder"):
        map_user(tmp_path / "file", toolkit())
    (tmp_path / "a:b").mkdir()
    (tmp_path / "a:b").chmod(0o777)
    with pytest.raises(UsageError, match="a:b is not a usable folder: its path has a colon"):
        map_user(tmp_path / "a:b", toolkit())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_its_owner_may_not_write_to_is_refused(tmp_path: Path) -> None:
    """JupyterLab would take a folder in the container, whose files are removed at the end."""
    os.chown(tmp_path, 1000, 1000)
    tmp_path.chmod(0o555)
    with pytest.raises(UsageError, match=rf"-v {tmp_path}: its owner may not write to it. `chmod u\+w {tmp_path}`"):
        map_user(tmp_path, toolkit())


Plan = Callable[..., str]


@pytest.fixture
def plan(matrix: Matrix, named: Callable[[str], ImageSpec]) -> Plan:
    """The arguments of `docker run`, as a line, for an identifier's notebook on port 5."""

    def planned(identifier: str, folder: Path | None = None, **engine: Any) -> str:
        spec = with_variant(named(identifier), "jupyter", matrix.variants)
        target_host = TargetHost(matrix=matrix, specs=(spec,), host=with_gpus(), toolkit=toolkit(**engine))
        notebook = Notebook(image="mine", container="c", port=5, token="secret", folder=folder)
        return " ".join(plan_notebook(notebook, spec, RunOptions(), target_host).argv)

    return planned


def test_the_port_is_of_loopback_the_token_is_no_argument_and_a_folder_is_the_work_folder(
    plan: Plan, tmp_path: Path
) -> None:
    expected = "docker run --rm --name c --label tfimg.notebook --env JUPYTER_TOKEN --publish 127.0.0.1:5:8888 mine"
    assert plan(CPU) == expected
    gpu = plan("2.15.1-cuda12.2-py3.11", runtimes=("nvidia",))
    assert "--gpus all --ulimit memlock=-1 --shm-size 1g --name c " in gpu
    tmp_path.chmod(0o777)
    assert f" --volume {tmp_path}:/home/tensorflow/work mine" in plan(CPU, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_rootless_engine_shows_a_folder_as_that_of_the_image_s_user(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image's user is another user of the machine there, who may not write to the folder."""
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    for owner in (1000, 1234):
        os.chown(tmp_path, owner, owner)
        tmp_path.chmod(0o755)
        message = rf"rootless engine.* folder of user {owner}\. .*`chmod o\+rwx {tmp_path}`"
        with pytest.raises(UsageError, match=message):
            plan(CPU, tmp_path, rootless=True)
    line = plan(CPU, tmp_path, rootless=True, engine="Podman")
    assert f" --volume {tmp_path}:/home/tensorflow/work --userns keep-id:uid=1000,gid=1000 mine" in line
    tmp_path.chmod(0o777)
    assert f" --volume {tmp_path}:/home/tensorflow/work mine" in plan(CPU, tmp_path, rootless=True)


def test_on_a_tpu_machine_the_server_listens_on_loopback_itself(plan: Plan) -> None:
    line = plan(TPU)
    assert "--network host" in line
    assert "--publish" not in line
    assert line.endswith("--env JUPYTER_PORT=5 mine tfimg-jupyter --ServerApp.ip=127.0.0.1")


def test_an_engine_on_another_machine_is_refused(plan: Plan) -> None:
    with pytest.raises(UnsuitableHost, match=r"tcp://far:2376 is on another machine.*`ssh -L`"):
        plan(CPU, host="tcp://far:2376")


@pytest.fixture
def notebook() -> Notebook:
    return Notebook(image="mine", container="c", port=choose_port(None), token="secret")


def ran(
    notebook: Notebook, environ: dict[str, str], *, seconds: float = 60, clock: Iterator[float] | None = None
) -> None:
    argv = ["docker", "run", "--publish", f"127.0.0.1:{notebook.port}:8888", "mine"]
    ticks = clock or count()

    def interrupt() -> None:
        raise KeyboardInterrupt

    serve(notebook, argv, environ, on_ready=interrupt, clock=lambda: next(ticks), seconds=seconds)


def test_an_interrupt_stops_the_server_and_removes_the_container(notebook: Notebook, docker: Docker) -> None:
    environ = {"PATH": f"{docker.folder}:{os.defpath}"}
    with pytest.raises(KeyboardInterrupt):
        ran(notebook, environ)
    assert docker.calls[-1] == "rm --force c"
    assert choose_port(notebook.port) == notebook.port, "nothing listens any more"


def test_a_server_that_ends_before_it_answers_is_quoted(notebook: Notebook, docker: Docker) -> None:
    with pytest.raises(NotebookFailed) as failed:
        ran(notebook, docker.become('echo "port is already allocated" >&2; exit 125'))
    assert failed.value.what == (
        "JupyterLab in mine ended with status 125 before it answered. Its last lines:\n  port is already allocated\n"
    )
    assert docker.calls[-1] == "rm --force c"


def test_a_server_that_does_not_answer_is_given_up(notebook: Notebook, docker: Docker) -> None:
    with pytest.raises(NotebookFailed, match=r"did not answer within 3 seconds\. Its last lines:\n  waiting\n"):
        ran(notebook, docker.become("echo waiting >&2; exec sleep 60"), seconds=3)
    assert docker.calls[-1] == "rm --force c"


def test_without_the_docker_command(notebook: Notebook, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="`docker` command is not installed"):
        ran(notebook, {"PATH": str(tmp_path)})


class Interrupted(TestEnvironment):
    """A user who looks at the page, and then presses Ctrl-C."""

    status = 0

    def open_browser(self, url: str) -> bool:
        address, token = url.split("/lab?token=")
        requested = urllib.request.Request(f"{address}/api/status", headers={"Authorization": f"token {token}"})  # noqa: S310
        self.status = urllib.request.urlopen(requested).status  # noqa: S310
        signal.raise_signal(signal.SIGINT)
        return True


@pytest.fixture
def environment() -> TestEnvironment:
    """An engine with a runtime image and one with notebooks."""
    labels = {IDENTIFIER_LABEL: f"{CPU}-jupyter", VARIANT_LABEL: "jupyter"}
    names = {"cpu": stored_image("sha256:1", identifier=CPU), "lab": stored_image("sha256:2", labels=labels)}
    return Interrupted(docker=FakeEngine(names=names), host=make_host())


@pytest.fixture
def in_path(tfimg: CliRunner, docker: Docker) -> CliRunner:
    return replace(tfimg, environ={"PATH": f"{docker.folder}:{os.defpath}"})


def test_jupyter_prints_its_address_and_ends_well_with_an_interrupt(
    in_path: CliRunner, environment: Interrupted, docker: Docker
) -> None:
    ended = in_path("jupyter", "--open").succeeded()
    assert ended.stdout.startswith("http://127.0.0.1:")
    assert environment.status == 200
    assert "Starting JupyterLab of lab" in ended.stderr
    assert ended.stderr.endswith("Stopped; the container is removed.\n")
    token = ended.stdout.strip().partition("token=")[2]
    assert len(token) == 48
    assert not any(token in call for call in docker.calls)


def test_jupyter_as_json_is_one_document(in_path: CliRunner) -> None:
    document = in_path("jupyter", "lab", "--open", "--json").succeeded().json
    assert set(document) == {"url", "token", "image", "container", "port"}
    assert document["url"] == f"http://127.0.0.1:{document['port']}/lab?token={document['token']}"


def test_an_interrupt_before_the_server_answers_is_one(in_path: CliRunner, docker: Docker) -> None:
    docker.become("kill -INT $PPID; exec sleep 60")
    assert in_path("jupyter").code == 130
    assert docker.calls[-1].startswith("rm --force tfimg-jupyter-")


def test_jupyter_of_an_image_without_it_names_the_build(in_path: CliRunner) -> None:
    ended = in_path("jupyter", "cpu")
    assert_refused(ended, code=3, says="variant runtime, and has no JupyterLab")
    assert "`tfimg build --tf 2.15.1 --python 3.11 --device cpu --variant jupyter`" in ended.stderr


def test_jupyter_in_a_port_that_is_in_use(in_path: CliRunner) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        ended = in_path("jupyter", "--port", str(listener.getsockname()[1]))
    assert_refused(ended, code=14, says="is in use")
    too_large = "'70000' is not a positive number of at most 65535"
    assert_refused(in_path("jupyter", "--port", "70000"), code=2, says=too_large)


def test_shell_becomes_bash_in_the_image_and_without_one_needs_variant_dev(
    tfimg: CliRunner, environment: Interrupted
) -> None:
    assert tfimg("shell", "cpu", "-w", "/b").code == environment.docker_status
    ((argv, _),) = environment.handed_over
    assert " ".join(argv[3:]) == "--interactive --workdir /b cpu bash"
    ended = tfimg("shell")
    assert_refused(ended, code=3, says="no image of variant dev")
    assert "`tfimg build --tf 2.15 --variant dev`" in ended.stderr
