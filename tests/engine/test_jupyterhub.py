"""JupyterHub with dockerspawner and configurable-http-proxy starts our image as a user's server, in Chromium."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.chromium import Browser, browser
from support.docker_daemon import wait_until
from support.paths import ROOT
from support.registry_container import docker
from support.session import label
from tfimg.engine.docker import DockerEngine
from tfimg.recipe.lock import read_packages

from .conftest import IDENTIFIER, Built

pytestmark = [pytest.mark.full, pytest.mark.group("variants")]

PROXY = "configurable-http-proxy@4.6.3"
SPAWNER = "dockerspawner==14.0.0"

SECONDS = 180
"""Limit for each step, and for a kernel's first answer, which under load takes more than Jupyter's 60 s."""

SETTINGS = """\
import json
c = get_config()
given = json.load(open("given.json"))
c.JupyterHub.bind_url = "http://127.0.0.1:{}".format(given["ports"][0])
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_connect_url = "http://{}:{}".format(given["gateway"], given["ports"][1])
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{}".format(given["ports"][2])
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users = {"ann"}
c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.JupyterHub.db_url = "sqlite:///:memory:"
c.JupyterHub.cookie_secret = bytes(32)
c.DockerSpawner.image = given["image"]
c.DockerSpawner.remove = True
c.DockerSpawner.pull_policy = "never"
c.DockerSpawner.name_template = given["container"]
c.DockerSpawner.extra_create_kwargs = {"labels": given["labels"]}
c.Spawner.start_timeout = c.Spawner.http_timeout = given["seconds"]
c.Spawner.args = ["--MappingKernelManager.kernel_info_timeout={}".format(given["seconds"])]
c.JupyterHub.services = [{"name": "tests", "api_token": given["token"]}]
c.JupyterHub.load_roles = [
    {"name": "tests", "services": ["tests"], "scopes": ["admin:users", "admin:servers", "access:servers"]}
]
"""

CELL = (
    'import os, subprocess; os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"; import tensorflow as tf; '
    'shell = subprocess.run(["bash", "-lc", "command -v python"], capture_output=True, text=True).stdout.strip(); '
    'print(tf.__version__, int(tf.reduce_sum(tf.range(10))), shell, os.environ["JUPYTERHUB_USER"])'
)
"""One line: the editor indents what follows another."""

LAUNCHER = '.jp-LauncherCard[data-category="Notebook"]'
IDLE = '.jp-Notebook-ExecutionIndicator[data-status="idle"]'
EDITOR = ".jp-Notebook .jp-Cell .cm-content"
PROMPT = ".jp-Notebook .jp-Cell .jp-InputPrompt"
OUTPUT = ".jp-Notebook .jp-OutputArea-output pre"
"""Parts of JupyterLab's page."""


def _wait_for(tab: Browser, selector: str) -> str:
    """Wait for a part of the page; return its text. Shows the page where it does not come."""
    part = f"document.querySelector({json.dumps(selector)})"

    def is_there() -> bool:
        with suppress(AssertionError):  # between two pages there is none
            return bool(tab.ask(f"!!{part}"))
        return False

    try:
        wait_until(is_there, seconds=SECONDS)
    except AssertionError:
        pytest.fail(f"{selector} is not in {tab.ask('location.href')}: {tab.ask('document.body.innerText')[:2000]}")
    return str(tab.ask(f"{part}.innerText"))


def _run_cell(tab: Browser, url: str, code: str) -> str:
    """Log in as ann, which starts her server, and return what the first cell of a new notebook prints."""
    tab.open(f"{url}/hub/login", width=1280, height=900)
    _wait_for(tab, "#username_input")
    tab.ask("username_input.value = 'ann'; password_input.value = 'x'; document.querySelector('form').submit()")
    _wait_for(tab, LAUNCHER)
    tab.ask(f"document.querySelector({json.dumps(LAUNCHER)}).click()")
    _wait_for(tab, IDLE)

    def is_running() -> bool:
        """Write and run the cell again where JupyterLab has drawn the notebook anew meanwhile."""
        if _wait_for(tab, PROMPT).strip() != "[ ]:":
            return True
        tab.ask(f"document.querySelector({json.dumps(EDITOR)}).focus()")
        if _wait_for(tab, EDITOR).strip() != code:
            tab.send("Input.insertText", text=code)
        tab.press("Enter", 13, shift=True)
        return False

    wait_until(is_running, seconds=SECONDS)
    return _wait_for(tab, OUTPUT)


@dataclass(frozen=True, kw_only=True)
class _Hub:
    url: str
    token: str

    def send(self, method: str, path: str, *, token: bool = True) -> tuple[int, bytes]:
        headers = {"Authorization": f"token {self.token}"} if token else {}
        request = urllib.request.Request(f"{self.url}{path}", method=method, headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, b""
        except OSError:
            return 0, b""


@contextmanager
def _hub(engine: DockerEngine, folder: Path, image: str, container: str) -> Iterator[_Hub]:
    """Install and start a hub of the image's version; skip where an index of packages is not reached."""
    lock = (ROOT / "images/locks" / f"{IDENTIFIER}-jupyter" / "variant.txt").read_text()
    (version,) = (package.version for package in read_packages({"variant": lock}) if package.name == "jupyterhub")
    python = folder / "environment/bin/python"
    for command in (
        [sys.executable, "-m", "venv", str(folder / "environment")],
        [str(python), "-m", "pip", "install", "--quiet", f"jupyterhub=={version}", SPAWNER],
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), PROXY],
    ):
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{' '.join(command[1:])} failed: {done.stderr[-300:]}")
    gateway = engine.client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    first = 20000 + secrets.randbelow(10000)
    token = secrets.token_hex(24)
    given = {
        "ports": [first, first + 1, first + 2], "gateway": gateway, "image": image, "container": container,
        "labels": label(), "token": token, "seconds": SECONDS,
    }  # fmt: skip
    (folder / "given.json").write_text(json.dumps(given))
    (folder / "settings.py").write_text(SETTINGS)
    env = {**os.environ, "DOCKER_HOST": engine.host, "PATH": f"{folder}/node_modules/.bin:{os.environ['PATH']}"}
    with (folder / "log").open("w") as log:
        child = subprocess.Popen(
            [python, "-m", "jupyterhub", "-f", "settings.py"], cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            hub = _Hub(url=f"http://127.0.0.1:{first}", token=token)
            wait_until(lambda: child.poll() is not None or hub.send("GET", "/hub/api/")[0] == 200)
            assert child.poll() is None, (folder / "log").read_text()
            yield hub
        finally:
            child.terminate()
            child.wait(60)


def test_jupyterhub_starts_our_image_and_a_cell_imports_tensorflow(
    jupyter: Built, engine: DockerEngine, tmp_path: Path
) -> None:
    container = f"tfimg-test-{secrets.token_hex(4)}"
    with _hub(engine, tmp_path, jupyter.name, container) as hub:
        with browser(tmp_path / "profile") as tab:
            printed = _run_cell(tab, hub.url, CELL)
        assert printed.strip() == "2.15.1 45 /opt/tensorflow/bin/python ann"
        assert hub.send("GET", "/user/ann/api/status")[0] == 200
        assert hub.send("GET", "/user/ann/api/status", token=False)[0] == 403
        health = docker("exec", container, "tfimg-jupyter-health", host=engine.host)
        assert health == ""
        assert hub.send("DELETE", "/hub/api/users/ann/server")[0] in {202, 204}
        wait_until(lambda: docker("ps", "--all", "--quiet", f"--filter=name={container}", host=engine.host) == "")
