"""Run checks in worker processes and report the end of each, also if its process crashed.

A check that crashes or hangs loses only its own result: a new worker continues after it. On a processor, checks run at
the same time, as `split` says; their events come in the order of the checks all the same.
"""

from __future__ import annotations

import json
import os
import queue
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from check_runner import describe_exit, make_end_event
from contract import is_isolated
from emulation import extend
from limits import time_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import IO, Any

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
OUT_OF_MEMORY = "the container ran out of memory; give it more"
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


class Lanes(NamedTuple):
    """Names of checks that run one after the other; what is in different lanes runs at the same time."""

    image: Sequence[str]
    shared: Sequence[str]
    listening: Sequence[str]
    isolated: Sequence[str]


def split(order: Order) -> Lanes | None:
    """Return what runs at the same time, or None if all checks run one after the other.

    Checks that need no TensorFlow, which stand before its import in the table, run beside the import. The process that
    has imported it then forks two for isolated checks, one of them for those that listen, and one for all others.
    Isolated checks start servers and write files: they wait for the quiet ones, which look for such things and are
    therefore the first.

    On an accelerator, checks measure time and memory of a device that only one process should use.
    """
    facts = order.facts
    if IMPORT not in order.names or facts.device == "tpu" or (facts.device, facts.level) == ("gpu", "validated"):
        return None
    before = set(takewhile(lambda name: name != IMPORT, order.table))
    after = [name for name in order.names if name not in before and name != IMPORT]
    return Lanes(
        sorted((name for name in order.names if name in before), key=lambda name: not order.table[name].quiet),
        [name for name in after if not is_isolated(order.table[name], facts)],
        [name for name in after if is_isolated(order.table[name], facts) and order.table[name].listens],
        [name for name in after if is_isolated(order.table[name], facts) and not order.table[name].listens],
    )


def supervise(order: Order, emit: Emit) -> str | None:
    """Run all checks, with an event at the start and end of each. Return the problem after the last, or None."""
    suite = Suite(order)
    try:
        suite.start()
        for name in order.names:
            emit({"event": "start", "check": name})
            emit(suite.wait_for(name))
        return suite.finish()
    finally:
        suite.stop()


class Suite:
    """The checks of an order while they run, in a thread for each lane."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._no_tensorflow: str | None = None
        self._told: queue.Queue[dict[str, Any] | BaseException] = queue.Queue()
        self._ends: dict[str, dict[str, Any]] = {}
        self._problems: list[str | None] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._runners: set[Runner] = set()
        self._is_stopped = False
        self._quiet = {name for name in order.names if order.table[name].quiet}
        self._quiet_done, self._imported = threading.Event(), threading.Event()
        self._base: Worker | None = None

    def start(self) -> None:
        """Start the threads."""
        lanes = split(self._order)
        if lanes is None:
            self._start(lambda: self._run(self._order.names))
            return
        # In this thread, with whose end it would be killed (PR_SET_PDEATHSIG).
        self._base = self._make_worker(forks=3)
        self._start(lambda: self._run(lanes.image), self._quiet_done)
        self._start(self._import, self._imported)
        self._start(lambda: self._run_after(lanes.shared, 0, self._imported))
        for fork, names in enumerate((lanes.listening, lanes.isolated), 1):
            self._start(partial(self._run_after, names, fork, self._imported, self._quiet_done))

    def wait_for(self, name: str) -> dict[str, Any]:
        """Return the event of a check's end. Raises what a thread raised."""
        while name not in self._ends:
            self._take_end()
        return self._ends.pop(name)

    def finish(self) -> str | None:
        """Wait until all processes have ended. Return the first problem, or None."""
        for thread in self._threads:
            thread.join()
        while not self._told.empty():
            self._take_end()
        if self._base:
            self._problems.append(self._base.finish())
        return next(filter(None, self._problems), None)

    def stop(self) -> None:
        """End all processes, and with them the threads."""
        with self._lock:
            self._is_stopped = True
            for runner in self._runners:
                runner.signal(signal.SIGKILL)
        for thread in self._threads:
            thread.join()
        for runner in [*self._runners]:
            self._remove(runner)

    def _take_end(self) -> None:
        told = self._told.get()
        if isinstance(told, BaseException):
            raise told
        self._ends[told["check"]] = told

    def _start(self, run: Callable[[], None], done: threading.Event | None = None) -> None:
        def act() -> None:
            try:
                run()
            except Exception as error:
                self._told.put(error)
            finally:
                if done:
                    done.set()

        self._threads.append(threading.Thread(target=act, daemon=True))
        self._threads[-1].start()

    def _import(self) -> None:
        assert self._base  # noqa: S101
        if self._ask(self._base, IMPORT):
            self._base.close_names()  # it forks then
        else:
            self._base = None

    def _run_after(self, names: Sequence[str], fork: int, *events: threading.Event) -> None:
        for event in events:
            event.wait()
        self._run(names, self._base.forks[fork] if self._base else None)

    def _run(self, names: Sequence[str], runner: Runner | None = None) -> None:
        """Run checks one after the other.

        On a TPU image, isolated checks have a worker of their own, which leaves the TPU to the other one.
        """
        runners: dict[bool, Runner] = {False: runner} if runner else {}
        for name in names:
            without_tpu = self._order.facts.device == "tpu" and is_isolated(self._order.table[name], self._order.facts)
            if without_tpu not in runners:
                runners[without_tpu] = self._make_worker(WITHOUT_TPU if without_tpu else {})
            if not self._ask(runners[without_tpu], name):
                del runners[without_tpu]
        for one in runners.values():
            self._problems.append(one.finish())
            self._remove(one)

    def _ask(self, runner: Runner, name: str) -> bool:
        """Run a check. Return whether the process is there for another one."""
        end = runner.run(name)
        if name == IMPORT and end["outcome"] != "passed":
            self._no_tensorflow = end["reason"]
        self._quiet.discard(name)
        if not self._quiet:
            self._quiet_done.set()
        is_lost = end["outcome"] in LOST
        if is_lost:
            self._remove(runner)
        self._told.put(end)
        return not is_lost

    def _make_worker(self, environment: Mapping[str, str] | None = None, forks: int = 0) -> Worker:
        with self._lock:
            if self._is_stopped:
                raise RuntimeError("the suite was stopped")
            worker = Worker(self._order, self._no_tensorflow, environment or {}, forks)
            self._runners.update([worker, *worker.forks])
        return worker

    def _remove(self, runner: Runner) -> None:
        with self._lock:
            self._runners.discard(runner)
            runner.kill()


class Runner:
    """A process that runs checks, one when it is told to, in a session of its own with all that it starts."""

    def __init__(self, order: Order, names: IO[bytes], events: int, output: int) -> None:
        self._order, self._names = order, names
        self._oom_kills = oom_kills()
        self._events, self._output = bytearray(), bytearray()
        self._pipes = {events: self._events, output: self._output}
        self._selector = selectors.DefaultSelector()
        for pipe in self._pipes:
            self._listen(pipe)

    def run(self, name: str) -> dict[str, Any]:
        """Run a check and return the event of its end, also if the process died or hung."""
        limit = time_limit(self._order.table[name], self._order.facts, self._order.gpus)
        began, kills = time.monotonic(), oom_kills()
        self._send(name)
        end = self._event(limit)
        if end is None:
            end = make_end_event(name, *self._lost(limit), time.monotonic() - began)
        elif end["outcome"] == "failed" and oom_kills() > kills:
            # A child of the check, as a rule.
            end["reason"] += "; meanwhile the kernel killed a process: " + OUT_OF_MEMORY
        self._oom_kills = oom_kills()
        # It waits for the next name: all that it wrote so far is this check's.
        self._read(0.0)
        lines = self._output.decode(errors="replace").splitlines()[-KEPT_LINES:]
        self._output.clear()
        return {**end, "output": lines}

    def finish(self) -> str | None:
        """Let the process end, which may crash too. Return the problem, or None."""
        self.close_names()
        status = self._wait(extend(END_SECONDS))
        if status is None:
            return "the process did not end after its last check"
        return f"after its last check, the process ended with {describe_exit(status)}" if status else None

    def close_names(self) -> None:
        """Tell the process that no other check comes."""
        with suppress(BrokenPipeError):
            self._names.close()

    def kill(self) -> None:
        """End the process and all that it started."""
        self.signal(signal.SIGKILL)
        self._wait(None)
        self._selector.close()
        self.close_names()
        for pipe in self._pipes:
            os.close(pipe)

    def signal(self, number: int) -> None:
        """Send a signal to the process and all that it started."""
        group = self._group()
        if group:
            with suppress(ProcessLookupError):  # all its processes have ended
                os.killpg(group, number)

    def _send(self, message: object) -> None:
        with suppress(BrokenPipeError):  # it is dead, which the wait for its answer detects
            self._names.write(json.dumps(message).encode() + b"\n")
            self._names.flush()

    def _event(self, seconds: float) -> dict[str, Any] | None:
        """Return the next event, or None if the process has ended or the time is over."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._events:
            dead, left = self._status() is not None, deadline - time.monotonic()
            self._read(0.0 if dead else max(0.0, min(TICK_SECONDS, left)))
            if (dead or left <= 0) and b"\n" not in self._events:
                return None
        line, _, rest = bytes(self._events).partition(b"\n")
        self._events[:] = rest
        event: dict[str, Any] = json.loads(line)
        return event

    def _lost(self, limit: float) -> tuple[str, str]:
        """Return outcome and reason of a check that ended the process, or did not end within `limit`."""
        status = self._status()
        if status is None:
            self.signal(TELL_WHERE)
            latest = time.monotonic() + LAST_WORDS_SECONDS
            has_told = False
            while time.monotonic() < latest:
                has_read = self._read(QUIET_SECONDS)
                if has_told and not has_read:
                    break
                has_told |= has_read
            return (
                "timed-out",
                f"expected an end within {limit:.0f} s, found none: it hangs, or the machine is too slow",
            )
        if oom_kills() > self._oom_kills:
            return "crashed", "the kernel killed its process: " + OUT_OF_MEMORY
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

    def _listen(self, pipe: int) -> None:
        os.set_blocking(pipe, False)
        self._selector.register(pipe, selectors.EVENT_READ)

    def _status(self) -> int | None:
        """Return how the process ended, as `subprocess` tells it; None if it runs."""
        raise NotImplementedError

    def _wait(self, seconds: float | None) -> int | None:
        """Wait for the end of the process, and return its status; None if it still runs after so many seconds."""
        raise NotImplementedError

    def _group(self) -> int | None:
        """Return the process group, which is a session too; None if there is none yet."""
        raise NotImplementedError


class Worker(Runner):
    """A process with an interpreter of its own. `environment` is added to this process's.

    When no other name comes, it becomes the parent of `forks`.
    """

    def __init__(self, order: Order, no_tensorflow: str | None, environment: Mapping[str, str], forks: int = 0) -> None:
        pipes = [[os.pipe() for _ in range(4)] for _ in range(forks)]
        reader, writer = os.pipe()
        # Of a fork: its names are read, all else is written.
        given = [[names[0], *(pipe[1] for pipe in others)] for names, *others in pipes]
        passed = [writer, *(end for ends in given for end in ends)]
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(writer)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, pass_fds=passed, start_new_session=True, env={**os.environ, **environment},
        )  # fmt: skip
        for end in passed:
            os.close(end)
        assert self._process.stdin  # noqa: S101
        assert self._process.stdout  # noqa: S101
        super().__init__(order, self._process.stdin, reader, os.dup(self._process.stdout.fileno()))
        self._process.stdout.close()
        self.forks = [Fork(order, names[1], *(pipe[0] for pipe in others)) for names, *others in pipes]
        self._send(
            {"table": order.module, "facts": asdict(order.facts), "no_tensorflow": no_tensorflow, "forks": given}
        )

    def _status(self) -> int | None:
        return self._process.poll()

    def _wait(self, seconds: float | None) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def _group(self) -> int:
        return self._process.pid


class Fork(Runner):
    """A fork of a worker, which tells on the pipe `life` when it begins and when it ends."""

    def __init__(self, order: Order, names: int, events: int, output: int, life: int) -> None:
        super().__init__(order, os.fdopen(names, "wb"), events, output)
        self._life = bytearray()
        self._pipes[life] = self._life
        self._listen(life)
        self._life_pipe = life

    def _status(self) -> int | None:
        status = self._told(b"status")
        if status is None and self._life_pipe not in self._selector.get_map():
            return -signal.SIGKILL  # the worker has ended, and its forks with it
        return status

    def _wait(self, seconds: float | None) -> int | None:
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._status() is None and (deadline is None or time.monotonic() < deadline):
            self._read(TICK_SECONDS)
        return self._status()

    def _group(self) -> int | None:
        return self._told(b"process")

    def _told(self, word: bytes) -> int | None:
        found = re.search(word + rb" (-?\d+)\n", bytes(self._life))
        return int(found.group(1)) if found else None


def oom_kills() -> int:
    """Return how many processes of this container the kernel has killed for lack of memory; 0 if unknown."""
    lines: list[str] = []
    for name in OOM_FILES:
        with suppress(OSError):
            lines += Path("/sys/fs/cgroup", name).read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
