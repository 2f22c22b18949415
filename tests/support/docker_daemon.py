"""Docker daemons beside the one under test, and questions to a daemon."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tfimg.core.process import start_daemon
from tfimg.engine.docker import DockerEngine


def find_dockerd() -> str:
    """Return the path of the installed daemon."""
    found = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert found, "dockerd is not installed"
    return found


@contextmanager
def daemon(folder: Path, dockerd: str, *options: str) -> Iterator[str]:
    """Start another daemon in a network namespace of its own; yield its DOCKER_HOST.

    Without a namespace, a daemon that is told to have no bridge deletes the bridge of the one that runs (moby 26.1:
    `docker0`). Its mounts are its own too, so that none is left behind.
    """
    # Sockets lie apart from `folder`: the path of one has 104 characters at most, and pytest's folders are deep.
    with tempfile.TemporaryDirectory(prefix="tfimg-", ignore_cleanup_errors=True) as sockets:
        host = f"unix://{sockets}/docker.sock"
        pid = start_daemon(
            [
                "unshare", "--net", "--mount", dockerd, "--host", host,
                "--data-root", f"{folder}/data", "--exec-root", f"{sockets}/exec",
                "--pidfile", f"{folder}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false", *options,
            ],
            log=folder / "log",
        )  # fmt: skip
        try:
            wait_until(lambda: Path(sockets, "docker.sock").exists() and _responds(host), folder / "log")
            yield host
        finally:
            with suppress(ProcessLookupError):  # it may have ended by itself
                os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not Path(f"/proc/{pid}").exists(), folder / "log")


def _responds(host: str) -> bool:
    command = ["docker", "--host", host, "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def wait_until(condition: Callable[[], object], log: Path | None = None, seconds: float = 60) -> None:
    """Wait for a condition, at most `seconds`; show the end of the log when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-2000:] if log else "the condition did not come true"
        time.sleep(0.1)


def image_tags(engine: DockerEngine) -> Sequence[str]:
    """Return every tag in the engine's store."""
    # `docker`'s own lists fail when another test removes an image meanwhile.
    return sorted(name for image in engine.list_images() for name in image.names)


def container_ids(engine: DockerEngine) -> Sequence[str]:
    """Return the id of every container, running or not."""
    return [container.id or "" for container in engine.client.containers.list(all=True)]
