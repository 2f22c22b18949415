"""Work in other threads is ended from outside, whether it waits for a program or for something else."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import tfimg
from tfimg.core.cancellation import Cancellation, map_in_threads, on_cancel, raise_if_cancelled, run_ahead
from tfimg.core.errors import Interrupted
from tfimg.core.process import CommandFailed, defer_signals, run, stream_stderr

ENV = {"PATH": os.defpath}


def covered(cancellation: Cancellation, work: Callable[[], object]) -> object:
    with cancellation.activate():
        return work()


def wait_forever() -> None:
    for _ in stream_stderr(["sh", "-c", "echo ready >&2; exec sleep 60"], env=ENV):
        pass


@pytest.mark.parametrize("work", [wait_forever, lambda: run(["sleep", "60"], env=ENV)], ids=["stream", "run"])
def test_programs_of_a_thread_end_with_its_work(work: Callable[[], object]) -> None:
    cancellation = Cancellation()
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        futures: list[Future[object]] = [pool.submit(covered, cancellation, work) for _ in range(3)]
        time.sleep(0.3)
        cancellation.cancel()
        for future in futures:
            with pytest.raises(CommandFailed):
                future.result(timeout=30)
    assert time.monotonic() - began < 20


def test_what_begins_too_late_is_ended_at_once_and_what_has_ended_is_not_ended_again() -> None:
    cancellation, ended, late = Cancellation(), threading.Event(), threading.Event()
    with cancellation.activate(), on_cancel(ended.set):
        pass
    cancellation.cancel()
    with cancellation.activate(), on_cancel(late.set):
        assert late.wait(10)
    assert not ended.wait(0.05)


def test_one_that_cannot_be_ended_keeps_no_other() -> None:
    cancellation, ended, stuck = Cancellation(), threading.Event(), threading.Event()
    with cancellation.activate(), on_cancel(lambda: 1 // 0), on_cancel(stuck.wait), on_cancel(ended.set):
        cancellation.cancel()
        assert ended.wait(10)
    stuck.set()  # its thread would be found by tests that look for threads


def test_work_ends_between_its_steps_and_another_thread_s_work_goes_on() -> None:
    cancellation = Cancellation()
    with cancellation.activate():
        raise_if_cancelled()
        cancellation.cancel()
        with pytest.raises(Interrupted):
            raise_if_cancelled()
        with ThreadPoolExecutor() as pool:
            pool.submit(raise_if_cancelled).result()
    raise_if_cancelled()


def test_signals_are_held_back_in_the_main_thread_alone() -> None:
    """Python delivers them nowhere else; another thread must not fail."""
    with ThreadPoolExecutor() as pool:
        assert pool.submit(defer_signals().__enter__).result(10) is None


def test_work_ahead_begins_at_once_and_its_result_or_error_comes_on_demand() -> None:
    begun = threading.Event()
    with run_ahead(lambda: begun.set() or 7) as result:  # type: ignore[func-returns-value]
        assert begun.wait(10)
        assert result() == 7
    with run_ahead(lambda: 1 // 0) as result, pytest.raises(ZeroDivisionError):
        result()


def test_work_ahead_ends_when_the_block_fails() -> None:
    ended = threading.Event()

    def work() -> None:
        with on_cancel(ended.set):
            assert ended.wait(10)

    with pytest.raises(KeyError), run_ahead(work):
        raise KeyError
    assert ended.is_set()


def test_work_ahead_ends_with_the_work_that_waits_for_it() -> None:
    outer, began, ended = Cancellation(), threading.Event(), threading.Event()

    def work() -> None:
        with on_cancel(ended.set):
            began.set()
            assert ended.wait(30)
        raise_if_cancelled()

    with outer.activate(), run_ahead(work) as result:
        assert began.wait(30)
        outer.cancel()
        with pytest.raises(Interrupted):
            result()


def test_a_caller_that_stops_cancels_what_runs_and_begins_no_other() -> None:
    began: list[int] = []

    def work(number: int) -> int:
        began.append(number)
        return number if number == 0 else len(run(["sleep", "60"], env=ENV))

    start = time.monotonic()
    results = map_in_threads(work, range(100), threads=2)
    assert next(results) == 0
    results.close()
    assert time.monotonic() - start < 20
    assert len(began) <= 4


def test_results_come_in_order_and_an_error_ends_the_rest() -> None:
    began: list[int] = []

    def work(number: int) -> int:
        began.append(number)
        time.sleep((10 - number) / 100)
        return 1 // (number - 3)

    results = map_in_threads(work, range(1000), threads=3)
    assert [next(results) for _ in range(3)] == [-1, -1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert len(began) < 1000


def test_work_of_cancelled_work_begins_no_other() -> None:
    """As the advisories that a fix looks up: threads within a thread."""
    began: list[int] = []

    def work(number: int) -> None:
        began.append(number)
        time.sleep(0.01)

    def outer(_: int) -> list[None]:
        return list(map_in_threads(work, range(2000), threads=2))

    results = map_in_threads(lambda number: outer(number) if number else [], range(2), threads=2)
    assert next(results) == []
    while not began:
        time.sleep(0.01)
    results.close()
    assert len(began) < 1000


TWO_INTERRUPTS = """
import os, signal, threading, time
from tfimg.core.cancellation import map_in_threads

def read():
    for _ in map_in_threads(lambda number: time.sleep(2 * number), range(3), threads=2):
        os.kill(os.getpid(), signal.SIGINT)

threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    read()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_second_interrupt_prints_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", TWO_INTERRUPTS], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")


def test_threads_are_started_where_an_interruption_ends_their_work() -> None:
    """A pool of its own waits at the end of its block for each request that waits for a server."""
    folder = Path(tfimg.__file__).parent
    found = {
        str(file.relative_to(folder)) for file in folder.rglob("*.py") if "ThreadPoolExecutor(" in file.read_text()
    }
    assert found == {"core/cancellation.py", "layers/layers.py", "build/batch.py", "validation/workers.py"}
