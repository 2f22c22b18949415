"""One call in a process of its own, so that a library which crashes, hangs or prints harms nothing else."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

# The least that a library is given to load and to answer; SIGALRM ends it then.
FORK_SECONDS = 30
# The signal that a process gets when its parent ends (prctl(2), linux/prctl.h).
PR_SET_PDEATHSIG = 1
# linux/memfd.h
MFD_CLOEXEC = 1


def die_with(parent: int) -> None:
    """Leave no orphan when the parent is killed, even if that was before this call. A fork does not inherit it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def memory_file() -> int:
    """Return the descriptor of a file in memory: no folder need be writable. Python 3.7 has no `os.memfd_create`."""
    descriptor = int(ctypes.CDLL(None, use_errno=True).memfd_create(b"words", MFD_CLOEXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "memfd_create failed")
    return descriptor


def alone(act: Callable[[], object], seconds: float | None = None) -> Any:
    """What `act` returns, in a fork; or what it complained of when it raised, died or hung for `seconds`."""
    limit = FORK_SECONDS if seconds is None else seconds
    with os.fdopen(memory_file(), "w+b") as words:
        text, status = forked(act, words.fileno(), limit)
        words.seek(0)
        last = words.read().decode(errors="replace").strip().splitlines()[-1:]
    if text:
        return json.loads(text)
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        how += f" after {limit:g} s"
    return f"the process ended with {how}: {' '.join(last) or 'there was no output'}"


def forked(act: Callable[[], object], stderr: int, seconds: float) -> tuple[str, int]:
    """Do something in a fork that complains into a file: its answer as JSON, empty if it died, and its wait status."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _tell(act, writer, stderr, seconds)
    os.close(writer)
    with os.fdopen(reader) as stream:
        text = stream.read()
    return text, os.waitpid(child, 0)[1]


def _tell(act: Callable[[], object], writer: int, stderr: int, seconds: float) -> NoReturn:
    """The fork's life. It never returns: what comes after the fork is its parent's to do."""
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
