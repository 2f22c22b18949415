"""What the suite's numeric and GPU checks know without TensorFlow: bounds, verdicts, reasons."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "images" / "validation"))

from bounds import ROUNDOFF, gamma, require_within
from checks import CHECKS, gpu, numerics
from contract import CheckFailed, Facts

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)\nGCC: 13\n"


def test_gamma_is_a_little_above_count_times_roundoff() -> None:
    assert gamma(256) == pytest.approx(256 * 2**-24, rel=1e-4)
    assert gamma(256) > 256 * 2**-24


@pytest.mark.parametrize(
    ("kind", "on_cpu", "expected"),
    [
        ("float32", False, 256 * 2**-24 * 100),
        ("bfloat16", True, 256 * 2**-24 * 100 + 2**-8 * 7),
        ("float16", False, 256 * 2**-24 * 100 + 2**-11 * 7),
        ("float16", True, gamma(256, 2**-11) * 100),
    ],
)
def test_only_float16_on_a_cpu_may_be_added_in_16_bits(kind: str, on_cpu: bool, expected: float) -> None:
    assert numerics.product_bound(100.0, -7.0, kind, on_cpu) == pytest.approx(expected, rel=2e-3)


def test_roundoff_is_half_the_distance_to_the_next_number() -> None:
    assert ROUNDOFF["float32"] * 2 == 2**-23


@pytest.mark.parametrize("ratio", [1.5, float("nan"), float("inf")])
def test_what_is_not_within_its_bound_fails(ratio: float) -> None:
    evidence = {"error_over_bound": {"output": 0.1, "gradient": ratio}}
    with pytest.raises(CheckFailed, match=r"found gradient at \S+ times the bound: it is broken") as caught:
        require_within(evidence, "it is broken")
    assert caught.value.evidence == evidence


def test_what_is_within_its_bound_is_evidence() -> None:
    evidence = {"error_over_bound": {"output": 0.1, "gradient": 1.0}}
    assert require_within(evidence, "it is broken") is evidence


@pytest.mark.parametrize(("text", "version"), [(CLOSED, "535.104.05"), (OPEN, "570.86.15"), ("", None)])
def test_driver_version(text: str, version: str | None) -> None:
    assert gpu.driver_version(text) == version


@pytest.mark.parametrize(
    ("environment", "nodes", "loads", "reason"),
    [
        ({"CUDA_VISIBLE_DEVICES": ""}, ["/dev/nvidia0"], True, "CUDA_VISIBLE_DEVICES='' hides it"),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, [], False, "CUDA_VISIBLE_DEVICES='-1' hides it"),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, [], False, "NVIDIA_VISIBLE_DEVICES='void' keeps it out"),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, [], False, "there is no /dev/nvidia*"),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, ["/dev/nvidia0"], False, "libcuda.so.1 does not load"),
        ({}, ["/dev/nvidia0"], True, "the driver is too old"),
    ],
)
def test_reason_for_no_gpu(environment: dict[str, str], nodes: list[str], loads: bool, reason: str) -> None:
    assert reason in gpu.why_none(environment, nodes, loads)


def planted(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    (folder / "tensorflow.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize("check", [gpu.first_kernel, gpu.memory_growth])
def test_child_that_breaks_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Callable[[Facts], object]
) -> None:
    planted(tmp_path, monkeypatch, "raise RuntimeError('planted')")
    with pytest.raises(CheckFailed, match=r"exit code 1: RuntimeError: planted; see gpu\.visible"):
        check(Facts())


def test_child_that_hangs_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(tmp_path, monkeypatch, "import time; time.sleep(60)")
    monkeypatch.setattr(gpu, "START_SECONDS", 0)
    monkeypatch.setattr(gpu, "KERNEL_SECONDS", 1)
    with pytest.raises(CheckFailed, match="within 1 s, found none"):
        gpu.first_kernel(Facts())


SLOW = """
import contextlib, time
class Tensor:
    device = "/device:GPU:0"
    def numpy(self): time.sleep(0.2)
class config:
    set_soft_device_placement = staticmethod(lambda soft: None)
device = lambda name: contextlib.nullcontext()
ones = lambda shape: None
matmul = lambda left, right: Tensor()
"""


def test_slow_first_kernel_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(tmp_path, monkeypatch, SLOW)
    assert gpu.first_kernel(Facts())["device"] == "/device:GPU:0"
    monkeypatch.setattr(gpu, "KERNEL_SECONDS", 0.1)
    with pytest.raises(CheckFailed, match=r"within 0\.1 s, found 0\.\d+ s: PTX is being compiled"):
        gpu.first_kernel(Facts())


def test_checks_of_a_present_gpu_are_asked_for_only_there() -> None:
    own = [check for name, check in CHECKS.items() if name.startswith("gpu.")]
    assert len(own) == 4
    assert all((check.devices, check.level) == (("gpu",), "validated") for check in own)
