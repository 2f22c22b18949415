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

from contract import CheckFailed

from .packages import installed_versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract import Evidence, Facts

# It answers once it has imported TensorFlow: seven seconds on two busy cores.
START_SECONDS = 60
STOP_SECONDS = 10
ANNOUNCEMENT = re.compile(r"TensorBoard (\S+) at (http://127\.0\.0\.1:\d+/)")


def tensorboard(_facts: Facts) -> Evidence:
    """TensorBoard imports, and its command starts and answers over HTTP on the loopback interface."""
    command, installed = _command(), installed_versions().get("tensorboard")
    importlib.import_module("tensorboard")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, _started(command, Path(folder)) as child:
        version, address = _announcement(child, Path(folder))
        status = _get(address)
        seconds = round(time.monotonic() - began, 3)
    evidence = {"command": command, "version": version, "status": status, "seconds": seconds}
    if (status, version) != (200, installed):
        raise CheckFailed(
            f"expected status 200 from TensorBoard {installed}, found {status} from {version}: the command "
            "belongs to another installation; reinstall TensorBoard",
            **evidence,
        )
    return evidence


def _command() -> str:
    command = shutil.which("tensorboard")
    if command is None:
        raise CheckFailed(
            "expected `tensorboard` on PATH, found none: it is not installed (TensorFlow 2.21 no longer "
            "depends on it) or its scripts are elsewhere; lock it, and put its scripts on PATH"
        )
    return command


@contextmanager
def _started(command: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """TensorBoard on a port that the system chooses, printing to a file; it ends with the block."""
    arguments = [command, "--logdir", str(folder), "--host", "127.0.0.1", "--port", "0"]
    with (folder / "output").open("wb") as output:
        child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _announcement(child: subprocess.Popen[bytes], folder: Path) -> tuple[str, str]:
    """Version and address as the server prints them. Raises CheckFailed when it ends or stays silent."""
    deadline = time.monotonic() + START_SECONDS
    ending = None
    while ending is None and time.monotonic() < deadline:
        time.sleep(0.1)
        ending = child.poll()
        output = (folder / "output").read_text(errors="replace")
        found = ANNOUNCEMENT.search(output)
        if found:
            return found.group(1), found.group(2)
    raise _not_serving(ending, output.splitlines())


def _not_serving(ending: int | None, output: list[str]) -> CheckFailed:
    found = "silence" if ending is None else f"exit code {ending}"
    last = output[-1] if output else "no output"
    remedy = "read its output"
    if "pkg_resources" in last:
        remedy = "it left setuptools with version 82; lock setuptools<82"
    return CheckFailed(
        f"expected TensorBoard to serve within {START_SECONDS} s, found {found} ({last}): {remedy}",
        output=output[-20:],
    )


def _get(address: str) -> int:
    """HTTP status of the page. No proxy: one from the environment would be asked for the loopback address."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(address, timeout=START_SECONDS) as answer:
        return int(answer.status)
