"""The suite's supervisor with real workers: what crashes, hangs or prints costs its own result at most."""

import os
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import supervisor
from contract import Check, Facts
from explain import explain
from supervisor import Order, split, supervise

TABLE = """
import ctypes, os, subprocess, sys, time
from contract import Check, CheckFailed, CheckSkipped, claimed
from framework import attempt, tensorflow

def good(facts): return {"python": facts.python, "pid": os.getpid()}
def bad(facts): raise CheckFailed("expected 1, found 2", found=2)
def unclaimed(facts): return {"cuda": claimed(facts.cuda, "CUDA")}
def broken(facts): return {"never": 1 // 0}
def quits(facts): raise SystemExit("a library gave up")
def leaves(facts): os._exit(0)
def odd(facts): return {"loss": float("nan"), "path": os.path, "shape": (2, 3)}
def crashes(facts):
    print("last words", flush=True)
    ctypes.string_at(0)
def aborts(facts): os.abort()
def hangs(facts):
    subprocess.Popen(["sleep", os.environ["TFIMG_TEST_SLEEP"]])
    time.sleep(300)
def noisy(facts):
    print("from Python")
    ctypes.CDLL(None).puts(b"from C, buffered")
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    os.write(2, b'{"event": "end", "check": "noisy", "outcome": "failed"}' + bytes([10]))
    return {}
def floods(facts):
    for number in range(200_000): print("line", number)
    return {}
def closes(facts):
    sys.stdout.close()
    return {}
def uses_tensorflow(facts): return {"version": tensorflow().__version__}
def sees_tpu(facts): return {"tpu": tensorflow().TPU, "pid": os.getpid(), "parent": os.getppid()}
def meets(own, other):
    open(own, "w").close()
    latest = time.monotonic() + 10
    while not os.path.exists(other):
        if time.monotonic() > latest: raise CheckFailed(f"{other} did not run beside {own}")
        time.sleep(0.01)
    return {"pid": os.getpid(), "parent": os.getppid()}
def beside_import(facts): return meets("examined", "imported")
def imports(facts):
    if attempt().error: raise attempt().error
    return meets("imported", "examined") if os.path.exists("rendezvous") else {}
def slow(facts):
    time.sleep(0.5)
    open("slow", "w").close()
    return {}
def pid(facts): return {"pid": os.getpid(), "parent": os.getppid()}
def starved(facts):
    with open("oom", "a") as events: events.write("oom_kill 1\\n")
    raise CheckFailed("expected the child's answer, found none", found=None)
def after_slow(facts): return {"slow": os.path.exists("slow")}

CHECKS = {
    "beside": Check(lambda facts: meets("image", "other")), "beside import": Check(beside_import),
    "slow": Check(slow), "quiet": Check(slow, quiet=True), "environment.import_tensorflow": Check(imports)}
CHECKS.update({function.__name__: Check(function, seconds=20) for function in (
    good, bad, unclaimed, broken, quits, leaves, odd, crashes, aborts, noisy, floods, closes, starved,
    uses_tensorflow)})
CHECKS["hangs"] = Check(hangs, seconds=1)
CHECKS["apart"] = Check(good, isolated=True)
CHECKS["crashes apart"] = Check(crashes, isolated=True)
CHECKS["tpu"] = Check(sees_tpu)
CHECKS["tpu apart"] = Check(sees_tpu, isolated=True)
CHECKS["tpu listed"] = Check(sees_tpu, isolated=True, sees_tpu=True)
CHECKS["hangs apart"] = Check(hangs, isolated=True, seconds=1)
CHECKS["sleeps"] = Check(hangs)
CHECKS["sleeps apart"] = Check(hangs, isolated=True)
CHECKS["meets"] = Check(lambda facts: meets("shared", "isolated"))
CHECKS["meets apart"] = Check(lambda facts: meets("isolated", "shared"), isolated=True)
CHECKS["pid"] = Check(pid)
CHECKS["pid apart"] = Check(pid, isolated=True)
CHECKS["after quiet"] = Check(after_slow, isolated=True)
CHECKS["beside apart"] = Check(lambda facts: meets("other", "image"), isolated=True)
CHECKS["listens"] = Check(pid, isolated=True, listens=True)
CHECKS["meets listening"] = Check(lambda facts: meets("listening", "not"), isolated=True, listens=True)
CHECKS["does not listen"] = Check(lambda facts: meets("not", "listening"), isolated=True)
CHECKS["listens too"] = Check(pid, isolated=True, listens=True)
"""
IMPORT = "environment.import_tensorflow"
SLEEP = f"300.{os.getpid()}"
"""Seconds that no other process sleeps."""
TENSORFLOW = "__version__ = '2.99'\n"


class Run:
    """Runs checks of the table above, with a module that stands for TensorFlow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "planted_table.py").write_text(TABLE)
        self.tensorflow = TENSORFLOW
        self.facts = Facts(python="3.11")
        self.problem: str | None = None

    def order(self, *names: str) -> Order:
        """Return the order for these checks."""
        (self.folder / "tensorflow.py").write_text(self.tensorflow)
        namespace: dict[str, Any] = {}
        exec(compile(TABLE, "planted_table", "exec"), namespace)  # noqa: S102
        table: dict[str, Check] = namespace["CHECKS"]
        return Order(table, "planted_table", names, self.facts)

    def __call__(self, *names: str) -> dict[str, dict[str, Any]]:
        events: list[dict[str, Any]] = []
        self.problem = supervise(self.order(*names), events.append)
        # Every start has its end, in the requested order.
        assert [(event["event"], event["check"]) for event in events] == [
            (kind, name) for name in names for kind in ("start", "end")
        ]
        return {event["check"]: event for event in events if event["event"] == "end"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFIMG_TEST_SLEEP", SLEEP)
    monkeypatch.setattr(supervisor, "QUIET_SECONDS", 1.0)
    return Run(tmp_path)


def outcomes(ends: dict[str, dict[str, Any]]) -> list[str]:
    return [end["outcome"] for end in ends.values()]


def test_one_process_runs_all_checks_that_behave(run: Run) -> None:
    ends = run("good", "bad", "unclaimed", "broken", "odd")
    assert outcomes(ends) == ["passed", "failed", "skipped", "failed", "passed"]
    assert (ends["good"]["measured"]["python"], ends["bad"]["measured"]) == ("3.11", {"found": 2})
    assert ends["unclaimed"]["reason"] == "the facts say nothing about CUDA, so there is nothing to compare with"
    assert ends["broken"]["reason"].startswith("ZeroDivisionError: ")
    assert any("in broken" in line for line in ends["broken"]["measured"]["traceback"])
    assert (ends["odd"]["measured"]["loss"], ends["odd"]["measured"]["shape"]) == ("nan", [2, 3])
    assert run.problem is None


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        ("crashes", "its process ended with signal 11 (SIGSEGV)"),
        ("crashes apart", "its process ended with signal 11 (SIGSEGV)"),
        ("aborts", "its process ended with signal 6 (SIGABRT)"),
        ("leaves", "its process ended with exit status 0"),
    ],
)
def test_a_crash_costs_only_its_check(run: Run, check: str, reason: str) -> None:
    ends = run("bad", check, "good")
    assert outcomes(ends) == ["failed", "crashed", "passed"]
    assert ends[check]["reason"] == reason
    assert run.problem is None
    if check == "crashes":
        assert ends[check]["output"][0] == "last words"
        assert any("in crashes" in line for line in ends[check]["output"])


@pytest.mark.parametrize("check", ["hangs", "hangs apart"])
def test_a_hang_costs_only_its_check_and_leaves_no_process(run: Run, check: str) -> None:
    began = time.monotonic()
    ends = run("good", check, "bad")
    assert time.monotonic() - began < 20
    assert outcomes(ends) == ["passed", "timed-out", "failed"]
    assert ends[check]["reason"].startswith("expected an end within 1 s, found none")
    assert any("in hangs" in line for line in ends[check]["output"])
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"sleep {SLEEP}" not in running.splitlines()


def test_a_check_on_an_accelerator_has_the_time_of_limits(run: Run) -> None:
    run.facts = Facts(python="3.11", device="gpu", level="validated")
    assert run("hangs")["hangs"]["reason"].startswith("expected an end within 3 s, found none")


def test_a_failure_while_the_kernel_kills_for_memory_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a check's child: it fails then, and the worker lives. The file stands for the kernel's."""
    (run.folder / "oom").write_text("oom_kill_disable 0\n")
    monkeypatch.setattr(supervisor, "OOM_FILES", [str(run.folder / "oom")])
    ends = run("bad", "starved", "broken", "crashes", "good")
    assert outcomes(ends) == ["failed", "failed", "failed", "crashed", "passed"]
    assert ends["starved"]["reason"] == (
        "expected the child's answer, found none; meanwhile the kernel killed a process: the container ran out of "
        "memory; give it more"
    )
    assert ends["starved"]["measured"] == {"found": None}
    assert [one.issue for one in explain(ends["starved"]["reason"])] == ["out-of-memory"]
    assert [name for name, end in ends.items() if "kernel" in str(end["reason"])] == ["starved"]


def test_a_check_that_exits_or_closes_stdout_costs_nothing_more(run: Run) -> None:
    ends = run("quits", "closes", "good")
    assert outcomes(ends) == ["failed", "passed", "passed"]
    assert ends["quits"]["reason"] == "SystemExit: a library gave up"


def test_what_a_check_prints_is_kept_as_its_own_and_is_no_event(run: Run) -> None:
    ends = run("good", "noisy", "floods", "bad")
    assert outcomes(ends) == ["passed", "passed", "passed", "failed"]
    assert {"from Python", "from C, buffered", "from a child"} <= set(ends["noisy"]["output"])
    assert ends["good"]["output"] == []
    assert (len(ends["floods"]["output"]), ends["floods"]["output"][-1]) == (60, "line 199999")


def test_an_isolated_check_runs_in_a_process_of_its_own(run: Run) -> None:
    ends = run("apart", "good")
    assert outcomes(ends) == ["passed", "passed"]
    assert ends["apart"]["measured"]["pid"] != ends["good"]["measured"]["pid"]


# As TensorFlow does, at its import.
LOADS_TPU = TENSORFLOW + "import os\nTPU = os.environ.get('TPU_LOAD_LIBRARY') != '0'\n"


def test_one_process_opens_a_tpu_and_isolated_checks_are_forks_of_another(run: Run) -> None:
    run.tensorflow, run.facts = LOADS_TPU, replace(run.facts, device="tpu")
    ends = run("tpu listed", "tpu apart", "tpu", "apart")
    measured = {name: end["measured"] for name, end in ends.items()}
    assert [measured[name]["tpu"] for name in ("tpu listed", "tpu apart", "tpu")] == [True, False, True]
    assert measured["tpu listed"]["pid"] == measured["tpu"]["pid"] != measured["tpu apart"]["parent"]


def test_on_other_images_isolated_checks_are_forks_of_the_only_process(run: Run) -> None:
    run.tensorflow, run.facts = LOADS_TPU, replace(run.facts, device="gpu")
    ends = run("tpu listed", "tpu apart", "tpu")
    measured = [ends[name]["measured"] for name in ("tpu listed", "tpu apart", "tpu")]
    assert [one["tpu"] for one in measured] == [True] * 3
    assert measured[0]["parent"] == measured[1]["parent"] == measured[2]["pid"]


def test_a_crash_without_the_tpu_leaves_the_process_that_has_it(run: Run) -> None:
    run.tensorflow, run.facts = LOADS_TPU, replace(run.facts, device="tpu")
    ends = run("tpu", "crashes apart", "tpu apart", "tpu listed")
    assert outcomes(ends) == ["passed", "crashed", "passed", "passed"]
    assert ends["tpu"]["measured"]["pid"] == ends["tpu listed"]["measured"]["pid"]


@pytest.mark.parametrize(
    ("tensorflow", "outcome", "reason"),
    [
        ("raise RuntimeError('planted')", "failed", "RuntimeError: planted"),
        ("import sys; sys.exit('gone')", "failed", "SystemExit: gone"),
        ("import os; os.kill(os.getpid(), 4)", "crashed", "its process ended with signal 4 (SIGILL)"),
    ],
)
def test_a_tensorflow_that_does_not_import_is_reported_once(
    run: Run, tensorflow: str, outcome: str, reason: str
) -> None:
    run.tensorflow = tensorflow
    ends = run(IMPORT, "uses_tensorflow", "apart", "good")
    assert outcomes(ends) == [outcome, "skipped", "passed", "passed"]
    assert ends[IMPORT]["reason"] == reason
    assert ends["uses_tensorflow"]["reason"].endswith("see environment.import_tensorflow")


def test_a_process_that_crashes_after_its_last_check_is_reported(run: Run) -> None:
    run.tensorflow += "import atexit, os\natexit.register(os.abort)\n"
    assert outcomes(run("uses_tensorflow")) == ["passed"]
    assert run.problem == "after its last check, the process ended with signal 6 (SIGABRT)"


def test_what_needs_no_tensorflow_runs_beside_its_import(run: Run) -> None:
    (run.folder / "rendezvous").touch()
    assert outcomes(run("beside import", IMPORT)) == ["passed", "passed"]


def test_isolated_checks_run_beside_the_others_in_forks_of_what_no_check_has_used(run: Run) -> None:
    ends = run(IMPORT, "meets", "meets apart", "pid", "pid apart")
    assert outcomes(ends) == ["passed"] * 5
    shared, isolated = ends["meets"]["measured"], ends["meets apart"]["measured"]
    assert shared["pid"] == ends["pid"]["measured"]["pid"]
    assert shared["pid"] not in (isolated["parent"], ends["pid apart"]["measured"]["parent"])
    assert isolated["pid"] != ends["pid apart"]["measured"]["pid"]


def test_isolated_checks_wait_for_quiet_ones_alone(run: Run) -> None:
    ends = run("beside", "quiet", IMPORT, "after quiet", "beside apart")
    assert outcomes(ends) == ["passed"] * 5
    assert ends["after quiet"]["measured"] == {"slow": True}


def test_of_checks_that_listen_one_runs_after_the_other_beside_other_isolated_ones(run: Run) -> None:
    ends = run(IMPORT, "listens", "meets listening", "does not listen", "listens too")
    assert outcomes(ends) == ["passed"] * 5
    assert ends["listens"]["measured"]["parent"] == ends["listens too"]["measured"]["parent"]
    assert ends["listens"]["measured"]["parent"] != ends["does not listen"]["measured"]["parent"]


@pytest.mark.parametrize("facts", [{"device": "gpu", "level": "validated"}, {"device": "tpu", "level": "linked"}])
def test_on_an_accelerator_one_check_runs_after_the_other(run: Run, facts: dict[str, str]) -> None:
    run.facts = Facts(python="3.11", **facts)
    assert split(run.order("slow", IMPORT, "good", "apart")) is None


@pytest.mark.parametrize(
    ("check", "outcome"),
    [("crashes", "crashed"), ("crashes apart", "crashed"), ("hangs", "timed-out"), ("hangs apart", "timed-out")],
)
def test_a_crash_or_hang_costs_nothing_of_what_runs_beside_it(run: Run, check: str, outcome: str) -> None:
    ends = run("quiet", IMPORT, check, "good", "apart", "after quiet")
    assert outcomes(ends) == ["passed", "passed", outcome, "passed", "passed", "passed"]
    assert any(f"in {check.split()[0]}" in line for line in ends[check]["output"])
    assert run.problem is None


def test_a_crash_after_the_last_check_is_reported_of_a_fork_too(run: Run) -> None:
    run.tensorflow += "import atexit, os\natexit.register(os.abort)\n"
    assert outcomes(run(IMPORT, "uses_tensorflow", "apart")) == ["passed"] * 3
    assert run.problem == "after its last check, the process ended with signal 6 (SIGABRT)"


def test_an_interruption_leaves_no_process(run: Run) -> None:
    def interrupt(event: dict[str, Any]) -> None:
        if event["check"] == "sleeps":
            time.sleep(0.5)
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        supervise(run.order(IMPORT, "sleeps", "sleeps apart"), interrupt)
    assert time.monotonic() - began < 20
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert f"sleep {SLEEP}" not in running.splitlines()
    assert [thread for thread in threading.enumerate() if thread.daemon] == []
