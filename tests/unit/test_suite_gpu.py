"""What the suite's GPU checks know without a GPU: reasons, versions, limits."""

from __future__ import annotations

from typing import Any

import pytest
from checks import CHECKS, gpu
from explain import explain

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)\nGCC: 13\n"


def test_driver_version() -> None:
    assert [gpu.driver_version(text) for text in (CLOSED, OPEN, "")] == ["535.104.05", "570.86.15", None]


NODE = ["/dev/nvidia0"]
ALL = {"NVIDIA_VISIBLE_DEVICES": "all"}


@pytest.mark.parametrize(
    ("seen", "reason", "signature"),
    [
        (({"CUDA_VISIBLE_DEVICES": ""}, NODE, True, (12, 2)), "CUDA_VISIBLE_DEVICES='' hides it", "no-gpu"),
        (({"CUDA_VISIBLE_DEVICES": "-1"}, [], False, None), "CUDA_VISIBLE_DEVICES='-1' hides it", "no-gpu"),
        (({"NVIDIA_VISIBLE_DEVICES": "void"}, [], False, None), "='void' keeps it out", "no-gpu"),
        ((ALL, [], False, None), "has no NVIDIA driver that runs", "no-gpu"),
        ((ALL, [], True, None), "was not handed its GPU", "no-toolkit"),
        (({"CUDA_VISIBLE_DEVICES": "0,1"}, NODE, True, None), "no libcuda.so.1 that loads", "no-toolkit"),
        (({}, NODE, True, (11, 4)), "knows CUDA up to 11.4, and the image has 12.2", "driver-too-old"),
        (({}, NODE, True, (12, 0)), "a library did not load", None),
    ],
)
def test_reason_for_no_gpu_and_what_is_known_about_it(seen: Any, reason: str, signature: str | None) -> None:
    told = gpu.why_none(gpu.Seen(*seen), "12.2")
    assert reason in told
    found = [(one.signature, one.fault) for one in explain(f"expected a GPU, found none: {told}")]
    assert found == ([(signature, "host")] if signature else [])


def test_checks_of_a_present_gpu_are_asked_for_only_there() -> None:
    own = [check for name, check in CHECKS.items() if name.startswith("gpu.")]
    assert len(own) >= 4
    assert all((check.devices, check.level, check.isolated) == (("gpu",), "validated", True) for check in own)
