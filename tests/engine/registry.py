"""A real registry on this machine's loopback: Debian's package of distribution, on our own base."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from tfimg.engine.docker import DockerEngine

DOCKERFILE = """\
FROM tfimg/base:bookworm-py3.11
RUN apt-get -q update && apt-get -q install -y --no-install-recommends docker-registry
RUN printf 'version: 0.1\\nstorage: {filesystem: {rootdirectory: /registry}}\\nhttp: {addr: ":5000"}\\n' >/config.yml
ENTRYPOINT ["docker-registry", "serve", "/config.yml"]
"""
"""No registry is needed to have one."""


@contextmanager
def registry(engine: DockerEngine, folder: Path) -> Iterator[str]:
    """HOST:PORT of an empty registry, for as long as the block lasts."""
    (folder / "Dockerfile").write_text(DOCKERFILE)
    docker("build", "--tag=tfimg-test/registry:1", str(folder), host=engine.host)
    testcontainers_config.ryuk_disabled = True  # its image would have to be pulled
    os.environ["DOCKER_HOST"] = engine.host
    try:
        with DockerContainer("tfimg-test/registry:1").with_exposed_ports(5000) as running:
            address = f"127.0.0.1:{running.get_exposed_port(5000)}"
            wait_for(f"http://{address}/v2/")
            yield address
    finally:
        del os.environ["DOCKER_HOST"]
        engine.remove("tfimg-test/registry:1")


def docker(*arguments: str, host: str) -> None:
    """Plain docker, as a person would use it."""
    line = ["docker", "--host", host, *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def wait_for(url: str, seconds: float = 30) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310
                return
        except OSError:
            assert time.monotonic() < deadline, url
            time.sleep(0.2)
