"""Docker daemons beside the one under test, and questions to a daemon."""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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

    Without a namespace, a daemon that has no bridge deletes the bridge of the one that runs (moby 26.1:
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


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A namespace that is reached at `address`, and reaches us at `host`."""

    name: str
    host: str
    address: str

    def program(self, program: str, folder: Path) -> str:
        """A program that runs another one in there. Not `ip netns exec`: that mounts a /sys without control groups."""
        start = folder / f"in-{self.name}"
        start.write_text(f'#!/bin/sh\nexec nsenter --net=/run/netns/{self.name} {program} "$@"\n')
        start.chmod(0o755)
        return str(start)

    def unplug(self) -> None:
        """Pull the cable at the far end: nothing answers, not even to refuse, and the way there stays."""
        ip("-netns", self.name, "link", "set", "eth0", "down")


def ip(*arguments: str) -> str:
    """Plain `ip`."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


_numbers = itertools.count(1)


@contextmanager
def machine() -> Iterator[Machine]:
    """One for as long as the block lasts, in a private network of two addresses that no other worker uses."""
    number, worker = next(_numbers), os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    name, cable = f"tfimg-{os.getpid()}-{number}", f"tfi{os.getpid()}n{number}"
    network = f"10.{213 + int(worker)}.{number}"
    try:
        ip("netns", "add", name)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", f"{network}.1/30", "dev", cable)
        ip("link", "set", cable, "up")
        ip("-netns", name, "address", "add", f"{network}.2/30", "dev", "eth0")
        ip("-netns", name, "link", "set", "eth0", "up")
        ip("-netns", name, "link", "set", "lo", "up")
        yield Machine(name=name, host=f"{network}.1", address=f"{network}.2")
    finally:
        # Whatever still runs in there was started in there, by us: an engine that was killed leaves some behind.
        for pid in subprocess.run(
            ["ip", "netns", "pids", name], capture_output=True, text=True, check=False
        ).stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "link", "delete", cable], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


UPGRADE = b"POST /grpc HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def bridge(engine: Path, where: Path) -> Iterator[None]:
    """Listen at the socket `where` for as long as the block lasts, for the engine at the socket `engine`."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(where))
        listener.listen()
        threading.Thread(target=_serve, args=(listener, engine), daemon=True).start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            where.unlink()


def _serve(listener: socket.socket, engine: Path) -> None:
    with suppress(OSError):  # closed: the block has ended
        while True:
            caller, _ = listener.accept()
            threading.Thread(target=_join, args=(caller, engine), daemon=True).start()


def _join(caller: socket.socket, engine: Path) -> None:
    with caller, socket.socket(socket.AF_UNIX) as callee, suppress(OSError):
        callee.connect(str(engine))
        callee.sendall(UPGRADE)
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += callee.recv(1)
        back = threading.Thread(target=_copy, args=(callee, caller), daemon=True)
        back.start()
        _copy(caller, callee)
        back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
