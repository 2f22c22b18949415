"""Runs checks in a worker, and tells how each ended, also when it took the worker along.

A check that crashes, hangs or prints costs its own result at most: the next worker goes on behind it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from judge import ended, how

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from contract import Check, Facts
    from stream import Emit

SCRIPT = Path(__file__).with_name("worker.py")
IMPORT = "environment.import_tensorflow"
KEPT_LINES, KEPT_BYTES = 60, 64 * 1024
# A worker needs a tenth of a second before its first check and after its last; a minute leaves room for a cold disk.
BETWEEN_SECONDS = 60.0
# A process that gets SIGABRT first writes where it is in Python, if it still can.
LAST_WORDS_SECONDS = 2.0
# How long a death may go unnoticed while a process that outlived it still holds the pipes.
TICK_SECONDS = 0.2


@dataclass(frozen=True)
class Order:
    """What to run: a table of checks, the module that holds it, names in it, and what the image claims."""

    table: Mapping[str, Check]
    module: str
    names: Sequence[str]
    facts: Facts


def supervise(order: Order, emit: Emit) -> str | None:
    """Run all checks; start and end of each are told. Returns what went wrong after the last, or None."""
    remaining, no_tensorflow, problem = list(order.names), None, None
    while remaining:
        with Worker(order, list(remaining), no_tensorflow) as worker:
            for event in _followed(worker):
                emit(event)
                if event["event"] == "end":
                    remaining.remove(event["check"])
                    if event["check"] == IMPORT and event["outcome"] != "passed":
                        no_tensorflow = event["reason"]
            problem = worker.afterwards() if not remaining and worker.told_its_end else None
    return problem


def _followed(worker: Worker) -> Iterator[dict[str, Any]]:
    """The worker's events; where it dies or hangs in a check, the end that it could not tell."""
    for name in worker.names:
        started = worker.next(BETWEEN_SECONDS)
        # Where it died between two checks, the one that it came to is to blame.
        yield started or {"event": "start", "check": name}
        limit = worker.order.table[name].seconds if started else 0.0
        began = time.monotonic()
        end = worker.next(limit) if started else None
        seconds = time.monotonic() - began
        yield {**(end or ended(name, *worker.end(limit), seconds)), "output": worker.take_output()}
        if end is None:
            return
    worker.told_its_end = worker.next(BETWEEN_SECONDS) is not None


@dataclass
class Worker:
    """A process that runs checks one after the other; leaving the block ends it and all that it started."""

    order: Order
    names: Sequence[str]
    no_tensorflow: str | None = None
    told_its_end: bool = False
    _output: bytearray = field(default_factory=bytearray)
    _events: bytearray = field(default_factory=bytearray)

    def __enter__(self) -> Worker:
        reader, writer = os.pipe()
        # A session of its own, so that everything it starts can be ended with it.
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(writer)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, pass_fds=[writer], start_new_session=True,
        )  # fmt: skip
        os.close(writer)
        self._before = _oom_kills()
        assert self._process.stdin and self._process.stdout  # noqa: S101
        self._pipes = {reader: self._events, self._process.stdout.fileno(): self._output}
        self._selector = selectors.DefaultSelector()
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ)
        told = {"table": self.order.module, "checks": list(self.names), "no_tensorflow": self.no_tensorflow}
        try:
            self._process.stdin.write(json.dumps({**told, "facts": asdict(self.order.facts)}).encode())
            self._process.stdin.close()
        except BrokenPipeError:  # it is dead already, which the first look at it tells
            pass
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        os.close(next(iter(self._pipes)))
        assert self._process.stdout  # noqa: S101
        self._process.stdout.close()

    def next(self, seconds: float) -> dict[str, Any] | None:
        """The next event, or None when the process has ended or that time has passed without one."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._events:
            dead = self._process.poll() is not None
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._read(0.0 if dead else min(TICK_SECONDS, left))
            if dead and b"\n" not in self._events:
                return None
        line, _, rest = bytes(self._events).partition(b"\n")
        self._events[:] = rest
        event: dict[str, Any] = json.loads(line)
        if event["event"] == "end":
            # What it wrote before that lies in the pipe already.
            self._read(0.0)
        return event

    def end(self, limit: float) -> tuple[str, str]:
        """Outcome and reason of the check that ran: it took the process along, or did not end within `limit`."""
        status = self._process.poll()
        if status is None:
            self._signal(signal.SIGABRT)
            patience = time.monotonic() + LAST_WORDS_SECONDS
            while self._process.poll() is None and time.monotonic() < patience:
                self._read(TICK_SECONDS)
            self._read(0.0)
            return "timed-out", f"expected an end within {limit:.0f} s, found none: it hangs, or the machine is too slow"
        if _oom_kills() > self._before:
            return "crashed", "the kernel killed its process: the container ran out of memory; give it more"
        return "crashed", f"its process ended with {how(status)}"

    def afterwards(self) -> str | None:
        """What became of a process that had told its end: the interpreter still takes everything down."""
        try:
            status = self._process.wait(BETWEEN_SECONDS)
        except subprocess.TimeoutExpired:
            return "the process did not end after its last check"
        return f"after its last check, the process ended with {how(status)}" if status else None

    def take_output(self) -> list[str]:
        """The last lines that it wrote since the last call."""
        lines = self._output.decode(errors="replace").splitlines()[-KEPT_LINES:]
        self._output.clear()
        return lines

    def _read(self, seconds: float) -> None:
        """Take what there is; wait at most `seconds` for it to come."""
        for key, _ in self._selector.select(seconds):
            buffer = self._pipes[key.fd]
            while True:
                try:
                    piece = os.read(key.fd, KEPT_BYTES)
                except BlockingIOError:
                    break
                if not piece:
                    self._selector.unregister(key.fd)
                    break
                buffer += piece
                if buffer is self._output:
                    del buffer[:-KEPT_BYTES]

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:  # nobody is left of it
            pass


def _oom_kills() -> int:
    """How many processes of this container the kernel has killed for lack of memory (cgroup v2, memory.events)."""
    try:
        lines = Path("/sys/fs/cgroup/memory.events").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
