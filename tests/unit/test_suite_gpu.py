"""What the suite asks NVIDIA's driver, of a libcuda compiled for these tests, and what it concludes about GPUs."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import driver
import native_client
import pytest
from checks import CHECKS, devices, gpu, gpu_start, profiler
from contract import Check, CheckFailed, CheckSkipped, Facts
from driver import START_SECONDS, Driver, Gpu
from emulation import FACTOR, VARIABLE
from explain import explain
from limits import PTX_SECONDS, VALIDATED_FACTOR, time_limit

from support.fake_driver import fake_driver, fake_environment
from support.paths import ROOT

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
    result = ask(f"devices={count} name=NVIDIA_L4 major=8 minor=9 total=23034 cuda=12040")
    assert result == Driver("12.4", [Gpu("NVIDIA L4", "8.9", 23034)] * count, None)


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
    result = ask("crash=1")
    assert (result.cuda, result.gpus) == (None, ())
    assert "signal 11 (SIGSEGV)" in str(result.problem)


def test_a_driver_that_hangs_is_a_problem_after_its_time(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_client, "SECONDS", 1)
    monkeypatch.setattr(driver, "START_SECONDS", 0)
    result = ask("hang=60")
    assert result.gpus == ()
    assert "within 1 s, found none: a library hangs" in str(result.problem)


def test_no_driver_is_a_problem(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    result = ask("", LD_LIBRARY_PATH=str(tmp_path))
    assert (result.cuda, result.gpus) == (None, [])
    assert "libcuda.so.1: file too short" in str(result.problem)


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
    for invalid in ("", "9", "9.0b", "sm_9", "sm_90a_", "9.0 "):
        with pytest.raises(ValueError, match="is not a compute capability"):
            driver.parse_capability(invalid)


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


def test_a_libcuda_in_an_image_is_tried_for_a_stub(ask: Ask) -> None:
    ask("cuInit=34")
    library = str(fake_driver() / "libcuda.so.1")
    assert native_client.ask("driver", library) == {library: 34}


def run_suite(answers: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the suite for a GPU that is to be validated, with this driver."""
    command = [sys.executable, str(SUITE), "--device", "gpu", "--level", "validated", *arguments]
    environment = fake_environment(answers, **variables)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("answers", "variables", "requested"),
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
def test_nccl_is_checked_if_the_driver_shows_several_gpus(
    answers: str, variables: dict[str, str], requested: bool
) -> None:
    names = run_suite(answers, "--list", **variables).stdout.split()
    assert ("gpu.nccl" in names, "gpu.visible" in names) == (requested, True)


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
    result = gpu.identify([Listed()], ask("name=NVIDIA_H200 major=9 minor=0"), get_details)
    assert result == {"gpu": ["NVIDIA H200"], "capability": ["9.0"], "memory_mib": [143771]}


def test_a_gpu_that_the_driver_does_not_confirm_is_no_failure(ask: Ask) -> None:
    h100, unknown = Listed(device_name="NVIDIA H100", compute_capability=(9, 0)), Listed()
    result = gpu.identify([h100, unknown], ask("cuInit=999"), get_details)
    assert (result["gpu"], result["capability"]) == (["NVIDIA H100", "unknown"], ["9.0", "unknown"])
    assert "(cuInit returned 999 (CUDA_ERROR_UNKNOWN))" in result["warnings"][0]


def test_only_gpus_that_tensorflow_lists_count(ask: Ask) -> None:
    result = gpu.identify([Listed(device_name="NVIDIA A100", compute_capability=(8, 0))], ask("devices=2"), get_details)
    assert (result["gpu"], result["capability"]) == (["NVIDIA A100"], ["8.0"])
    assert "it lists 2: NVIDIA H200, NVIDIA H200" in result["warnings"][0]


CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)\nGCC: 13\n"


def test_driver_version() -> None:
    assert [gpu.driver_version(text) for text in (CLOSED, OPEN, "")] == ["535.104.05", "570.86.15", None]


@pytest.mark.parametrize(
    ("script", "version"),
    [("echo 580.65.06; echo 580.65.06", "580.65.06"), ("echo 580.65.06; exit 9", None), ("true", None)],
)
def test_nvidia_smi_reports_the_version_where_the_module_does_not(
    tmp_path: Path, script: str, version: str | None
) -> None:
    module, command = tmp_path / "version", tmp_path / "nvidia-smi"
    assert gpu.find_driver_version(module, None) is None
    assert gpu.find_driver_version(module, str(command)) is None
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    assert gpu.find_driver_version(module, str(command)) == version
    module.write_text(CLOSED)
    assert gpu.find_driver_version(module, str(command)) == "535.104.05"


NODE = ["/dev/nvidia0"]
ALL = {"NVIDIA_VISIBLE_DEVICES": "all"}
NONE = Driver(None, (), "libcuda.so.1: cannot open shared object file: No such file or directory")
OLD, FINE = (Driver(cuda, [Gpu("NVIDIA L4", "8.9", 23034)], None) for cuda in ("11.4", "12.0"))
MISMATCH = "cuInit=803"
KEPLER = Driver("12.4", [Gpu("Tesla K80", "3.7", 11441)], None)
FACTS = Facts(device="gpu", cuda="12.2", architectures=["sm_50", "compute_80"])


@pytest.mark.parametrize(
    ("seen", "reason", "issue"),
    [
        (({"CUDA_VISIBLE_DEVICES": ""}, NODE, True, FINE), "CUDA_VISIBLE_DEVICES='' hides it", "no-gpu"),
        (({"CUDA_VISIBLE_DEVICES": "-1"}, [], False, NONE), "CUDA_VISIBLE_DEVICES='-1' hides it", "no-gpu"),
        (({"NVIDIA_VISIBLE_DEVICES": "void"}, [], False, NONE), "='void' keeps it out", "no-gpu"),
        ((ALL, [], False, NONE), "has no NVIDIA driver that runs", "no-gpu"),
        ((ALL, [], True, NONE), "was not handed its GPU", "no-toolkit"),
        (({"CUDA_VISIBLE_DEVICES": "0,1"}, NODE, True, NONE), "no libcuda.so.1 that loads", "no-toolkit"),
        (({}, NODE, True, OLD), "knows CUDA up to 11.4, and the image has 12.2", "driver-too-old"),
        (({}, NODE, True, "cuda=11040 cuInit=999"), "knows CUDA up to 11.4, and the image has 12.2", "driver-too-old"),
        (({}, NODE, True, "cuInit=802"), "SYSTEM_NOT_READY): GPUs behind NVSwitch need", "driver-not-ready"),
        (({}, NODE, True, MISMATCH), "updated under its old kernel module", "driver-mismatch"),
        (({}, NODE, True, "cuInit=804"), "NOT_SUPPORTED_ON_DEVICE): a CUDA compatibility", "forward-compatibility"),
        (({}, NODE, True, "cuInit=999"), "(CUDA_ERROR_UNKNOWN): reload the driver's module", "driver-unknown"),
        (({}, NODE, True, "cuInit=46"), "_UNAVAILABLE): another process has the GPU for itself", "gpu-busy"),
        (({}, NODE, True, "cuInit=304"), "_OPERATING_SYSTEM): see nvidia-smi on the machine", "driver-unknown"),
        (({}, NODE, True, "crash=1"), "found signal 11 (SIGSEGV)", None),
        (({}, NODE, True, KEPLER), "compute capability 3.7, and this TensorFlow has", "gpu-ignored"),
        (({}, NODE, True, FINE), "the driver lists 1 and TensorFlow none: a library did not load", None),
    ],
)  # fmt: skip
def test_reason_for_no_gpu_and_what_is_known_about_it(seen: Any, reason: str, issue: str | None, ask: Ask) -> None:
    *surroundings, answer = seen
    result = gpu.why_none(gpu.Seen(*surroundings, ask(answer) if isinstance(answer, str) else answer), FACTS)
    assert reason in result
    found = [(one.issue, one.fault) for one in explain(f"expected a GPU, found none: {result}")]
    assert found == ([(issue, "host")] if issue else [])


def test_checks_of_a_gpu_run_only_on_a_machine_with_one() -> None:
    own = [check for name, check in CHECKS.items() if name.startswith("gpu.")]
    assert len(own) >= 4
    assert all((check.devices, check.level, check.isolated) == (("gpu",), "validated", True) for check in own)


def test_the_first_kernel_is_the_first_use_of_a_gpu() -> None:
    """What is compiled from PTX is compiled in the check that has the time for it and that tells it."""
    names = list(CHECKS)
    before = names[: names.index("gpu.first_kernel")]
    assert {name.partition(".")[0] for name in before} <= {"environment", "libraries", "compiler", "tpu", "gpu"}
    assert [name for name in before if name.startswith("gpu.")] == ["gpu.visible"]
    assert names.index("gpu.first_kernel") < names.index("devices.listing")


CHECK = Check(lambda _: {}, seconds=60)
VALIDATED = Facts(device="gpu", level="validated", architectures=["sm_80", "compute_80"])
LIMIT = 60.0 * VALIDATED_FACTOR


@pytest.mark.parametrize(
    ("facts", "gpus", "seconds"),
    [
        (replace(VALIDATED, level="linked"), [], 60),
        (replace(VALIDATED, level="linked"), ["9.0"], 60),
        (Facts(device="cpu", level="validated"), [], 60),
        (Facts(device="tpu", level="validated"), [], LIMIT),
        (VALIDATED, [], LIMIT),
        (VALIDATED, ["8.6"], LIMIT + START_SECONDS),
        (VALIDATED, ["8.0"] * 8, LIMIT + 8 * START_SECONDS),
        (VALIDATED, ["9.0"], LIMIT + START_SECONDS + PTX_SECONDS),
        (VALIDATED, ["8.0", "9.0"], LIMIT + 2 * START_SECONDS + PTX_SECONDS),
        (replace(VALIDATED, architectures=None), ["8.0"], LIMIT + START_SECONDS + PTX_SECONDS),
        (replace(VALIDATED, architectures=["compute_90"]), ["9.0a"], LIMIT + START_SECONDS),
    ],
)
def test_the_time_limit_follows_from_the_check_the_facts_and_the_gpus(
    facts: Facts, gpus: list[str], seconds: float
) -> None:
    assert time_limit(CHECK, facts, gpus) == seconds


def started(**seconds: float) -> dict[str, Any]:
    return {"device": "/device:GPU:0", "seconds": {"matmul": 1.0, **seconds}}


def test_a_slow_first_kernel_is_a_failure_where_the_wheel_has_code() -> None:
    quick = gpu_start.judge_first_kernel(started(convolution=20.0), FINE, [])
    assert (quick["total_seconds"], quick["compiled_for"], "warnings" in quick) == (21.0, [], False)
    with pytest.raises(CheckFailed, match="found 500 s: TensorFlow has code for this GPU"):
        gpu_start.judge_first_kernel(started(cast=499.0), FINE, [])


def test_a_slow_first_kernel_is_reported_and_no_failure_where_it_is_compiled_from_ptx() -> None:
    result = gpu_start.judge_first_kernel(started(cast=1499.0), FINE, ["9.0"])
    assert (result["total_seconds"], result["compiled_for"]) == (1500.0, ["9.0"])
    assert "no code for compute capability 9.0" in result["warnings"][0]


def test_a_slow_first_kernel_of_an_unknown_gpu_is_a_failure_that_does_not_guess() -> None:
    unknown = Driver("12.4", (), "cuInit returned 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)")
    with pytest.raises(CheckFailed, match=r"PTX is compiled, or .* slow; it could not be asked \(cuInit"):
        gpu_start.judge_first_kernel(started(cast=499.0), unknown, [])


def test_eight_gpus_have_more_time_for_the_first_kernel() -> None:
    eight = Driver("12.4", [Gpu("NVIDIA H200", "9.0", 143771)] * 8, None)
    assert gpu_start.judge_first_kernel(started(matmul=200.0), eight, [])["total_seconds"] == 200
    with pytest.raises(CheckFailed):
        gpu_start.judge_first_kernel(started(matmul=200.0), FINE, [])


SUM = {"collectives": ["NcclAllReduce"], "replicas": 2, "sums": [[3.0], [3.0]]}


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"collectives": ["AddN"]}, "expected NcclAllReduce in the graph of the sum, found \\['AddN'\\]"),
        ({"collectives": []}, "NCCL was not tried"),
        ({"sums": [[3.0], [2.0]]}, "expected the sum 3.0 on each of 2 GPUs"),
        ({"sums": [[3.0]]}, "expected the sum 3.0 on each of 2 GPUs"),
        ({"replicas": 1}, "expected the sum 3.0 on each of 2 GPUs"),
    ],
)
def test_a_sum_that_is_wrong_or_not_by_nccl_is_a_failure(wrong: dict[str, Any], complaint: str) -> None:
    assert gpu_start.judge_all_reduce(SUM, 2) == {"gpus": 2, **SUM}
    assert gpu_start.judge_all_reduce({**SUM, "replicas": 8, "sums": [[36.0]] * 8}, 8)["gpus"] == 8
    with pytest.raises(CheckFailed, match=complaint):
        gpu_start.judge_all_reduce({**SUM, **wrong}, 2)


DENIED = ["CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"]


@pytest.mark.parametrize(
    ("device", "lines", "errors", "warned"),
    [
        ("/device:CPU:0", {}, [], False),
        ("/device:GPU:0", {"/device:GPU:0": 2}, [], False),
        ("/device:GPU:0", {"/device:GPU:0": 0}, DENIED, True),
        ("/device:GPU:0", {}, [], True),
    ],
)
def test_a_gpu_without_events_in_the_trace_is_a_warning_with_the_fix(
    device: str, lines: dict[str, int], errors: list[str], warned: bool
) -> None:
    result = profiler.judge_gpu_tracing(device, lines, errors)
    assert (result["gpu_lines"], result["errors"]) == (lines, errors)
    assert ("warnings" in result) is warned
    if warned:
        assert "NVreg_RestrictProfilingToAdminUsers=0" in result["warnings"][0]
        assert "--cap-add SYS_ADMIN" in result["warnings"][0]
        assert all(error in result["warnings"][0] for error in errors)


def test_memory_growth_leaves_more_than_half_of_the_memory() -> None:
    good = {"growth": [True, True], "free_mib": 1000, "taken_mib": 499}
    assert gpu_start.judge_memory_growth(good) == good
    for changes in ({"taken_mib": 500}, {"growth": [True, False]}):
        with pytest.raises(CheckFailed, match="of 1000 MiB: TensorFlow ignores the option"):
            gpu_start.judge_memory_growth({**good, **changes})


def test_a_driver_without_free_memory_is_a_failure() -> None:
    script = "from checks import gpu_start; gpu_start.free_memory()"
    suite = str(Path(gpu_start.__file__).parents[1])
    environment = fake_environment("cuMemGetInfo_v2=999", PYTHONPATH=suite)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert "CheckFailed: expected the driver to report its free memory, found cuMemGetInfo_v2 retur" in done.stderr


def test_nccl_adds_up_over_all_gpus_that_are_listed_and_one_of_two_is_a_failure() -> None:
    names = ["/physical_device:GPU:0", "/physical_device:GPU:1"]
    assert gpu_start.several(names, FINE) == ["GPU:0", "GPU:1"]
    two = Driver("12.4", [Gpu("NVIDIA L4", "8.9", 23034)] * 2, None)
    with pytest.raises(CheckFailed, match="all 2 GPUs of the driver, found 1"):
        gpu_start.several(names[:1], two)


def test_a_memory_limit_holds_on_a_gpu() -> None:
    good = {"device": "/device:GPU:0", "limit_mib": 512, "beyond": "ResourceExhaustedError"}
    assert devices.judge_memory_limit(good) == good
    for changes in ({"beyond": "no error"}, {"device": "/device:CPU:0"}):
        with pytest.raises(CheckFailed, match="TensorFlow ignores the limit"):
            devices.judge_memory_limit({**good, **changes})


@pytest.mark.parametrize(
    ("device", "kinds"), [("cpu", ["CPU"]), ("gpu", ["CPU", "GPU"]), ("tpu", ["CPU", "TPU", "TPU_SYSTEM"])]
)
def test_the_accelerator_of_the_image_belongs_beside_the_cpu(device: str, kinds: list[str]) -> None:
    devices.require_kinds(kinds, Facts(device=device, level="validated"), {})


@pytest.mark.parametrize(
    ("device", "kinds", "reason"),
    [
        ("gpu", ["GPU"], "expected a CPU, found none"),
        ("cpu", ["CPU", "GPU"], r"no accelerator beside CPU, found \['GPU'\]"),
        ("gpu", ["CPU", "GPU", "TPU"], r"no accelerator beside GPU, found \['TPU'\]"),
    ],
)
def test_a_device_too_few_or_too_many_is_a_failure(device: str, kinds: list[str], reason: str) -> None:
    with pytest.raises(CheckFailed, match=reason):
        devices.require_kinds(kinds, Facts(device=device), {})


@pytest.mark.parametrize(("device", "where"), [("gpu", "gpu.visible"), ("tpu", "tpu.cores")])
def test_an_accelerator_that_is_absent_is_reported_once(device: str, where: str) -> None:
    with pytest.raises(CheckSkipped, match=f"lists no {device.upper()}; see {where}"):
        devices.require_kinds(["CPU"], Facts(device=device, level="validated"), {})
    devices.require_kinds(["CPU"], Facts(device=device, level="linked"), {})


def test_a_trace_names_the_step_and_its_operation() -> None:
    named = {"named": [profiler.STEP, profiler.OPERATION], "traces": ["one.xplane.pb"]}
    assert profiler.require_named(named) == named
    with pytest.raises(CheckFailed, match="the profiler records nothing"):
        profiler.require_named({**named, "named": [profiler.STEP]})


def test_an_emulated_processor_has_more_time_for_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = replace(VALIDATED, device="cpu")
    assert time_limit(CHECK, facts, []) == CHECK.seconds
    monkeypatch.setenv(VARIABLE, "1")
    assert time_limit(CHECK, facts, []) == FACTOR * CHECK.seconds
    assert time_limit(CHECKS["environment.imports"], replace(facts, level="linked"), []) >= 60 * 60


ACCELERATED = {"compiler.py", "driver.py", "gpu.py", "gpu_start.py"}
"""Modules of checks that no emulator runs, as there is no GPU on one."""

UNEXTENDED = re.compile(r"(?:timeout=|monotonic\(\) \+ |since \+ |\.wait\()([A-Z_]+SECONDS\b|seconds\b)")
"""A time limit that is taken as it stands, without `extend`."""


def test_an_emulated_processor_has_more_time_within_checks_too() -> None:
    suite = ROOT / "images/validation"
    found = {
        f"{file.name}: {match[0]}"
        for file in suite.rglob("*.py")
        if file.name not in ACCELERATED
        for match in UNEXTENDED.finditer(file.read_text())
    }
    assert found == {
        "fork_group.py: monotonic() + seconds",  # extended in the line before
        "supervisor.py: monotonic() + seconds",  # the limit of a whole check, which is extended already
        "supervisor.py: .wait(seconds",  # that of the end, too
        "supervisor.py: monotonic() + LAST_WORDS_SECONDS",  # after the end of the time
    }
