"""Clean up after a test run, also one that was killed: `python -m support.reaper FOLDER`.

Its standard input is a pipe from pytest. The pipe ends when pytest does, however that ends. testcontainers' own reaper
is an image that would have to be pulled.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock, Timeout

from support.session import LABEL, PREFIX

REPOSITORIES = "tfimg-test/*"
"""Images that tests build are named so; build cache and bases are kept for the next run."""


def main() -> None:
    """Wait for the end of pytest, then remove containers and images, and stop the engine if tests started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder = Path(sys.argv[1])
    alive = FileLock(folder / "alive.lock")
    alive.acquire()
    sys.stdin.buffer.read()
    # One after the other, so that of two runs that end together the second knows that it is the last. Per user: one
    # may not open another's lock, nor reach another's engine.
    with FileLock(Path(tempfile.gettempdir()) / f"{PREFIX}reaper-{os.geteuid()}.lock"):
        alive.release()
        _clean_up(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _clean_up(folder: Path) -> None:
    """Remove what this run left; images, and the engine, only where no other run uses them."""
    engine = folder / "engine.json"
    if not engine.exists() or not (value := json.loads(engine.read_text()).get("value")):
        return
    _remove_containers(value["host"], folder.name)
    if _is_last(folder):
        _remove_images(value["host"], keep=value["tags"])
        if value["started"]:
            subprocess.run([sys.executable, "-m", "tfimg", "engine", "down"], check=False, capture_output=True)


def _is_last(folder: Path) -> bool:
    """Return whether no other test run is alive: each one's reaper holds a lock."""
    for file in folder.parent.glob(f"{PREFIX}*/alive.lock"):
        if file.parent != folder:
            try:
                FileLock(file).acquire(timeout=0).lock.release()
            except Timeout:
                return False
    return True


def _remove_containers(host: str, session: str) -> None:
    docker = ["docker", "--host", host]
    containers = _lines([*docker, "ps", "--all", "--quiet", f"--filter=label={LABEL}={session}"])
    _lines([*docker, "rm", "--force", "--volumes", *containers])


def _remove_images(host: str, keep: list[str]) -> None:
    """Remove images of tests that were not there before this run."""
    docker = ["docker", "--host", host]
    images = _lines([*docker, "image", "ls", "--format={{.Repository}}:{{.Tag}}", f"--filter=reference={REPOSITORIES}"])
    _lines([*docker, "image", "rm", "--force", *sorted(set(images) - set(keep))])


def _lines(command: list[str]) -> list[str]:
    """Run a command that may fail (there may be nothing to remove); return the words that it printed."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


if __name__ == "__main__":
    main()
