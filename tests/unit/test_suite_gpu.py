"""What the suite's GPU checks know without a GPU: reasons, versions, limits."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checks import CHECKS, devices, gpu, gpu_start, profiler
from contract import Check, CheckFailed, CheckSkipped, Facts
from driver import START_SECONDS, Driver, Gpu
from emulation import FACTOR, VARIABLE
from explain import explain
from limits import PTX_SECONDS, VALIDATED_FACTOR, time_limit

from support.fake_driver import fake_environment
from support.paths import ROOT

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
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    assert gpu.find_driver_version(module, str(command)) == version
    module.write_text(CLOSED)
    assert gpu.find_driver_version(module, str(command)) == "535.104.05"


def test_a_driver_without_a_version_is_no_failure(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert gpu.find_driver_version(absent, None) is None
    assert gpu.find_driver_version(absent, str(absent)) is None


NODE = ["/dev/nvidia0"]
ALL = {"NVIDIA_VISIBLE_DEVICES": "all"}
NONE = Driver(None, (), "libcuda.so.1: cannot open shared object file: No such file or directory")
OLD, FINE = (Driver(cuda, [Gpu("NVIDIA L4", "8.9", 23034)], None) for cuda in ("11.4", "12.0"))
MISMATCH = Driver("12.4", (), "cuInit returned 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)")
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
        (({}, NODE, True, MISMATCH), "restart the machine", "driver-mismatch"),
        (({}, NODE, True, KEPLER), "the GPU is too old for it", "gpu-ignored"),
        (({}, NODE, True, FINE), "a library did not load", None),
    ],
)
def test_reason_for_no_gpu_and_what_is_known_about_it(seen: Any, reason: str, issue: str | None) -> None:
    told = gpu.why_none(gpu.Seen(*seen), FACTS)
    assert reason in told
    found = [(one.issue, one.fault) for one in explain(f"expected a GPU, found none: {told}")]
    assert found == ([(issue, "host")] if issue else [])


def test_checks_of_a_present_gpu_are_asked_for_only_there() -> None:
    own = [check for name, check in CHECKS.items() if name.startswith("gpu.")]
    assert len(own) >= 4
    assert all((check.devices, check.level, check.isolated) == (("gpu",), "validated", True) for check in own)


def test_the_first_kernel_is_the_first_use_of_a_gpu() -> None:
    """What is compiled from PTX is compiled in the check that has the time for it and that tells it."""
    names = list(CHECKS)
    before = names[: names.index("gpu.first_kernel")]
    assert {name.partition(".")[0] for name in before} <= {
        "environment",
        "libraries",
        "compiler",
        "tpu",
        "gpu",
    }
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


def test_there_is_time_to_start_eight_gpus_and_to_compile_all_of_ptx() -> None:
    assert time_limit(CHECK, VALIDATED, ["8.0"] * 8) >= 60 + 120
    assert time_limit(CHECKS["devices.listing"], VALIDATED, ["9.0"]) >= 45 * 60


def started(**seconds: float) -> dict[str, Any]:
    return {"device": "/device:GPU:0", "seconds": {"matmul": 1.0, **seconds}}


def test_a_quick_first_kernel_is_good() -> None:
    told = gpu_start.judge_first_kernel(started(convolution=20.0), FINE, [])
    assert (told["total_seconds"], told["compiled_for"]) == (21.0, [])
    assert "warnings" not in told


def test_a_slow_first_kernel_is_a_failure_where_the_wheel_has_code() -> None:
    with pytest.raises(CheckFailed, match="found 500 s: TensorFlow has code for this GPU"):
        gpu_start.judge_first_kernel(started(cast=499.0), FINE, [])


def test_a_slow_first_kernel_is_reported_and_no_failure_where_it_is_compiled_from_ptx() -> None:
    told = gpu_start.judge_first_kernel(started(cast=1499.0), FINE, ["9.0"])
    assert (told["total_seconds"], told["compiled_for"]) == (1500.0, ["9.0"])
    assert "no code for compute capability 9.0" in told["warnings"][0]


def test_a_slow_first_kernel_of_an_unknown_gpu_is_a_failure_that_does_not_guess() -> None:
    with pytest.raises(CheckFailed, match=r"PTX is compiled, or .* slow; it could not be asked \(cuInit"):
        gpu_start.judge_first_kernel(started(cast=499.0), MISMATCH, [])


def test_eight_gpus_have_more_time_for_the_first_kernel() -> None:
    eight = Driver("12.4", [Gpu("NVIDIA H200", "9.0", 143771)] * 8, None)
    assert gpu_start.judge_first_kernel(started(matmul=200.0), eight, [])["total_seconds"] == 200
    with pytest.raises(CheckFailed):
        gpu_start.judge_first_kernel(started(matmul=200.0), FINE, [])


SUM = {"collectives": ["NcclAllReduce"], "replicas": 2, "sums": [[3.0], [3.0]]}


def test_a_sum_by_nccl_that_is_right_everywhere_is_good() -> None:
    assert gpu_start.judge_all_reduce(SUM, 2) == {"gpus": 2, **SUM}
    eight = {**SUM, "replicas": 8, "sums": [[36.0]] * 8}
    assert gpu_start.judge_all_reduce(eight, 8)["gpus"] == 8


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
    told = profiler.judge_gpu_tracing(device, lines, errors)
    assert (told["gpu_lines"], told["errors"]) == (lines, errors)
    assert ("warnings" in told) is warned
    if warned:
        assert "NVreg_RestrictProfilingToAdminUsers=0" in told["warnings"][0]
        assert "--cap-add SYS_ADMIN" in told["warnings"][0]
        assert all(error in told["warnings"][0] for error in errors)


def growth(**changes: Any) -> dict[str, Any]:
    return {"growth": [True, True], "free_mib": 1000, "taken_mib": 499, **changes}


def test_memory_growth_leaves_more_than_half_of_the_memory() -> None:
    assert gpu_start.judge_memory_growth(growth()) == growth()


@pytest.mark.parametrize("changes", [{"taken_mib": 500}, {"growth": [True, False]}])
def test_memory_growth_that_takes_too_much_or_is_off_is_a_failure(changes: dict[str, Any]) -> None:
    with pytest.raises(CheckFailed, match="of 1000 MiB: TensorFlow ignores the option"):
        gpu_start.judge_memory_growth(growth(**changes))


def test_a_driver_without_free_memory_is_a_failure() -> None:
    script = "from checks import gpu_start; gpu_start.free_memory()"
    suite = str(Path(gpu_start.__file__).parents[1])
    environment = fake_environment("cuMemGetInfo_v2=999", PYTHONPATH=suite)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert "CheckFailed: expected the driver to report its free memory, found cuMemGetInfo_v2 retur" in done.stderr


def test_nccl_adds_up_over_all_gpus_that_are_listed() -> None:
    names = ["/physical_device:GPU:0", "/physical_device:GPU:1"]
    assert gpu_start.several(names, FINE) == ["GPU:0", "GPU:1"]


def test_one_gpu_of_two_is_a_failure_of_nccl() -> None:
    two = Driver("12.4", [Gpu("NVIDIA L4", "8.9", 23034)] * 2, None)
    with pytest.raises(CheckFailed, match="all 2 GPUs of the driver, found 1"):
        gpu_start.several(["/physical_device:GPU:0"], two)


LIMITED = {"device": "/device:GPU:0", "limit_mib": 512, "beyond": "ResourceExhaustedError"}


def test_a_memory_limit_that_holds_on_a_gpu_is_good() -> None:
    assert devices.judge_memory_limit(LIMITED) == LIMITED


@pytest.mark.parametrize("changes", [{"beyond": "no error"}, {"device": "/device:CPU:0"}])
def test_a_memory_limit_that_is_ignored_is_a_failure(changes: dict[str, Any]) -> None:
    with pytest.raises(CheckFailed, match="TensorFlow ignores the limit"):
        devices.judge_memory_limit({**LIMITED, **changes})


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

LIMIT = re.compile(r"(?:timeout=|monotonic\(\) \+ |since \+ |\.wait\()([A-Z_]+SECONDS\b|seconds\b)")
"""A time limit that is taken as it stands, without `extend`."""


def test_an_emulated_processor_has_more_time_within_checks_too() -> None:
    suite = ROOT / "images/validation"
    found = {
        f"{file.name}: {match[0]}"
        for file in suite.rglob("*.py")
        if file.name not in ACCELERATED
        for match in LIMIT.finditer(file.read_text())
    }
    assert found == {
        "fork_group.py: monotonic() + seconds",  # extended in the line before
        "supervisor.py: monotonic() + seconds",  # the limit of a whole check, which is extended already
        "supervisor.py: monotonic() + LAST_WORDS_SECONDS",  # after the end of the time
    }
