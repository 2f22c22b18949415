"""Several calls at once, each in a fork of this process: the tasks of a cluster, or a run that is to be killed.

A fork begins with what was imported before, so it needs no second import of TensorFlow. TensorFlow must not have
been used yet: its threads do not live on in a fork.
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
from forks import die_with, memory_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any, NoReturn

    Act = Callable[[], object]

KEPT_LINES = 20


@dataclass(frozen=True)
class Ending:
    """What became of one call: its answer, or why there is none (`failure`)."""

    answer: Any = None
    failure: str | None = None
    # Of a CheckFailed that the call raised.
    evidence: Mapping[str, Any] | None = None
    # The one that ended the process before it answered.
    signal: int | None = None
    # The last lines that it wrote.
    words: tuple[str, ...] = ()


@dataclass
class _Peer:
    pid: int
    reader: int
    words: int
    text: bytes = b""
    dead: bool = False

    @property
    def answered(self) -> bool:
        return self.text.endswith(b"\n")


def answers(acts: Mapping[str, Act], seconds: float, cause: str, serving: Collection[str] = ()) -> dict[str, Any]:
    """What the calls return. Raises CheckFailed when one of them raises, dies or hangs; `cause` says why it may."""
    ends = endings(acts, seconds, serving)
    failed = {name: end for name, end in ends.items() if end.failure}
    for end in failed.values():
        if end.evidence is not None:
            raise CheckFailed(str(end.failure), **end.evidence)
    if failed:
        raise CheckFailed(
            f"expected {', '.join(acts)} to do their parts within {seconds:g} s, found "
            f"{'; '.join(f'{name}: {end.failure}' for name, end in failed.items())}: {cause}",
            output={name: end.words for name, end in ends.items()},
        )
    return {name: end.answer for name, end in ends.items() if name not in serving}


def hide_gpus() -> None:
    """Leave this process and its forks the CPU only: each would take memory of a GPU, and what they do needs none."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


def endings(acts: Mapping[str, Act], seconds: float, serving: Collection[str] = ()) -> dict[str, Ending]:
    """Run the calls until all have answered, one has died, or the time is over; none of them is left then.

    Those named in `serving` are not waited for. A call that has answered lives on until the end, since others may
    still be talking to its process.
    """
    deadline = time.monotonic() + seconds
    peers: dict[str, _Peer] = {}
    late = False
    try:
        for name, act in acts.items():
            peers[name] = _start(act)
        late = not _listen(peers, deadline, serving)
    finally:
        statuses = {name: _stop(peer) for name, peer in peers.items()}
    silence = f"no answer within {seconds:g} s" if late else None
    return {name: _ending(peer, statuses[name], None if name in serving else silence) for name, peer in peers.items()}


def _start(act: Act) -> _Peer:
    # What is in the buffers would be written by the fork too.
    sys.stdout.flush()
    sys.stderr.flush()
    words, (reader, writer), parent = memory_file(), os.pipe(), os.getpid()
    pid = os.fork()
    if not pid:
        _live(act, writer, words, parent)
    os.close(writer)
    return _Peer(pid, reader, words)


def _live(act: Act, writer: int, words: int, parent: int) -> NoReturn:
    """The fork's life. It never returns: what comes after the fork is its parent's to do."""
    try:
        die_with(parent)
        os.dup2(words, 1)
        os.dup2(words, 2)
        text = json.dumps(_outcome(act)).encode() + b"\n"
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


def _outcome(act: Act) -> dict[str, Any]:
    try:
        return {"answer": act()}
    except CheckFailed as failed:
        return {"failure": failed.reason, "evidence": failed.evidence}


def _listen(peers: Mapping[str, _Peer], deadline: float, serving: Collection[str]) -> bool:
    """Whether it came to an end in time: all but the serving ones have answered, or one has died or failed."""
    by_pipe = {peer.reader: peer for peer in peers.values()}
    awaited = [peer for name, peer in peers.items() if name not in serving]
    while not all(peer.answered for peer in awaited):
        ready = select.select(list(by_pipe), [], [], max(deadline - time.monotonic(), 0))[0]
        if not ready:
            return False
        for peer in map(by_pipe.__getitem__, ready):
            chunk = os.read(peer.reader, 2**16)
            peer.text += chunk
            peer.dead = not chunk
        if any(peer.dead or peer.text.startswith(b'{"failure"') for peer in peers.values()):
            return True
    return True


def _stop(peer: _Peer) -> int:
    """End what still runs, and collect the status of what does not."""
    if not peer.dead:
        os.kill(peer.pid, signal.SIGKILL)
    os.close(peer.reader)
    return os.waitpid(peer.pid, 0)[1]


def _ending(peer: _Peer, status: int, silence: str | None) -> Ending:
    with os.fdopen(peer.words, "rb") as stream:
        stream.seek(0)
        words = tuple(stream.read().decode(errors="replace").strip().splitlines()[-KEPT_LINES:])
    if peer.answered:
        return Ending(**json.loads(peer.text), words=words)
    if not peer.dead:
        return Ending(failure=silence, words=words)
    last = words[-1] if words else "there was no output"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Ending(failure=f"signal {number} ({last})", signal=number, words=words)
    return Ending(failure=f"status {os.WEXITSTATUS(status)} ({last})", words=words)
