"""JupyterHub with dockerspawner and configurable-http-proxy starts our image as a user's server."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

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

SETTINGS = """\
import json
c = get_config()
given = json.load(open("given.json"))
c.JupyterHub.bind_url = "http://127.0.0.1:{}".format(given["ports"][0])
c.JupyterHub.hub_bind_url = c.JupyterHub.hub_connect_url = "http://{}:{}".format(given["gateway"], given["ports"][1])
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{}".format(given["ports"][2])
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.JupyterHub.db_url = "sqlite:///:memory:"
c.JupyterHub.cookie_secret = bytes(32)
c.DockerSpawner.image = given["image"]
c.DockerSpawner.remove = True
c.DockerSpawner.pull_policy = "never"
c.DockerSpawner.name_template = given["container"]
c.DockerSpawner.extra_create_kwargs = {"labels": given["labels"]}
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.JupyterHub.services = [{"name": "tests", "api_token": given["token"]}]
c.JupyterHub.load_roles = [
    {"name": "tests", "services": ["tests"], "scopes": ["admin:users", "admin:servers", "access:servers"]}
]
"""

EXECUTE = """\
import asyncio, json, sys, uuid
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

url, token, code = sys.argv[1:]

async def main():
    connection = await websocket_connect(HTTPRequest(url, headers={"Authorization": "token " + token}))
    header = {"msg_id": uuid.uuid4().hex, "session": uuid.uuid4().hex, "username": "", "version": "5.3"}
    message = {"header": {**header, "msg_type": "execute_request"}, "parent_header": {}, "metadata": {},
               "channel": "shell", "content": {"code": code, "silent": False}}
    await connection.write_message(json.dumps(message))
    while True:
        answer = json.loads(await asyncio.wait_for(connection.read_message(), 120))
        if answer["msg_type"] == "stream" and answer["content"]["name"] == "stdout":
            print(answer["content"]["text"], end="")
        if answer["msg_type"] == "error":
            sys.exit("\\n".join(answer["content"]["traceback"]))
        if answer["msg_type"] == "execute_reply":
            return

asyncio.run(main())
"""

CELL = """\
import os, subprocess
import tensorflow as tf
terminal = subprocess.run(["bash", "-lc", "command -v python"], capture_output=True, text=True).stdout.strip()
print(tf.__version__, int(tf.reduce_sum(tf.range(10))), terminal, os.environ["JUPYTERHUB_USER"])
"""


@dataclass(frozen=True, kw_only=True)
class _Hub:
    python: Path
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
        "labels": label(), "token": token,
    }  # fmt: skip
    (folder / "given.json").write_text(json.dumps(given))
    (folder / "settings.py").write_text(SETTINGS)
    env = {**os.environ, "DOCKER_HOST": engine.host, "PATH": f"{folder}/node_modules/.bin:{os.environ['PATH']}"}
    with (folder / "log").open("w") as log:
        child = subprocess.Popen(
            [python, "-m", "jupyterhub", "-f", "settings.py"], cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            hub = _Hub(python=python, url=f"http://127.0.0.1:{first}", token=token)
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
        assert hub.send("POST", "/hub/api/users/ann")[0] == 201
        assert hub.send("POST", "/hub/api/users/ann/server")[0] in {201, 202}
        wait_until(lambda: hub.send("GET", "/user/ann/api/status")[0] == 200)
        assert hub.send("GET", "/user/ann/api/status", token=False)[0] == 403
        code, kernel = hub.send("POST", "/user/ann/api/kernels")
        assert code == 201
        channels = f"{hub.url.replace('http', 'ws')}/user/ann/api/kernels/{json.loads(kernel)['id']}/channels"
        ran = subprocess.run(
            [hub.python, "-c", EXECUTE, channels, hub.token, CELL], capture_output=True, text=True, check=False
        )
        assert ran.stdout == "2.15.1 45 /opt/tensorflow/bin/python ann\n", ran.stderr
        health = docker("exec", container, "tfimg-jupyter-health", host=engine.host)
        assert health == ""
        assert hub.send("DELETE", "/hub/api/users/ann/server")[0] in {202, 204}
        wait_until(lambda: docker("ps", "--all", "--quiet", f"--filter=name={container}", host=engine.host) == "")
