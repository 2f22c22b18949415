"""Run one call in a fork, so that a library that crashes, hangs or prints does not affect this process."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import traceback
from typing import TYPE_CHECKING

from emulation import extend

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

# Default time limit of a call; SIGALRM ends it then.
FORK_SECONDS = 30
# The signal that a process gets when its parent ends (prctl(2), linux/prctl.h).
PR_SET_PDEATHSIG = 1
# linux/memfd.h
MFD_CLOEXEC = 1


def end_with_parent(parent: int) -> None:
    """Have this process killed when its parent ends, also if that was before this call. Forks do not inherit it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def open_memory_file() -> int:
    """Return the descriptor of a file in memory: it needs no folder. Python 3.7 has no `os.memfd_create`."""
    descriptor = int(ctypes.CDLL(None, use_errno=True).memfd_create(b"words", MFD_CLOEXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "memfd_create failed")
    return descriptor


def call_in_fork(act: Callable[[], object], seconds: float | None = None) -> Any:
    """Call `act` in a fork and return its result, or its error as text if it raised, died or hung for `seconds`."""
    limit = extend(FORK_SECONDS if seconds is None else seconds)
    with os.fdopen(open_memory_file(), "w+b") as words:
        text, status = run_fork(act, words.fileno(), limit)
        words.seek(0)
        last = words.read().decode(errors="replace").strip().splitlines()[-1:]
    if text:
        return json.loads(text)
    ending = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        ending += f" after {limit:g} s"
    return f"the process ended with {ending}: {' '.join(last) or 'there was no output'}"


def run_fork(act: Callable[[], object], stderr: int, seconds: float) -> tuple[str, int]:
    """Call `act` in a fork that writes to `stderr`. Return its JSON result, empty if it died, and its wait status."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _run_child(act, writer, stderr, seconds)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    return text, os.waitpid(child, 0)[1]


def _run_child(act: Callable[[], object], writer: int, stderr: int, seconds: float) -> NoReturn:
    """Run the call in the fork and send its result. It never returns, so that only the parent runs what follows."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        os.dup2(stderr, 1)
        os.dup2(stderr, 2)
        try:
            answer: object = act()
        except (OSError, AttributeError) as error:
            answer = str(error)
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(1)
