"""What the suite asks NVIDIA's driver, of a libcuda that is compiled for these tests: GPUs, memory, errors, crashes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import driver
import native_client
import pytest
from checks import gpu
from contract import Facts
from driver import Driver, Gpu

from support.fake_driver import fake_driver, fake_environment

SUITE = Path(driver.__file__).parent
MIG = "name=NVIDIA_H100_80GB_HBM3_MIG_1g.10gb major=9 minor=0 total=9984"

Ask = Callable[..., Driver]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Ask a driver that answers so, in this process's environment with these variables."""

    def ask_driver(answers: str, **variables: str) -> Driver:
        for name, value in fake_environment(answers, **variables).items():
            monkeypatch.setenv(name, value)
        native_client.ask.cache_clear()
        return driver.ask_driver()

    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    yield ask_driver
    native_client.ask.cache_clear()


@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_driver_describes_each_gpu(ask: Ask, count: int) -> None:
    told = ask(f"devices={count} name=NVIDIA_L4 major=8 minor=9 total=23034 cuda=12040")
    assert told == Driver("12.4", [Gpu("NVIDIA L4", "8.9", 23034)] * count, None)


def test_a_slice_of_a_gpu_is_one_gpu_with_its_own_memory(ask: Ask) -> None:
    assert ask(MIG).gpus == [Gpu("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9.0", 9984)]


@pytest.mark.parametrize(("visible", "count"), [("0", 1), ("1,0", 2), ("0,7,1", 1), ("0,1,2,3", 2)])
def test_only_gpus_that_the_environment_shows_count(ask: Ask, visible: str, count: int) -> None:
    assert len(ask("devices=2", CUDA_VISIBLE_DEVICES=visible).gpus) == count


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ("devices=0", "cuInit returned 100 (CUDA_ERROR_NO_DEVICE)"),
        ("cuInit=802", "cuInit returned 802 (CUDA_ERROR_SYSTEM_NOT_READY)"),
        ("cuInit=803", "cuInit returned 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)"),
        ("cuInit=999", "cuInit returned 999 (CUDA_ERROR_UNKNOWN)"),
        ("cuInit=12345", "cuInit returned 12345 (an error of the CUDA driver API)"),
        ("cuDeviceGetCount=3", "cuDeviceGetCount returned 3 (CUDA_ERROR_NOT_INITIALIZED)"),
        ("devices=2 cuDeviceGetName=101", "cuDeviceGetName returned 101 (CUDA_ERROR_INVALID_DEVICE)"),
        ("cuDeviceGetAttribute=999", "cuDeviceGetAttribute returned 999 (CUDA_ERROR_UNKNOWN)"),
        ("cuDeviceTotalMem_v2=46", "cuDeviceTotalMem_v2 returned 46 (CUDA_ERROR_DEVICE_UNAVAILABLE)"),
    ],
)
def test_an_error_of_the_driver_is_named_with_the_call(ask: Ask, answers: str, problem: str) -> None:
    assert ask(f"cuda=11040 {answers}") == Driver("11.4", [], problem)


def test_a_driver_that_crashes_is_a_problem_and_nothing_else(ask: Ask) -> None:
    told = ask("crash=1")
    assert (told.cuda, told.gpus) == (None, ())
    assert "signal 11 (SIGSEGV)" in str(told.problem)


def test_a_driver_that_hangs_is_a_problem_after_its_time(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_client, "SECONDS", 1)
    monkeypatch.setattr(driver, "START_SECONDS", 0)
    told = ask("hang=60")
    assert told.gpus == ()
    assert "within 1 s, found none: a library hangs" in str(told.problem)


def test_no_driver_is_a_problem(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    told = ask("", LD_LIBRARY_PATH=str(tmp_path))
    assert (told.cuda, told.gpus) == (None, [])
    assert "libcuda.so.1: file too short" in str(told.problem)


def test_the_first_gpu_reports_its_capability(ask: Ask) -> None:
    ask("devices=2 major=8 minor=6")
    assert driver.capability() == (8, 6)
    ask("cuInit=999")
    assert driver.capability() is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("9.0", (9, 0)), ("9.0a", (9, 0)), ("12.0a", (12, 0)), ("10.0f", (10, 0)), ("sm_90", (9, 0)),
     ("sm_120a", (12, 0)), ("compute_100f", (10, 0)), ("compute_80", (8, 0))],
)  # fmt: skip
def test_a_capability_is_read_without_its_suffix(text: str, number: tuple[int, int]) -> None:
    assert driver.parse_capability(text) == number


@pytest.mark.parametrize("text", ["", "9", "9.0b", "sm_9", "sm_90a_", "9.0 "])
def test_an_invalid_capability_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a compute capability"):
        driver.parse_capability(text)


@pytest.mark.parametrize(
    ("architectures", "capability", "code"),
    [
        (["sm_70", "compute_80"], "8.9", True),
        (["sm_70", "compute_80"], "7.5", True),
        (["sm_70", "compute_80"], "9.0", False),
        (["sm_80", "sm_89", "compute_90"], "9.0a", True),
        (["sm_80", "sm_89", "compute_90"], "12.0", False),
        (["sm_35", "sm_75"], "7.0", False),
    ],
)
def test_code_runs_on_the_same_major_from_its_minor_on(architectures: list[str], capability: str, code: bool) -> None:
    assert driver.has_code(architectures, capability) is code


def free_memory(answers: str) -> subprocess.CompletedProcess[str]:
    """Ask for the free memory in a process whose loader finds the library."""
    command = [sys.executable, "-c", "import driver; print(driver.free_bytes())"]
    environment = fake_environment(answers, PYTHONPATH=str(SUITE))
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_free_memory_is_the_drivers_and_its_context_is_given_back() -> None:
    done = free_memory("free=70000")
    assert int(done.stdout.split()[-1]) == 70000 << 20
    assert done.stderr == "contexts 0 pushed 0\n"


@pytest.mark.parametrize(
    ("answers", "complaint", "given_back"),
    [
        ("cuInit=802", "OSError: cuInit returned 802 (CUDA_ERROR_SYSTEM_NOT_READY)", False),
        ("cuDevicePrimaryCtxRetain=2", "OSError: cuDevicePrimaryCtxRetain returned 2", False),
        ("cuMemGetInfo_v2=999", "OSError: cuMemGetInfo_v2 returned 999", True),
    ],
)
def test_memory_that_is_not_reported_is_an_error_that_leaves_no_context(
    answers: str, complaint: str, given_back: bool
) -> None:
    done = free_memory(answers)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert ("contexts 0" in done.stderr) is given_back


def test_a_libcuda_in_an_image_is_asked_whether_it_is_a_stub(ask: Ask) -> None:
    ask("cuInit=34")
    library = str(fake_driver() / "libcuda.so.1")
    assert native_client.ask("driver", library) == {library: 34}


def run_suite(answers: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the suite for a GPU that is to be validated, with this driver."""
    command = [sys.executable, str(SUITE), "--device", "gpu", "--level", "validated", *arguments]
    environment = fake_environment(answers, **variables)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("answers", "variables", "asked"),
    [
        ("devices=0", {}, False),
        ("devices=1", {}, False),
        ("devices=2", {}, True),
        ("devices=8", {}, True),
        ("devices=2", {"CUDA_VISIBLE_DEVICES": "0"}, False),
        (MIG, {}, False),
        ("devices=2 cuInit=803", {}, False),
        ("crash=1", {}, False),
    ],
)
def test_nccl_is_asked_where_the_driver_shows_several_gpus(
    answers: str, variables: dict[str, str], asked: bool
) -> None:
    names = run_suite(answers, "--list", **variables).stdout.split()
    assert ("gpu.nccl" in names, "gpu.visible" in names) == (asked, True)


def test_the_first_event_reports_what_the_driver_reported() -> None:
    done = run_suite("devices=2 name=NVIDIA_L4 major=8 minor=9 total=23034", "--json", "--only", "environment.python")
    first = json.loads(done.stdout.splitlines()[0])
    assert first["environment"]["nvidia"] == {
        "cuda": "12.4", "problem": None,
        "gpus": [{"name": "NVIDIA L4", "capability": "8.9", "memory_mib": 23034}] * 2,
    }  # fmt: skip
    assert "gpu.nccl" not in first["unproven"]


class Listed:
    """A GPU as TensorFlow lists it, and what it tells of it."""

    def __init__(self, **details: Any) -> None:
        self.details = details


def get_details(listed: Listed) -> dict[str, Any]:
    if not listed.details:
        raise ValueError("invalid literal for int() with base 10: '0a'")
    return listed.details


def test_a_gpu_is_identified_by_the_driver(ask: Ask) -> None:
    told = gpu.identify([Listed()], ask("name=NVIDIA_H200 major=9 minor=0"), get_details)
    assert told == {"gpu": ["NVIDIA H200"], "capability": ["9.0"], "memory_mib": [143771]}


def test_a_gpu_that_the_driver_does_not_confirm_is_no_failure(ask: Ask) -> None:
    h100, unknown = Listed(device_name="NVIDIA H100", compute_capability=(9, 0)), Listed()
    told = gpu.identify([h100, unknown], ask("cuInit=999"), get_details)
    assert (told["gpu"], told["capability"]) == (["NVIDIA H100", "unknown"], ["9.0", "unknown"])
    assert "(cuInit returned 999 (CUDA_ERROR_UNKNOWN))" in told["warnings"][0]


def test_only_gpus_that_tensorflow_lists_are_evidence(ask: Ask) -> None:
    told = gpu.identify([Listed(device_name="NVIDIA A100", compute_capability=(8, 0))], ask("devices=2"), get_details)
    assert (told["gpu"], told["capability"]) == (["NVIDIA A100"], ["8.0"])
    assert "it lists 2: NVIDIA H200, NVIDIA H200" in told["warnings"][0]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ("cuInit=802", "cuInit returned 802 (CUDA_ERROR_SYSTEM_NOT_READY): GPUs behind NVSwitch need"),
        (
            "cuInit=803",
            "(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH): the driver was updated under its old kernel module",
        ),
        ("cuInit=804", "(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE): a CUDA compatibility library"),
        ("cuInit=999", "(CUDA_ERROR_UNKNOWN): reload the driver's module"),
        ("cuInit=46", "(CUDA_ERROR_DEVICE_UNAVAILABLE): another process has the GPU for itself"),
        ("cuInit=304", "(CUDA_ERROR_OPERATING_SYSTEM): see nvidia-smi on the machine"),
        ("cuda=11040 cuInit=999", "knows CUDA up to 11.4, and the image has 12.2"),
        ("crash=1", "found signal 11 (SIGSEGV)"),
        (
            "devices=2 major=3 minor=7 name=Tesla_K80",
            "Tesla K80 has compute capability 3.7, and this TensorFlow has",
        ),
        ("devices=2", "the driver lists 2 and TensorFlow none: a library did not load"),
    ],
)
def test_the_reason_for_no_gpu_is_the_drivers(ask: Ask, answers: str, reason: str) -> None:
    seen = gpu.Seen(environment={}, nodes=["/dev/nvidia0"], module=True, driver=ask(answers))
    facts = Facts(device="gpu", cuda="12.2", architectures=["sm_50", "compute_80"])
    assert reason in gpu.why_none(seen, facts)
