"""Programs that serve until they are stopped, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from contract import CheckFailed
from emulation import extend
from forks import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

KEPT_LINES = 20
POLL_SECONDS = 0.1
# What a server has to end its own processes.
END_SECONDS = 10


@contextlib.contextmanager
def serving(
    command: Sequence[str], folder: Path, env: Mapping[str, str], ready: Callable[[], bool], seconds: float
) -> Iterator[Path]:
    """Run a server in a folder for the block, which begins when it is ready; yield the file with its output.

    HOME is the folder too: a container's own may be read-only, or another user's.
    """
    log = folder / "output.log"
    environ = {**os.environ, **env, "HOME": str(folder), "TMPDIR": str(folder)}
    with log.open("wb") as sink:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=str(folder),
                env=environ,
                start_new_session=True,
                preexec_fn=partial(end_with_parent, os.getpid()),
            )
        except OSError as error:
            raise CheckFailed(f"expected `{command[0]}` to start, found {error}: build the image again") from None
    try:
        deadline = time.monotonic() + extend(seconds)
        while not ready():
            status = process.poll()
            if status is not None or time.monotonic() > deadline:
                what = f"exit status {status}" if status is not None else f"no answer within {extend(seconds):.0f} s"
                output = tail(log)
                raise CheckFailed(
                    f"expected `{command[0]}` to serve, found {what} ({output[-1] if output else 'no output'}): read "
                    "its output, and build the image again",
                    output=output,
                )
            time.sleep(POLL_SECONDS)
        yield log
    finally:
        _end(process)


def tail(log: Path) -> list[str]:
    """The last lines of an output."""
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-KEPT_LINES:]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and the processes of its session."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(extend(END_SECONDS))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
