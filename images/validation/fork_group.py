"""Run several calls at once, each in a fork of this process: the tasks of a cluster, or a run that is killed.

A fork has the modules of its parent, so it does not import TensorFlow again. Its parent must not have used TensorFlow:
a fork has only one of its parent's threads.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contract import CheckFailed
from emulation import extend
from forks import end_with_parent, open_memory_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any, NoReturn

    Call = Callable[[], object]

KEPT_LINES = 20


@dataclass(frozen=True)
class CallResult:
    """The result of one call: its answer, or the reason why there is none (`failure`)."""

    answer: Any = None
    failure: str | None = None
    # Of a CheckFailed that the call raised.
    measured: Mapping[str, Any] | None = None
    # The signal that ended the process before it answered.
    signal: int | None = None
    # The last lines of its output.
    output: tuple[str, ...] = ()


@dataclass
class _Member:
    pid: int
    reader: int
    output: int
    text: bytes = b""
    dead: bool = False

    @property
    def answered(self) -> bool:
        return self.text.endswith(b"\n")


def call_in_forks(
    calls: Mapping[str, Call], seconds: float, cause: str, serving: Collection[str] = ()
) -> dict[str, Any]:
    """Return the answers of the calls. Raises CheckFailed, with the likely `cause`, if one raises, dies or hangs."""
    ends = collect_results(calls, seconds, serving)
    failed = {name: end for name, end in ends.items() if end.failure}
    for end in failed.values():
        if end.measured is not None:
            raise CheckFailed(str(end.failure), **end.measured)
    if failed:
        raise CheckFailed(
            f"expected {', '.join(calls)} to do their parts within {extend(seconds):g} s, found "
            f"{'; '.join(f'{name}: {end.failure}' for name, end in failed.items())}: {cause}",
            output={name: end.output for name, end in ends.items()},
        )
    return {name: end.answer for name, end in ends.items() if name not in serving}


def hide_gpus() -> None:
    """Hide GPUs from this process and its forks: each would reserve memory of a GPU without using it."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def collect_results(calls: Mapping[str, Call], seconds: float, serving: Collection[str] = ()) -> dict[str, CallResult]:
    """Run the calls until all have answered, one has died, or the time is over; then end all their processes.

    Calls named in `serving` need not answer. The process of a call that has answered stays until the end, because
    other processes may still communicate with it.
    """
    seconds = extend(seconds)
    deadline = time.monotonic() + seconds
    members: dict[str, _Member] = {}
    late = False
    try:
        for name, call in calls.items():
            members[name] = _start(call)
        late = not _listen(members, deadline, serving)
    finally:
        statuses = {name: _stop(member) for name, member in members.items()}
    silence = f"no answer within {seconds:g} s" if late else None
    return {
        name: _make_result(member, statuses[name], None if name in serving else silence)
        for name, member in members.items()
    }


def _start(call: Call) -> _Member:
    # Otherwise the fork would write what is in the buffers a second time.
    sys.stdout.flush()
    sys.stderr.flush()
    output, (reader, writer), parent = open_memory_file(), os.pipe(), os.getpid()
    pid = os.fork()
    if not pid:
        _run_member(call, writer, output, parent)
    os.close(writer)
    return _Member(pid, reader, output)


def _run_member(call: Call, writer: int, output: int, parent: int) -> NoReturn:
    """Run the call in the fork and wait for the end. It never returns, so that only the parent runs what follows."""
    try:
        end_with_parent(parent)
        os.dup2(output, 1)
        os.dup2(output, 2)
        text = json.dumps(_outcome(call)).encode() + b"\n"
        sys.stdout.flush()
        while text:
            text = text[os.write(writer, text) :]
        while True:
            signal.pause()
    except BaseException:
        sys.stdout.flush()
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(1)


def _outcome(call: Call) -> dict[str, Any]:
    try:
        return {"answer": call()}
    except CheckFailed as failed:
        return {"failure": failed.reason, "measured": failed.measured}


def _listen(members: Mapping[str, _Member], deadline: float, serving: Collection[str]) -> bool:
    """Return whether, in time, all calls that must answer have answered, or one has died or failed."""
    by_pipe = {member.reader: member for member in members.values()}
    awaited = [member for name, member in members.items() if name not in serving]
    while not all(member.answered for member in awaited):
        ready = select.select(list(by_pipe), [], [], max(deadline - time.monotonic(), 0))[0]
        if not ready:
            return False
        for member in map(by_pipe.__getitem__, ready):
            chunk = os.read(member.reader, 2**16)
            member.text += chunk
            member.dead = not chunk
        if any(member.dead or member.text.startswith(b'{"failure"') for member in members.values()):
            return True
    return True


def _stop(member: _Member) -> int:
    """End the process if it still runs, and return its wait status."""
    if not member.dead:
        os.kill(member.pid, signal.SIGKILL)
    os.close(member.reader)
    return os.waitpid(member.pid, 0)[1]


def _make_result(member: _Member, status: int, silence: str | None) -> CallResult:
    with os.fdopen(member.output, "rb") as stream:
        stream.seek(0)
        output = tuple(stream.read().decode(errors="replace").strip().splitlines()[-KEPT_LINES:])
    if member.answered:
        return CallResult(**json.loads(member.text), output=output)
    if not member.dead:
        return CallResult(failure=silence, output=output)
    last = output[-1] if output else "there was no output"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return CallResult(failure=f"signal {number} ({last})", signal=number, output=output)
    return CallResult(failure=f"status {os.WEXITSTATUS(status)} ({last})", output=output)
