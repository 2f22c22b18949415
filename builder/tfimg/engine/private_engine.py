"""The private engine of tfimg: install its packages, start and stop its daemon. It needs no systemd."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfimg.core.errors import EngineSetupError, EngineTooOld, EngineUnavailable
from tfimg.core.process import start_daemon
from tfimg.engine.base_images.debian import install_emulator, install_packages
from tfimg.engine.docker.engine import DockerEngine
from tfimg.engine.emulation import find_platform, is_installed, register, runs_here
from tfimg.matrix.schema import PLATFORMS, Platform

START_SECONDS = 60.0
"""Limit for the daemon's first answer: 1 s when tried, more while it recovers from a kill."""

STOP_SECONDS = 60.0
"""Limit for its end; it first stops its containers, which takes 10 s each at most."""


@dataclass(frozen=True, slots=True)
class PrivateEngine:
    """The private engine of a state folder, all of whose files are in its `folder`."""

    state: Path

    @property
    def folder(self) -> Path:
        """The folder of its socket, log and data."""
        return self.state / "engine"

    @property
    def host(self) -> str:
        """Its `DOCKER_HOST`."""
        return f"unix://{self.folder / 'docker.sock'}"

    @property
    def log(self) -> Path:
        """The daemon's log."""
        return self.folder / "dockerd.log"

    def pid(self) -> int | None:
        """Return the process of its daemon; None if it does not run."""
        try:
            pid = int((self.folder / "dockerd.pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None
        # Process numbers are used again: only a daemon with this socket is ours.
        return pid if self.host.encode() in command else None


def install_missing(environ: Mapping[str, str], *, engine: bool, say: Callable[[str], None]) -> None:
    """Install what is missing of the tools and, with `engine`, of an engine with buildx. Raises `EngineSetupError`."""
    path = f"{environ.get('PATH', '')}:/usr/sbin:/sbin"
    if engine and shutil.which("dockerd", path=path):
        with suppress(EngineTooOld):
            # Any host: this asks buildx alone.
            DockerEngine(host="unix:///dev/null", environ=environ).buildx_version()
            engine = False
    if engine or not shutil.which("mmdebstrap", path=path):
        say("Installing from the distribution's packages")
        say(f"Done: installed {install_packages(environ, engine=engine)}.")


def set_up_emulation(environ: Mapping[str, str], *, say: Callable[[str], None]) -> tuple[Platform, ...]:
    """Let this machine run programs of all platforms, and return the emulated ones. Raises `EngineSetupError`."""
    native = find_platform(os.uname().machine)
    foreign = tuple(platform for platform in PLATFORMS if platform != native)
    missing = [platform for platform in foreign if not runs_here(platform)]
    if lacking := [platform for platform in missing if not is_installed(platform)]:
        say(f"Installing an emulator for {', '.join(lacking)} from the distribution's packages")
        say(f"Done: installed {install_emulator(environ)}.")
    for platform in missing:
        if not runs_here(platform):  # a service of the system registers it, where there is one
            register(platform, environ)
    if lacking := [platform for platform in missing if not runs_here(platform)]:
        raise EngineSetupError(
            f"QEMU is installed and registered, and this machine still does not run programs of {', '.join(lacking)}.",
            next_step="The kernel's log may say why; or use a machine of that platform.",
        )
    return foreign


def start(engine: PrivateEngine, environ: Mapping[str, str]) -> DockerEngine:
    """Start the daemon and wait until it answers. Raises `EngineSetupError`."""
    if engine.pid() is None:
        _start_daemon(engine, environ.get("PATH", ""))
    client = DockerEngine(host=engine.host, environ=environ)
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(EngineUnavailable):
            client.ping()
            return client
        if engine.pid() is None and time.monotonic() > deadline - START_SECONDS + 2:
            raise _error(engine, "ended at once")
        if time.monotonic() > deadline:
            raise _error(engine, f"did not answer within {START_SECONDS:.0f} s")
        time.sleep(0.1)


def _start_daemon(engine: PrivateEngine, path: str) -> None:
    if os.geteuid() != 0:
        raise EngineSetupError(
            "A private engine needs root.",
            next_step="Run `tfimg engine up` as root, or start an engine that you may use and set DOCKER_HOST.",
        )
    dockerd = shutil.which("dockerd", path=f"{path}:/usr/sbin:/usr/local/sbin")
    if dockerd is None:
        raise EngineSetupError(
            "Docker Engine is not installed: there is no dockerd.",
            next_step="`tfimg engine up --install` installs it from the distribution's packages.",
        )
    engine.folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    settings = engine.folder / "daemon.json"
    # The containerd store has zstd layers and OCI manifests, which can be read.
    settings.write_text(json.dumps({"features": {"containerd-snapshotter": True}}))
    options = {
        "--config-file": settings,
        "--host": engine.host,
        "--data-root": engine.folder / "data",
        "--exec-root": engine.folder / "exec",
        "--pidfile": engine.folder / "dockerd.pid",
    }
    start_daemon([dockerd, *(str(word) for option in options.items() for word in option)], log=engine.log)


def stop(engine: PrivateEngine) -> bool:
    """Stop the daemon and wait until it is gone. False if it did not run."""
    pid = engine.pid()
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while engine.pid() is not None:
        if time.monotonic() > deadline:
            raise _error(engine, f"did not end within {STOP_SECONDS:.0f} s")
        time.sleep(0.1)
    return True


def _error(engine: PrivateEngine, problem: str) -> EngineSetupError:
    lines = engine.log.read_text(errors="replace").splitlines() if engine.log.exists() else []
    errors = [line for line in lines if "level=error" in line or "level=fatal" in line or "failed" in line]
    return EngineSetupError(
        f"The private engine {problem}. Its log says: {(errors or lines or ['nothing'])[-1]}",
        next_step=f"The whole log is {engine.log}.",
    )
