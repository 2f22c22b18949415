"""Several forks at once: what they answer, how they fail, and that none of them is left. No TensorFlow is needed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import fork_group
import pytest
from contract import CheckFailed

from support.processes import children

SUITE = Path(fork_group.__file__).parent
CAUSE = "nobody knows; ask"


def speaks_and_dies() -> None:
    os.write(2, b"ready\nthe last words\n")
    os.kill(os.getpid(), signal.SIGKILL)


def raises() -> None:
    # Pytest has put another stream there.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    print("buffered words")
    raise ValueError("no such thing")


def refuses() -> None:
    raise CheckFailed("expected one, found two: three", number=2)


def open_files() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_calls_run_at_the_same_time_and_an_early_answer_keeps_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> int:
            return server.fileno()

        def visit() -> str:
            # The kernel accepts for the server, whose process has answered by now.
            time.sleep(0.3)
            socket.create_connection(server.getsockname(), 5).close()
            return "met"

        assert fork_group.call_in_forks({"server": serve, "visitor": visit}, 10, CAUSE)["visitor"] == "met"


def test_every_call_answers_from_a_process_of_its_own() -> None:
    larger_than_a_pipe = "x" * 300_000
    acts = {"one": os.getpid, "two": os.getpid, "three": lambda: [1, None, larger_than_a_pipe]}
    found = fork_group.call_in_forks(acts, 10, CAUSE)
    assert len({found["one"], found["two"], os.getpid()}) == 3
    assert found["three"] == [1, None, larger_than_a_pipe]
    assert has_ended(found["one"])
    assert has_ended(found["two"])


def test_a_server_process_is_ended_and_its_end_is_no_failure() -> None:
    began = time.monotonic()
    acts = {"server": partial(time.sleep, 60), "client": os.getpid}
    assert list(fork_group.call_in_forks(acts, 30, CAUSE, serving=["server"])) == ["client"]
    assert time.monotonic() - began < 5


def test_a_death_ends_the_others_at_once_and_is_named() -> None:
    began = time.monotonic()
    with pytest.raises(CheckFailed) as caught:
        fork_group.call_in_forks({"chief": partial(time.sleep, 60), "worker": speaks_and_dies}, 30, CAUSE)
    assert time.monotonic() - began < 5
    told = "expected chief, worker to do their parts within 30 s, found worker: signal 9 (the last words)"
    assert caught.value.reason == f"{told}: {CAUSE}"
    assert caught.value.measured["output"]["worker"] == ("ready", "the last words")


def test_the_death_of_a_serving_one_counts() -> None:
    acts = {"ps": speaks_and_dies, "chief": partial(time.sleep, 60)}
    with pytest.raises(CheckFailed, match=r"found ps: signal 9 \(the last words\): nobody"):
        fork_group.call_in_forks(acts, 30, CAUSE, serving=["ps"])


def test_an_exception_is_named_with_what_was_printed() -> None:
    with pytest.raises(CheckFailed, match=r"found one: status 1 \(ValueError: no such thing\)") as caught:
        fork_group.call_in_forks({"one": raises}, 10, CAUSE)
    assert caught.value.measured["output"]["one"][0] == "buffered words"


def test_a_failed_check_in_a_fork_is_the_same_failure_here() -> None:
    with pytest.raises(CheckFailed) as caught:
        fork_group.call_in_forks({"hangs": partial(time.sleep, 60), "one": refuses}, 30, CAUSE)
    assert (caught.value.reason, caught.value.measured) == ("expected one, found two: three", {"number": 2})


def test_a_hang_ends_at_the_limit() -> None:
    began = time.monotonic()
    with pytest.raises(CheckFailed, match=r"within 0\.5 s, found one: no answer within 0\.5 s: nobody"):
        fork_group.call_in_forks({"one": partial(time.sleep, 60), "two": os.getpid}, 0.5, CAUSE)
    assert time.monotonic() - began < 5


def test_an_ending_reports_the_signal_and_leaves_no_pipe_and_no_child() -> None:
    before, running = open_files(), children()
    words = ("ready", "the last words")
    died = fork_group.CallResult(failure="signal 9 (the last words)", signal=9, output=words)
    # Each ends its group: together, the first would have the other killed before it has died by itself.
    for last in (raises, speaks_and_dies):
        ended = fork_group.collect_results({"one": os.getpid, "two": partial(time.sleep, 60), "last": last}, 10)
        assert (ended["last"] == died) is (last is speaks_and_dies)
    assert open_files() == before
    assert children() <= running


def test_no_orphan_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    script = (
        "import os, pathlib, time, fork_group\n"
        "def act():\n"
        f"    pathlib.Path({str(told)!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "fork_group.collect_results({'one': act}, 60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], env={"PYTHONPATH": str(SUITE)})
    wait_for(lambda: told.exists() and told.read_text() != "")
    parent.kill()
    parent.wait()
    wait_for(lambda: has_ended(int(told.read_text())))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
