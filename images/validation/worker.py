"""`python worker.py DESCRIPTOR`: run the checks that standard input names, and write the events of their ends.

It imports TensorFlow once. Isolated checks run in forks of it; they come before the first check that starts
TensorFlow's runtime, whose threads a fork would not have, or in another fork than those checks. The supervisor reports
a crash of this process.
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
from check_runner import describe_exit, make_end_event, run_check
from contract import Facts, is_isolated
from forks import end_with_parent
from stream import emitter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TextIO

    from contract import Check
    from stream import Emit


def main() -> None:
    """Read the order, then one name at a time; write one event for each."""
    end_with_parent(os.getppid())
    # Say where in Python a crash happened, and, when asked, a hang.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2)
    emit, names = emitter(int(sys.argv[1])), _claim_stdin()
    order: dict[str, Any] = json.loads(names.readline())
    facts = Facts(**order["facts"])
    table: dict[str, Check] = importlib.import_module(order["table"]).CHECKS
    if order["no_tensorflow"]:
        framework.give_up(order["no_tensorflow"])
    _run_named(names, table, facts, emit)
    if order["forks"]:
        emit, names = _fork(order["forks"])
        if not _run_named(names, table, facts, emit):
            # This process did not use TensorFlow, and its end would take half a second.
            os._exit(0)


def _run_named(names: TextIO, table: Mapping[str, Check], facts: Facts, emit: Emit) -> bool:
    """Run the checks that are named. Return whether one of them ran in this process."""
    ran = False
    for line in names:
        name: str = json.loads(line)
        if is_isolated(table[name], facts):
            _run_in_fork(name, table[name], facts, emit)
        else:
            ran = True
            emit(run_check(name, table[name], facts))
    return ran


def _fork(pipes: Sequence[Sequence[int]]) -> tuple[Emit, TextIO]:
    """Fork this process for each of these pipes: for names, events, output, and beginning and end of the fork.

    It returns in the forks only, with what `main` had. This process waits for them and does nothing else, so that no
    check can end it.
    """
    parent, lives = os.getpid(), {}
    for names, events, output, life in pipes:
        child = os.fork()
        if not child:
            os.setsid()
            end_with_parent(parent)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.write(life, f"process {os.getpid()}\n".encode())
            os.close(life)
            return emitter(events), os.fdopen(names, encoding="ascii")
        lives[child] = life
    while lives:
        child, status = os.wait()
        os.write(lives.pop(child), f"status {exit_code(status)}\n".encode())
    os._exit(0)


def _claim_stdin() -> TextIO:
    """Keep standard input for this process: programs that a check starts read an empty one."""
    stream = os.fdopen(os.dup(0), encoding="ascii")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    return stream


def _run_in_fork(name: str, check: Check, facts: Facts, emit: Emit) -> None:
    framework.attempt()
    folder, parent = _make_folder(), os.getpid()
    child = os.fork()
    if not child:
        status, tempfile.tempdir = 1, folder
        try:
            end_with_parent(parent)
            emit(run_check(name, check, facts))
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    if status:
        emit(make_end_event(name, "crashed", f"its process ended with {describe_exit(exit_code(status))}"))


def exit_code(status: int) -> int:
    """Return a wait status as `subprocess` does. Python has `os.waitstatus_to_exitcode` since 3.9."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _make_folder() -> str | None:
    """Return a folder for the temporary files of a fork, which does not remove them. None if none is writable."""
    try:
        return tempfile.mkdtemp()
    except OSError:  # environment.temporary reports it
        return None


if __name__ == "__main__":
    main()
