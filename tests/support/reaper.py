"""Clean up after a test run, also one that was killed: `python -m support.reaper FOLDER`.

Its standard input is a pipe from pytest. The pipe ends when pytest does, however that ends. testcontainers' own reaper
is an image that would have to be pulled.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from support.session import LABEL

REPOSITORIES = "tfimg-test/*"
"""Images that tests build are named so; build cache and bases are kept for the next run."""


def main() -> None:
    """Wait for the end of pytest, then remove containers and images, and stop the engine if tests started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    folder = Path(sys.argv[1])
    engine = folder / "engine.json"
    if engine.exists() and (value := json.loads(engine.read_text()).get("value")):
        _remove_from(value["host"], folder.name, keep=value["tags"])
        if value["started"]:
            subprocess.run(
                [sys.executable, "-m", "tfimg", "engine", "down"], check=False, capture_output=True
            )
    shutil.rmtree(folder, ignore_errors=True)


def _remove_from(host: str, session: str, keep: list[str]) -> None:
    """Remove this session's containers, and the images of tests that were not there before it."""
    docker = ["docker", "--host", host]
    containers = _lines([*docker, "ps", "--all", "--quiet", f"--filter=label={LABEL}={session}"])
    _lines([*docker, "rm", "--force", "--volumes", *containers])
    images = _lines(
        [*docker, "image", "ls", "--format={{.Repository}}:{{.Tag}}", f"--filter=reference={REPOSITORIES}"]
    )
    _lines([*docker, "image", "rm", "--force", *sorted(set(images) - set(keep))])


def _lines(command: list[str]) -> list[str]:
    """Run a command that may fail (there may be nothing to remove); return the words that it printed."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


if __name__ == "__main__":
    main()
