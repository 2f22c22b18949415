"""Calls into shared libraries, forks, and questions in a process of their own, without TensorFlow or NVIDIA."""

import ctypes
import ctypes.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import abi
import fork_group
import forks
import native
import native_client
import pytest
from contract import CheckFailed

from support.c_compiler import compile_shared
from support.processes import children

LONG = "/usr/local/cuda/bin/ptxas, which is longer than what a std::string keeps in itself"
SOURCE = r"""
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// A status as Abseil has them: one word, not trivially copyable.
struct Status { uintptr_t word; ~Status() {} };
// StatusOr<std::string>: the value is there only if the status is OK.
struct StatusOr {
  uintptr_t word;
  union { std::string value; };
  StatusOr(uintptr_t word) : word(word) { if (word >> 2 == 0) new (&value) std::string; }
  StatusOr(StatusOr&& other) : word(other.word) {
    if (word >> 2 == 0) new (&value) std::string(std::move(other.value));
  }
  ~StatusOr() { if (word >> 2 == 0) value.~basic_string(); }
};
static StatusOr with(uintptr_t word, std::string_view text) { StatusOr made(word); made.value = text; return made; }

extern "C" {
std::string join(const std::string& left, const std::string& right) { return left + right; }
std::string join_views(std::string_view left, std::string_view right) { return std::string(left).append(right); }
// On the heap, although it is short.
std::string shrunk() { std::string made(100, 'x'); made.resize(3); return made; }
StatusOr null_is_ok(std::string_view text) { return with(0, text); }
StatusOr one_is_ok(std::string_view text) { return with(1, text); }
StatusOr code(std::string_view) { return StatusOr(5 << 2 | 1); }
StatusOr message(std::string_view) { return StatusOr(reinterpret_cast<uintptr_t>(new char[64])); }
std::vector<std::string> names() { return {"short", std::string(40, 'y'), ""}; }
std::vector<std::string> no_names() { return {}; }
Status status_ok() { return {1}; }
Status status_null() { return {0}; }
Status status_code() { return {5 << 2 | 1}; }
Status status_message() { return {reinterpret_cast<uintptr_t>(new char[64])}; }
uintptr_t register_ok() { return 1; }
uintptr_t register_code() { return 5 << 2 | 1; }
}
"""


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if platform.machine() != "x86_64":
        pytest.skip("the calling convention of another processor is not known")
    compiler, folder = shutil.which("c++"), tmp_path_factory.mktemp("compiled")
    if compiler is None:
        pytest.skip("no c++; the one in the ziglang wheel has another C++ library than TensorFlow")
    (folder / "source").write_text(SOURCE)
    options = ["-std=c++17", "-xc++", "-w", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "source", "-o", "compiled.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "compiled.so"))


@pytest.mark.parametrize("text", ["", "ptxas", "x" * 15, "x" * 16, LONG])
def test_strings_go_in_and_come_back(compiled: ctypes.CDLL, text: str) -> None:
    given = text.encode()
    assert abi.called(compiled.join, abi.string(given), abi.string(b"")) == text
    assert abi.called(compiled.join_views, *abi.view(given), *abi.view(b"")) == text
    assert abi.called(compiled.null_is_ok, *abi.view(given)) == text
    assert abi.called(compiled.one_is_ok, *abi.view(given)) == text
    assert abi.called(compiled.shrunk) == "xxx", "short, and on the heap"


def test_an_error_status_has_no_string_and_vectors_of_strings_come_back(compiled: ctypes.CDLL) -> None:
    assert [abi.called(compiled[name], *abi.view(b"ptxas")) for name in ("code", "message")] == [None, None]
    assert abi.strings(compiled.names) == ["short", "y" * 40, ""]
    assert abi.strings(compiled.no_names) == []


def test_a_status_is_read_from_memory_and_from_the_register(compiled: ctypes.CDLL) -> None:
    fine, errors = ["status_ok", "status_null", "register_ok"], ["status_code", "status_message", "register_code"]
    assert [name for name in (*fine, *errors) if abi.status_is_ok(compiled[name])] == fine


def test_a_function_is_found_in_the_first_library_that_has_it(
    compiled: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = [ctypes.CDLL(None), compiled]
    assert abi.find(libraries, "no_such_function", "names") is compiled.names
    assert abi.find(libraries, "no_such_function") is None
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert abi.find(libraries, "names") is None


def complains_and_dies() -> None:
    os.write(2, b"first\nlibnvrtc.so cannot be opened\n")
    os.kill(os.getpid(), signal.SIGKILL)


def prints() -> str:
    os.write(1, b"from C++\n")
    return "the answer"


def refuses() -> None:
    raise OSError("libx.so: cannot open")


def is_broken() -> None:
    raise ValueError("an unexpected value")


@pytest.mark.parametrize(
    ("act", "answer"),
    [
        (lambda: {"version": [12, 2]}, {"version": [12, 2]}),
        (lambda: None, None),
        (lambda: "x" * 100_000, "x" * 100_000),
        (prints, "the answer"),
        (refuses, "libx.so: cannot open"),
        (is_broken, "the process ended with status 1: ValueError: an unexpected value"),
        (lambda: sys.exit(3), "the process ended with status 1: SystemExit: 3"),
        (lambda: os._exit(7), "the process ended with status 7: there was no output"),
        (complains_and_dies, "the process ended with signal 9: libnvrtc.so cannot be opened"),
    ],
)
def test_a_fork_answers_or_reports_how_it_ended(act: Any, answer: object) -> None:
    assert forks.call_in_fork(act) == answer


def test_a_fork_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "FORK_SECONDS", 1)
    began = time.monotonic()
    assert forks.call_in_fork(partial(time.sleep, 60)) == (
        "the process ended with signal 14 after 1 s: there was no output"
    )
    assert time.monotonic() - began < 10


def test_forks_leave_no_zombies() -> None:
    before = children()
    forks.call_in_fork(refuses)
    forks.call_in_fork(complains_and_dies)
    assert children() <= before


LIBC = "libc.so.6"


def test_a_library_loads_or_the_loader_says_why_not(tmp_path: Path) -> None:
    text = tmp_path / "libtext.so"
    text.write_text("no library")
    reported = native.load(LIBC, str(text), "libabsent.so.1")
    assert reported[LIBC] is None
    assert "libtext.so" in str(reported[str(text)])
    assert "libabsent.so.1: cannot open shared object file" in str(reported["libabsent.so.1"])


VERSIONS = r"""
int cublasGetProperty(int kind, int* value) { *value = kind == 0 ? 12 : kind == 1 ? 5 : 3; return 0; }
int cufftGetProperty(int kind, int* value) { return 1; }
int cudaRuntimeGetVersion(int* value) { *value = 12050; return 0; }
int ncclGetVersion(int* value) { return 35; }
int brokenGetVersion(int* value) { return 2; }
int cudnnOpsVersionCheck(void) { return 0; }
int cudnnCnnVersionCheck(void) { return 1003; }
int cuInit(int flags) { return 34; }
"""


TOOLKIT = ("libcublas.so.12", "libcufft.so.11", "libcusolver.so.11", "libcudart.so.12", "libnccl.so.2")


@pytest.fixture(scope="session")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of libraries that are called like NVIDIA's."""
    folder = tmp_path_factory.mktemp("toolkit")
    one = compile_shared(VERSIONS, folder / "compiled.so")
    for name in TOOLKIT:
        shutil.copy(one, folder / name)
    return folder


def test_libraries_report_their_versions(toolkit: Path) -> None:
    reported = native.versions(*(str(toolkit / name) for name in TOOLKIT), "libcurand.so.10", "libother.so.1")
    assert reported["nvidia-cublas"] == "12.5.3"
    assert reported["nvidia-cuda-runtime"] == "12.5"
    assert reported["nvidia-cufft"] == "cufftGetProperty failed"
    assert "undefined symbol: cusolverGetProperty" in reported["nvidia-cusolver"]
    assert reported["nvidia-nccl"] == f"{native.NOT_CHECKED}: ncclGetVersion needs the driver"
    assert "libcurand.so.10: cannot open" in reported["nvidia-curand"]
    assert len(reported) == 6


def test_a_library_that_refuses_its_version_is_an_error(toolkit: Path) -> None:
    with pytest.raises(OSError, match="brokenGetVersion answered 2"):
        native.number(str(toolkit / "compiled.so"), "brokenGetVersion", str)


def test_parts_of_cudnn_and_the_driver_are_queried(toolkit: Path) -> None:
    one = str(toolkit / "compiled.so")
    reported = native.cudnn(one, "cudnnOpsVersionCheck", "cudnnCnnVersionCheck", "cudnnAdvVersionCheck")
    assert list(reported.values())[:2] == [0, 1003]
    assert "undefined symbol" in reported["cudnnAdvVersionCheck"]
    assert str(native.cudnn("libcuda.so.absent", "x")["x"]).startswith(native.NOT_CHECKED)
    assert native.driver(one) == {one: 34}


def test_opened_libraries_of_nvidia_are_seen(toolkit: Path, tmp_path: Path) -> None:
    spaced = tmp_path / "a folder with spaces" / "libcudart.so.12"
    spaced.parent.mkdir()
    shutil.copy(toolkit / "libcudart.so.12", spaced)
    assert forks.call_in_fork(lambda: (ctypes.CDLL(str(spaced)), native.opened())[1]) == {
        "libcudart.so.12": str(spaced)
    }


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What runs in place of native.py."""
    monkeypatch.setattr(native_client, "SCRIPT", tmp_path / "script.py")
    monkeypatch.setattr(native_client, "SECONDS", 20)
    native_client.ask.cache_clear()
    yield tmp_path / "script.py"
    native_client.ask.cache_clear()


def test_a_question_runs_the_script_once_with_its_arguments(script: Path) -> None:
    script.write_text("import json, sys; print(json.dumps([*sys.argv[1:]]))")
    assert native_client.ask("load", "a b", "c") == ["load", "a b", "c"]
    script.unlink()
    assert native_client.ask("load", "a b", "c") == ["load", "a b", "c"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("import os; os.abort()", "found signal 6 (SIGABRT): there was no output; see its output"),
        ("raise SystemExit('libx.so is missing')", "found exit status 1: libx.so is missing"),
        ("import os; os.write(2, b'\\xff\\n'); raise SystemExit(3)", "exit status 3: \N{REPLACEMENT CHARACTER}"),
        ("print('Loading ...')", "in JSON, found b'Loading ...\\n'"),
        ("", "in JSON, found b''"),
    ],
)
def test_a_process_that_does_not_answer_is_a_failure(script: Path, content: str, complaint: str) -> None:
    script.write_text(content)
    with pytest.raises(CheckFailed) as caught:
        native_client.ask("gate")
    assert complaint in caught.value.reason
    assert "output" in caught.value.measured


def test_a_process_that_hangs_is_a_failure(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(native_client, "SECONDS", 0.2)
    with pytest.raises(CheckFailed, match=r"about gate within 0\.2 s, found none"):
        native_client.ask("gate")


LOUD = """
#include <stdio.h>
__attribute__((constructor)) void loads(void) { puts("loaded"); fflush(stdout); }
__attribute__((destructor)) void goes(void) { puts("gone"); }
"""


def test_what_a_library_prints_stays_out_of_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`native.py` as it is run, of a TensorFlow whose one library prints when it is loaded and when it goes."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").touch()
    compile_shared(LOUD, tmp_path / "tensorflow" / "libtensorflow_framework.so.2")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    native_client.ask.cache_clear()
    answer = native_client.ask("gate")
    native_client.ask.cache_clear()
    assert (answer["gate"], answer["named"]) == (None, {})


def test_a_machine_without_tensorflow_is_a_failure_that_says_so() -> None:
    script = Path(native.__file__)
    done = subprocess.run([sys.executable, str(script), "gate"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (1, "TensorFlow is not installed")


def test_the_folder_that_xla_takes_first_is_read_from_its_flags() -> None:
    for flags in ("", "--xla_dump_to=/x", "--no--xla_gpu_cuda_data_dir=/a"):
        assert native.data_folder(flags) == ""
    assert native.data_folder("--xla_gpu_cuda_data_dir=/a/b") == "/a/b"
    assert native.data_folder("--xla_dump_to=/x --xla_gpu_cuda_data_dir=/a --xla_gpu_cuda_data_dir=/b") == "/b"


SUITE = Path(fork_group.__file__).parent
CAUSE = "the cause is unknown"


def speaks_and_dies() -> None:
    os.write(2, b"ready\nthe last words\n")
    os.kill(os.getpid(), signal.SIGKILL)


def raises() -> None:
    # Pytest has put another stream there.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    print("buffered words")
    raise ValueError("no such thing")


def refuses_check() -> None:
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
    reported = "expected chief, worker to do their parts within 30 s, found worker: signal 9 (the last words)"
    assert caught.value.reason == f"{reported}: {CAUSE}"
    assert caught.value.measured["output"]["worker"] == ("ready", "the last words")


def test_the_death_of_a_serving_one_counts() -> None:
    acts = {"ps": speaks_and_dies, "chief": partial(time.sleep, 60)}
    with pytest.raises(CheckFailed, match=r"found ps: signal 9 \(the last words\): the cause"):
        fork_group.call_in_forks(acts, 30, CAUSE, serving=["ps"])


def test_an_exception_is_named_with_what_was_printed() -> None:
    with pytest.raises(CheckFailed, match=r"found one: status 1 \(ValueError: no such thing\)") as caught:
        fork_group.call_in_forks({"one": raises}, 10, CAUSE)
    assert caught.value.measured["output"]["one"][0] == "buffered words"


def test_a_failed_check_in_a_fork_fails_its_parent_alike() -> None:
    with pytest.raises(CheckFailed) as caught:
        fork_group.call_in_forks({"hangs": partial(time.sleep, 60), "one": refuses_check}, 30, CAUSE)
    assert (caught.value.reason, caught.value.measured) == ("expected one, found two: three", {"number": 2})


def test_a_hang_ends_at_the_limit() -> None:
    began = time.monotonic()
    with pytest.raises(CheckFailed, match=r"within 0\.5 s, found one: no answer within 0\.5 s: the cause"):
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
    reported = tmp_path / "pid"
    script = (
        "import os, pathlib, time, fork_group\n"
        "def act():\n"
        f"    pathlib.Path({str(reported)!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "fork_group.collect_results({'one': act}, 60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], env={"PYTHONPATH": str(SUITE)})
    wait_for(lambda: reported.exists() and reported.read_text() != "")
    parent.kill()
    parent.wait()
    wait_for(lambda: has_ended(int(reported.read_text())))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
