"""What the suite's GPU checks know without a GPU: reasons, versions, limits."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "images" / "validation"))

from checks import CHECKS, gpu

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)\nGCC: 13\n"


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


def test_checks_of_a_present_gpu_are_asked_for_only_there() -> None:
    own = [check for name, check in CHECKS.items() if name.startswith("gpu.")]
    assert len(own) >= 4
    assert all((check.devices, check.level, check.isolated) == (("gpu",), "validated", True) for check in own)
