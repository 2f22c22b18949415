"""Calls into shared libraries, and questions in a process of their own. Neither TensorFlow nor NVIDIA is needed."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import abi
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


def test_a_short_string_on_the_heap_is_a_string(compiled: ctypes.CDLL) -> None:
    assert abi.called(compiled.shrunk) == "xxx"


@pytest.mark.parametrize("function", ["code", "message"])
def test_a_status_that_is_an_error_has_no_string(compiled: ctypes.CDLL, function: str) -> None:
    assert abi.called(compiled[function], *abi.view(b"ptxas")) is None


def test_vectors_of_strings_come_back(compiled: ctypes.CDLL) -> None:
    assert abi.strings(compiled.names) == ["short", "y" * 40, ""]
    assert abi.strings(compiled.no_names) == []


def test_a_status_is_read_from_memory_and_from_the_register(compiled: ctypes.CDLL) -> None:
    fine, errors = (
        ["status_ok", "status_null", "register_ok"],
        ["status_code", "status_message", "register_code"],
    )
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
    raise ValueError("not what anybody expected")


@pytest.mark.parametrize(
    ("act", "answer"),
    [
        (lambda: {"version": [12, 2]}, {"version": [12, 2]}),
        (lambda: None, None),
        (lambda: "x" * 100_000, "x" * 100_000),
        (prints, "the answer"),
        (refuses, "libx.so: cannot open"),
        (is_broken, "the process ended with status 1: ValueError: not what anybody expected"),
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
    told = native.load(LIBC, str(text), "libabsent.so.1")
    assert told[LIBC] is None
    assert "libtext.so" in str(told[str(text)])
    assert "libabsent.so.1: cannot open shared object file" in str(told["libabsent.so.1"])


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
    told = native.versions(*(str(toolkit / name) for name in TOOLKIT), "libcurand.so.10", "libother.so.1")
    assert told["nvidia-cublas"] == "12.5.3"
    assert told["nvidia-cuda-runtime"] == "12.5"
    assert told["nvidia-cufft"] == "cufftGetProperty failed"
    assert "undefined symbol: cusolverGetProperty" in told["nvidia-cusolver"]
    assert told["nvidia-nccl"] == f"{native.NOT_CHECKED}: ncclGetVersion needs the driver"
    assert "libcurand.so.10: cannot open" in told["nvidia-curand"]
    assert len(told) == 6


def test_a_library_that_refuses_its_version_is_an_error(toolkit: Path) -> None:
    with pytest.raises(OSError, match="brokenGetVersion answered 2"):
        native.number(str(toolkit / "compiled.so"), "brokenGetVersion", str)


def test_parts_of_cudnn_and_the_driver_are_asked(toolkit: Path) -> None:
    one = str(toolkit / "compiled.so")
    told = native.cudnn(one, "cudnnOpsVersionCheck", "cudnnCnnVersionCheck", "cudnnAdvVersionCheck")
    assert list(told.values())[:2] == [0, 1003]
    assert "undefined symbol" in told["cudnnAdvVersionCheck"]
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
    """What is asked in place of native.py."""
    monkeypatch.setattr(native_client, "SCRIPT", tmp_path / "script.py")
    monkeypatch.setattr(native_client, "SECONDS", 20)
    native_client.ask.cache_clear()
    yield tmp_path / "script.py"
    native_client.ask.cache_clear()


def test_a_question_is_asked_once_with_its_arguments(script: Path) -> None:
    script.write_text("import json, sys; print(json.dumps([*sys.argv[1:]]))")
    assert native_client.ask("load", "a b", "c") == ["load", "a b", "c"]
    script.unlink()
    assert native_client.ask("load", "a b", "c") == ["load", "a b", "c"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("import os; os.abort()", "found signal 6 (SIGABRT): there was no output; see its output"),
        ("raise SystemExit('libx.so is missing')", "found exit status 1: libx.so is missing"),
        (
            "import os; os.write(2, b'\\xff\\n'); raise SystemExit(3)",
            "found exit status 3: \N{REPLACEMENT CHARACTER}",
        ),
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


def test_an_unknown_question_is_a_failure() -> None:
    with pytest.raises(CheckFailed, match="KeyError"):
        native_client.ask("no such question")


@pytest.mark.parametrize(
    ("flags", "folder"),
    [
        ("", ""),
        ("--xla_dump_to=/x", ""),
        ("--xla_gpu_cuda_data_dir=/a/b", "/a/b"),
        ("--xla_dump_to=/x --xla_gpu_cuda_data_dir=/a --xla_gpu_cuda_data_dir=/b", "/b"),
        ("--no--xla_gpu_cuda_data_dir=/a", ""),
    ],
)
def test_the_folder_that_xla_takes_first_is_read_from_its_flags(flags: str, folder: str) -> None:
    assert native.data_folder(flags) == folder
