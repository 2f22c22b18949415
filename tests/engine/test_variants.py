"""The images of variants: their layers, and their servers as other programs reach them."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.chromium import Browser, browser
from support.cli import start_tfimg
from support.containers import container, run_container
from support.docker_daemon import wait_until
from support.registry_container import docker
from tfimg.engine.docker import DockerEngine

from .conftest import IDENTIFIER, Built, _built

pytestmark = [pytest.mark.full, pytest.mark.group("variants")]

WRITE_RUN = """\
import tensorflow as tf
with tf.summary.create_file_writer("/home/tensorflow/work/runs/first").as_default():
    for step in range(20):
        tf.summary.scalar("descent", 1 / (1 + step), step)
"""

SSH = """\
umask 077
printf '%s\\n' "$KEY" >/tmp/key
exec ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/tmp/hosts -o LogLevel=ERROR \
    -p 2222 "$@"
"""


@pytest.fixture(scope="session")
def dev(engine: DockerEngine) -> Built:
    return _built(f"{IDENTIFIER}-dev", "--tf", "2.15", "--python", "3.11", "--variant", "dev")


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path / "profile") as found:
        yield found


def outcomes(built: Built) -> dict[str, str]:
    return {result["check"]: result["outcome"] for result in built.report["results"]}


def status(url: str, token: str | None = None) -> int:
    """HTTP status of an address; 0 without an answer."""
    request = urllib.request.Request(url, headers={"Authorization": f"token {token}"} if token else {})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_variants_share_the_layers_of_the_runtime(
    built: Built, jupyter: Built, dev: Built, engine: DockerEngine
) -> None:
    lowest, middle, highest = (
        [layer.digest for layer in engine.read_image(one.name).layers] for one in (built, jupyter, dev)
    )
    own = 2  # the suite with the facts, and the work directory
    assert middle[: len(lowest) - own] == lowest[:-own]
    assert highest[: len(lowest) - own] == lowest[:-own]
    packages = len(lowest) - own + 1
    assert highest[:packages] == middle[:packages], "the packages of JupyterLab with their byte code"


def test_the_suite_checks_notebooks_and_tools(built: Built, jupyter: Built, dev: Built) -> None:
    notebooks = {"notebook.server": "passed", "notebook.kernel": "passed"}
    tools = {"dev.tools": "passed", "dev.custom_op": "passed", "dev.sshd": "passed"}
    for image, expected in ((built, {}), (jupyter, notebooks), (dev, notebooks | tools)):
        found = {name: reported for name, reported in outcomes(image).items() if name.startswith(("notebook.", "dev."))}
        assert found == expected


def test_the_server_answers_to_its_token_for_any_user_with_a_read_only_root(
    jupyter: Built, engine: DockerEngine
) -> None:
    with container(engine, jupyter.name, user="12345", read_only=True) as prepared:
        prepared.with_tmpfs_mount("/tmp")  # noqa: S108
        prepared.with_env("JUPYTER_TOKEN", "right").ports = {"8888/tcp": ("127.0.0.1", None)}
        running = prepared.start().get_wrapped_container()
        running.reload()
        (published,) = running.attrs["NetworkSettings"]["Ports"]["8888/tcp"]
        assert published["HostIp"] == "127.0.0.1"
        address = f"http://127.0.0.1:{published['HostPort']}"
        wait_until(lambda: status(f"{address}/api") == 200)
        answers = [status(f"{address}/api/status", token) for token in ("right", None, "wrong")]
        assert answers == [200, 403, 403]
        assert running.exec_run("tfimg-jupyter-health").exit_code == 0


@pytest.mark.parametrize("home", ["/home/jovyan", "/home/tensorflow"])
def test_kubeflow_s_path_and_an_empty_volume_as_home(
    home: str, jupyter: Built, engine: DockerEngine, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    with container(engine, jupyter.name) as prepared:
        prepared.with_volume_mapping(str(volume), home, "rw").with_env("NB_PREFIX", "/notebook/ann/first")
        prepared.with_env("JUPYTER_TOKEN", "right").with_exposed_ports(8888)
        running = prepared.start().get_wrapped_container()
        address = f"http://127.0.0.1:{prepared.get_exposed_port(8888)}"
        below = f"{address}/notebook/ann/first"
        wait_until(lambda: status(f"{below}/api") == 200)
        assert (status(f"{address}/api"), status(f"{below}/api/status")) == (404, 403)
        with urllib.request.urlopen(f"{below}/lab?token=right", timeout=20) as page:  # noqa: S310
            framing = (page.headers["Content-Security-Policy"].split(";")[0], page.headers["X-Frame-Options"])
        assert framing == ("frame-ancestors 'self'", None), "Kubeflow's dashboard has the notebook's host"
        save = urllib.request.Request(  # noqa: S310
            f"{below}/api/contents/saved.txt", b'{"type": "file", "format": "text", "content": "x"}',
            {"Authorization": "token right"}, method="PUT",
        )  # fmt: skip
        with urllib.request.urlopen(save, timeout=20) as response:  # noqa: S310
            assert response.status == 201
        assert (volume / "saved.txt").read_text() == "x"
        assert running.exec_run("tfimg-jupyter-health").exit_code == 0
        assert b"lost with the container" not in running.logs()


def test_notebooks_that_no_volume_keeps_are_pointed_out(jupyter: Built, engine: DockerEngine, tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir(0o755)
    with container(engine, jupyter.name) as prepared:
        prepared.with_volume_mapping(str(tmp_path / "volume"), "/home/tensorflow", "rw")
        running = prepared.start().get_wrapped_container()
        line = b"may not write to /home/tensorflow, so files in /tmp/home-1000 are lost with the container"
        wait_until(lambda: line in running.logs())


def test_jupyterlab_neither_asks_for_news_nor_looks_for_updates(jupyter: Built, engine: DockerEngine) -> None:
    """The question covers a corner of the page at each start, and the image's packages are locked."""
    with container(engine, jupyter.name) as prepared:
        prepared.with_env("JUPYTER_TOKEN", "right").with_exposed_ports(8888)
        prepared.start()
        address = f"http://127.0.0.1:{prepared.get_exposed_port(8888)}"
        wait_until(lambda: status(f"{address}/api") == 200)
        plugin = f"{address}/lab/api/settings/@jupyterlab/apputils-extension:notification?token=right"
        with urllib.request.urlopen(plugin, timeout=20) as response:  # noqa: S310
            properties = json.load(response)["schema"]["properties"]
    assert (properties["fetchNews"]["default"], properties["checkForUpdates"]["default"]) == ("false", False)


def test_jupyter_serves_a_folder_and_tensorboard_until_an_interrupt(
    jupyter: Built, engine: DockerEngine, tmp_path: Path, chromium: Browser
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    work.chmod(0o777)
    (work / "own.txt").write_text("of the machine")
    with start_tfimg("jupyter", jupyter.name, "-v", str(work), "--json", env={}) as child:
        assert child.stdout is not None
        started = json.loads(child.stdout.readline())
        try:
            address, token = f"http://127.0.0.1:{started['port']}", started["token"]
            assert started["url"] == f"{address}/lab?token={token}"
            assert status(f"{address}/api/contents/own.txt", token) == 200
            assert status(f"{address}/api/contents/own.txt") == 403
            listed = docker("inspect", "--format={{json .Args}}", started["container"], host=engine.host)
            assert token not in listed
            docker("exec", started["container"], "python", "-c", WRITE_RUN, host=engine.host)
            chromium.open(f"{address}/tensorboard/?token={token}#timeseries", width=1200, height=800)
            _wait_for(chromium, "document.body.innerText.includes('descent')")
            chromium.open(f"{started['url']}&reset", width=1200, height=800)
            _wait_for(chromium, "document.body.innerText.includes('own.txt')")
        finally:
            child.send_signal(signal.SIGINT)  # also of a test that fails: a killed tfimg leaves its container
        assert child.wait(60) == 0
    assert docker("ps", "--all", "--quiet", f"--filter=name={started['container']}", host=engine.host) == ""


def test_sigterm_stops_it_and_the_container_of_a_killed_one_is_found_by_its_label(
    jupyter: Built, engine: DockerEngine
) -> None:
    def found() -> list[str]:
        return docker("ps", "--all", "--quiet", "--filter=label=tfimg.notebook", host=engine.host).split()

    with start_tfimg("jupyter", jupyter.name, env={}) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("http://127.0.0.1:")
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=60)
    assert child.returncode == 0, said
    assert said.endswith("Stopped; the container is removed.\n")
    assert found() == []
    with start_tfimg("jupyter", jupyter.name, env={}) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
    docker("stop", *found(), host=engine.host)
    wait_until(lambda: not found())


def _wait_for(page: Browser, expression: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not page.ask(expression):
        assert time.monotonic() < deadline, page.ask("document.body.innerText")[:2000]
        time.sleep(0.5)


def test_a_shell_has_the_compilers(dev: Built) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tfimg", "shell", dev.name], input="g++ --version && git --version\n",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "git version" in done.stdout, "g++" in done.stdout) == (0, True, True), done.stderr


@pytest.fixture(scope="session")
def key() -> tuple[str, str]:
    """A private and a public key, as OpenSSH writes them."""
    made = Ed25519PrivateKey.generate()
    private = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = made.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode().strip(), public.decode()


def test_ssh_accepts_the_key_and_nothing_else(dev: Built, engine: DockerEngine, key: tuple[str, str]) -> None:
    private, public = key
    with container(engine, dev.name) as prepared:
        prepared.with_env("AUTHORIZED_KEYS", public).with_command(["tfimg-sshd"])
        server = prepared.start().get_wrapped_container()

        def login(*words: str) -> Any:
            return run_container(
                engine, dev.name, "sh", "-c", SSH, "ssh", *words,
                env={"KEY": private}, network_mode=f"container:{server.id}",
            )  # fmt: skip

        program = ("tensorflow@127.0.0.1", "python -c 'import tensorflow as tf; print(tf.__version__)'")
        wait_until(lambda: login("-i", "/tmp/key", "tensorflow@127.0.0.1", "true").status == 0)  # noqa: S108
        ended = login("-i", "/tmp/key", *program)  # noqa: S108
        assert (ended.status, ended.stdout) == (0, "2.15.1\n"), ended.stderr
        shell = login("-i", "/tmp/key", "tensorflow@127.0.0.1", "bash -lc 'command -v python'")  # noqa: S108
        assert shell.stdout == "/opt/tensorflow/bin/python\n"
        refused = login("-o", "PreferredAuthentications=password,keyboard-interactive", *program)
        assert (refused.status, refused.stdout) == (255, "")
        assert refused.stderr.strip().endswith("Permission denied (publickey).")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "no key may log in. Start the container with -e AUTHORIZED_KEYS="),
        ({"env": {"AUTHORIZED_KEYS": "secret"}}, "has no public key. Pass the line of a file"),
        ({"user": "12345", "env": {"AUTHORIZED_KEYS": "x"}}, "the user 12345 has no entry in /etc/passwd"),
    ],
)
def test_sshd_refuses_to_start_without_a_key(
    dev: Built, engine: DockerEngine, settings: dict[str, Any], reason: str
) -> None:
    ended = run_container(engine, dev.name, "tfimg-sshd", **settings)
    assert (ended.status, reason in ended.stderr) == (2, True), ended.stderr


def test_a_volume_at_a_folder_of_the_home_belongs_to_the_user(dev: Built, engine: DockerEngine) -> None:
    """Without the folder, the volume would be root's."""
    volume = "tfimg-test-pip-cache"
    mount = f"--volume={volume}:/home/tensorflow/.cache/pip"
    try:
        command = "cd ~/.cache/pip && touch x && stat -c %u:%g:%a ."
        written = docker("run", "--rm", mount, dev.name, "sh", "-c", command, host=engine.host)
        assert written.split() == ["1000:0:775"]
    finally:
        docker("volume", "rm", volume, host=engine.host)


def test_no_host_key_is_part_of_the_image(dev: Built, engine: DockerEngine) -> None:
    ended = run_container(engine, dev.name, "sh", "-c", "ls /etc/ssh", user="0")
    assert "ssh_host" not in ended.stdout
    labels = engine.read_image(dev.name).labels
    assert json.loads(labels["devcontainer.metadata"])[0]["remoteUser"] == "tensorflow"
