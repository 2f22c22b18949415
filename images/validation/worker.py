"""`python worker.py DESCRIPTOR`: runs the checks that standard input names; the descriptor gets their ends.

It imports TensorFlow once. Isolated checks run in forks of it; therefore they come before the first that starts
TensorFlow's runtime, whose threads a fork would lack. What kills this process is told by its supervisor.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
from typing import TYPE_CHECKING

import framework
from contract import Facts, is_isolated
from forks import die_with
from judge import ended, how, judged
from stream import emitter

if TYPE_CHECKING:
    from typing import Any, TextIO

    from contract import Check
    from stream import Emit


def main() -> None:
    """Read the order, then a name at a time; each is answered by one event."""
    die_with(os.getppid())
    # Say where in Python a crash happened, and, when asked, a hang.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2)
    emit, told = emitter(int(sys.argv[1])), _claim_stdin()
    order: dict[str, Any] = json.loads(told.readline())
    facts = Facts(**order["facts"])
    table: dict[str, Check] = importlib.import_module(order["table"]).CHECKS
    if order["no_tensorflow"]:
        framework.give_up(order["no_tensorflow"])
    for line in told:
        name: str = json.loads(line)
        if is_isolated(table[name], facts):
            _run_apart(name, table[name], facts, emit)
        else:
            emit(judged(name, table[name], facts))


def _claim_stdin() -> TextIO:
    """Standard input for this process alone: a program that a check starts finds it empty."""
    stream = os.fdopen(os.dup(0), encoding="ascii")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    return stream


def _run_apart(name: str, check: Check, facts: Facts, emit: Emit) -> None:
    framework.attempt()
    folder, parent = _folder(), os.getpid()
    child = os.fork()
    if not child:
        status, tempfile.tempdir = 1, folder
        try:
            die_with(parent)
            emit(judged(name, check, facts))
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    if status:
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        emit(ended(name, "crashed", f"its process ended with {how(code)}"))


def _folder() -> str | None:
    """Where a fork puts temporary files: it ends without removing them. None where no folder is writable."""
    try:
        return tempfile.mkdtemp()
    except OSError:  # environment.temporary tells it
        return None


if __name__ == "__main__":
    main()
