"""Run checks in a worker process and report the end of each, also if the worker crashed.

A check that crashes or hangs loses only its own result: a new worker continues after it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from check_runner import describe_exit, make_end_event
from contract import is_isolated
from emulation import extend
from limits import time_limit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from contract import Check, Facts
    from stream import Emit

SCRIPT = Path(__file__).with_name("worker.py")
IMPORT = "environment.import_tensorflow"
KEPT_LINES, KEPT_BYTES = 60, 64 * 1024
# The interpreter takes TensorFlow down within a second; the rest is for a busy machine.
END_SECONDS = 60.0
# At this signal the worker and its forks write where they are in Python, each within a second on a busy machine.
TELL_WHERE = signal.SIGUSR2
QUIET_SECONDS = 2.0
LAST_WORDS_SECONDS = 5.0
# How long a death may go unnoticed while a process that outlived it still holds the pipes.
TICK_SECONDS = 0.2
# Of cgroup v2 and of v1 (the kernel's documentation of both: memory.events; memory.oom_control).
OOM_FILES = ("memory.events", "memory/memory.oom_control")
# TensorFlow reads it when its library is loaded, at the import, and then leaves libtpu.so and its lock alone
# (FindAndLoadTpuLibrary in tpu_api_dlsym_initializer.cc, TryAcquireTpuLock in tpu_initialize_util.cc).
WITHOUT_TPU = {"TPU_LOAD_LIBRARY": "0"}
# After these outcomes, the worker is replaced.
LOST = ("crashed", "timed-out")


@dataclass(frozen=True)
class Order:
    """What to run: a table of checks, the module that holds it, names in it, and what the image claims.

    `gpus` are the compute capabilities of the GPUs that the checks run on.
    """

    table: Mapping[str, Check]
    module: str
    names: Sequence[str]
    facts: Facts
    gpus: Sequence[str] = ()


def supervise(order: Order, emit: Emit) -> str | None:
    """Run all checks, with an event at the start and end of each. Return the problem after the last, or None.

    On a TPU image, isolated checks have a worker of their own, which leaves the TPU to the other one.
    """
    workers: dict[bool, Worker] = {}
    no_tensorflow = None
    try:
        for name in order.names:
            emit({"event": "start", "check": name})
            without_tpu = order.facts.device == "tpu" and is_isolated(order.table[name], order.facts)
            if without_tpu not in workers:
                workers[without_tpu] = Worker(order, no_tensorflow, WITHOUT_TPU if without_tpu else {})
            end = workers[without_tpu].run(name)
            emit(end)
            if name == IMPORT and end["outcome"] != "passed":
                no_tensorflow = end["reason"]
            if end["outcome"] in LOST:
                workers.pop(without_tpu).kill()
        problems = [worker.finish() for worker in workers.values()]
        return next(filter(None, problems), None)
    finally:
        for worker in workers.values():
            worker.kill()


class Worker:
    """A process that runs checks, one when it is told to, in a session of its own with all that it starts.

    `environment` is added to this process's.
    """

    def __init__(self, order: Order, no_tensorflow: str | None, environment: Mapping[str, str]) -> None:
        self._order = order
        self._oom_kills = oom_kills()
        reader, writer = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(writer)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, pass_fds=[writer], start_new_session=True, env={**os.environ, **environment},
        )  # fmt: skip
        os.close(writer)
        assert self._process.stdout  # noqa: S101
        self._events, self._output = bytearray(), bytearray()
        self._reader = reader
        self._pipes = {reader: self._events, self._process.stdout.fileno(): self._output}
        self._selector = selectors.DefaultSelector()
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ)
        self._send({"table": order.module, "facts": asdict(order.facts), "no_tensorflow": no_tensorflow})

    def run(self, name: str) -> dict[str, Any]:
        """Run a check and return the event of its end, also if the process died or hung."""
        limit = time_limit(self._order.table[name], self._order.facts, self._order.gpus)
        began = time.monotonic()
        self._send(name)
        end = self._event(limit)
        if end is None:
            end = make_end_event(name, *self._lost(limit), time.monotonic() - began)
        # It waits for the next name: all that it wrote so far is this check's.
        self._read(0.0)
        lines = self._output.decode(errors="replace").splitlines()[-KEPT_LINES:]
        self._output.clear()
        return {**end, "output": lines}

    def finish(self) -> str | None:
        """Let the process end, which may crash too. Return the problem, or None."""
        assert self._process.stdin  # noqa: S101
        self._process.stdin.close()
        try:
            status = self._process.wait(extend(END_SECONDS))
        except subprocess.TimeoutExpired:
            return "the process did not end after its last check"
        return f"after its last check, the process ended with {describe_exit(status)}" if status else None

    def kill(self) -> None:
        """End the process and all that it started."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        os.close(self._reader)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream  # noqa: S101
            with suppress(BrokenPipeError):
                stream.close()

    def _send(self, message: object) -> None:
        assert self._process.stdin  # noqa: S101
        with suppress(BrokenPipeError):  # it is dead, which the wait for its answer detects
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _event(self, seconds: float) -> dict[str, Any] | None:
        """Return the next event, or None if the process has ended or the time is over."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._events:
            dead, left = self._process.poll() is not None, deadline - time.monotonic()
            self._read(0.0 if dead else max(0.0, min(TICK_SECONDS, left)))
            if (dead or left <= 0) and b"\n" not in self._events:
                return None
        line, _, rest = bytes(self._events).partition(b"\n")
        self._events[:] = rest
        event: dict[str, Any] = json.loads(line)
        return event

    def _lost(self, limit: float) -> tuple[str, str]:
        """Return outcome and reason of a check that ended the process, or did not end within `limit`."""
        status = self._process.poll()
        if status is None:
            self._signal(TELL_WHERE)
            latest = time.monotonic() + LAST_WORDS_SECONDS
            while time.monotonic() < latest and self._read(QUIET_SECONDS):
                pass
            return (
                "timed-out",
                f"expected an end within {limit:.0f} s, found none: it hangs, or the machine is too slow",
            )
        if oom_kills() > self._oom_kills:
            return "crashed", "the kernel killed its process: the container ran out of memory; give it more"
        return "crashed", f"its process ended with {describe_exit(status)}"

    def _read(self, seconds: float) -> bool:
        """Read available output; wait at most `seconds` for it. Return whether anything was read."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
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
        return bool(ready)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # all its processes have ended
            os.killpg(self._process.pid, number)


def oom_kills() -> int:
    """Return how many processes of this container the kernel has killed for lack of memory; 0 if unknown."""
    lines: list[str] = []
    for name in OOM_FILES:
        with suppress(OSError):
            lines += Path("/sys/fs/cgroup", name).read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
