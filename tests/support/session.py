"""One test run: what its worker processes share, and what is removed when it ends.

pytest-xdist gives every worker session fixtures of its own. `once` runs an expensive step in one of them and passes its
result to the others. The folder of the session lies in an environment variable, which workers inherit.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from support.paths import ROOT

VARIABLE = "TFIMG_TEST_SESSION"
PREFIX = "tfimg-test-"
"""How names of session folders begin."""

LABEL = "tfimg.test.session"
"""Docker label of every container that tests start; its value is the name of the session."""


class Session:
    """A test run, as the process that controls it has it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        os.environ[VARIABLE] = str(self.folder)
        # In a process group of its own, so that neither Ctrl-C nor a kill of pytest's group ends it.
        self._reaper = subprocess.Popen(
            [sys.executable, "-m", "support.reaper", str(self.folder)], cwd=ROOT / "tests",
            stdin=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def end(self) -> None:
        """Remove what the session left, and wait for that."""
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()
        self._reaper.wait(180)
        os.environ.pop(VARIABLE, None)


def session_folder() -> Path:
    """Return the folder that all workers of this run share."""
    return Path(os.environ[VARIABLE])


def label() -> dict[str, str]:
    """Return the label for a container of this run; the reaper removes what carries it."""
    return {LABEL: session_folder().name}


def run_once(name: str, make: Callable[[], Any]) -> Any:
    """Return what `make` returned (a JSON value) in the first worker that needs it; the others wait for it.

    A failure is repeated to everyone, so that a build of minutes fails once.
    """
    file = session_folder() / f"{name}.json"
    with FileLock(file.with_suffix(".lock")):
        if not file.exists():
            try:
                file.write_text(json.dumps({"value": make()}))
            except BaseException as error:
                file.write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
                raise
    document = json.loads(file.read_text())
    assert "error" not in document, f"{name} failed in another test: {document['error']}"
    return document["value"]


@contextmanager
def exclusively(name: str) -> Iterator[None]:
    """Hold a lock of the whole run: the block of one worker at a time."""
    with FileLock(session_folder() / f"{name}.lock"):
        yield
