"""The programs that come with TensorFlow."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from checks.packages import installed_versions
from contract import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Tuple

    from contract import Evidence, Facts

    Server = Tuple[subprocess.Popen[bytes], Path]

# It answers as soon as it has imported TensorFlow: seconds on a warm disk.
START_SECONDS = 60
STOP_SECONDS = 10
ANNOUNCEMENT = re.compile(r"TensorBoard (\S+) at (http://127\.0\.0\.1:\d+/)")


def tensorboard(facts: Facts) -> Evidence:
    """TensorBoard imports, and its command starts and answers over HTTP on the loopback interface."""
    importlib.import_module("tensorboard")
    command = shutil.which("tensorboard")
    if command is None:
        raise CheckFailed("expected `tensorboard` on PATH, found none: its scripts were not installed; reinstall it")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, _started(command, Path(folder)) as server:
        version, address = _announcement(server, began + START_SECONDS)
        status = _get(address)
    installed = installed_versions().get("tensorboard")
    evidence = {"command": command, "version": version, "status": status, "seconds": round(time.monotonic() - began, 3)}
    if (status, version) != (200, installed):
        raise CheckFailed(
            f"expected status 200 from TensorBoard {installed}, found {status} from {version}: the command belongs to "
            "another installation; reinstall TensorBoard",
            **evidence,
        )
    return evidence


@contextmanager
def _started(command: str, folder: Path) -> Iterator[Server]:
    """TensorBoard on a port that the system chooses, and the file with what it prints; it ends with the block."""
    log = folder / "output"
    arguments = [command, "--logdir", str(folder), "--host", "127.0.0.1", "--port", "0"]
    with log.open("wb") as output:
        child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield child, log
    finally:
        child.terminate()
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _announcement(server: Server, deadline: float) -> tuple[str, str]:
    """Version and address as the server prints them. Raises CheckFailed when it ends or stays silent."""
    child, log = server
    while time.monotonic() < deadline and child.poll() is None:
        found = ANNOUNCEMENT.search(log.read_text(errors="replace"))
        if found:
            return found.group(1), found.group(2)
        time.sleep(0.1)
    output = log.read_text(errors="replace").splitlines()
    ending = "silence" if child.poll() is None else f"exit code {child.poll()}"
    raise CheckFailed(
        f"expected TensorBoard to serve within {START_SECONDS} s, found {ending} ({output[-1] if output else 'no output'})"
        ": if pkg_resources is missing, setuptools is 82 or newer; lock setuptools<82",
        output=output[-20:],
    )


def _get(address: str) -> int:
    """HTTP status of the page. No proxy: one from the environment would be asked for the loopback address."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(address, timeout=START_SECONDS) as answer:
        return int(answer.status)
