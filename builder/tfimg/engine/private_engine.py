"""An engine of tfimg's own: its socket, its data, its daemon. Needs no systemd."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfimg.core.errors import EngineSetupError
from tfimg.core.process import start_daemon

START_SECONDS = 60.0
"""How long the daemon may take until it answers; 1 s when tried, more while it recovers from a kill."""

STOP_SECONDS = 60.0
"""How long it may take to end; it first ends its containers, 10 s each at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateEngine:
    """Where the private engine lives: everything of it is under `folder`."""

    folder: Path

    @property
    def socket(self) -> Path:
        """Where it answers."""
        return self.folder / "docker.sock"

    @property
    def host(self) -> str:
        """What `DOCKER_HOST` is set to for it."""
        return f"unix://{self.socket}"

    @property
    def log(self) -> Path:
        """What the daemon says."""
        return self.folder / "dockerd.log"

    def pid(self) -> int | None:
        """Process id of its daemon, or None when it does not run."""
        try:
            pid = int((self.folder / "dockerd.pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None
        # Ids are used again: only a daemon that was given this socket is ours.
        return pid if self.host.encode() in command else None


def start(engine: PrivateEngine, *, path: str, answers: Callable[[], bool]) -> None:
    """Start the daemon, found on `path`, and wait until it answers. Raises `EngineSetupError` when it does not."""
    if engine.pid() is None:
        _start(engine, path)
    deadline = time.monotonic() + START_SECONDS
    while not answers():
        if engine.pid() is None and time.monotonic() > deadline - START_SECONDS + 2:
            raise _failed(engine, "ended at once")
        if time.monotonic() > deadline:
            raise _failed(engine, f"did not answer within {START_SECONDS:.0f} s")
        time.sleep(0.1)


def _start(engine: PrivateEngine, path: str) -> None:
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
    # The containerd store: zstd layers, OCI manifests, and what is in it can be read back.
    settings.write_text(json.dumps({"features": {"containerd-snapshotter": True}}))
    start_daemon(
        [
            dockerd,
            "--config-file",
            str(settings),
            "--host",
            engine.host,
            "--data-root",
            str(engine.folder / "data"),
            "--exec-root",
            str(engine.folder / "exec"),
            "--pidfile",
            str(engine.folder / "dockerd.pid"),
        ],
        log=engine.log,
    )


def stop(engine: PrivateEngine) -> bool:
    """End the daemon and wait until it is gone, its bridge with it. False when it did not run."""
    pid = engine.pid()
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while engine.pid() is not None:
        if time.monotonic() > deadline:
            raise _failed(engine, f"did not end within {STOP_SECONDS:.0f} s")
        time.sleep(0.1)
    return True


def _failed(engine: PrivateEngine, what: str) -> EngineSetupError:
    lines = engine.log.read_text(errors="replace").splitlines() if engine.log.exists() else []
    problems = [line for line in lines if "level=error" in line or "level=fatal" in line or "failed" in line]
    return EngineSetupError(
        f"The private engine {what}. Its log says: {(problems or lines or ['nothing'])[-1]}",
        next_step=f"The whole log is {engine.log}.",
    )
