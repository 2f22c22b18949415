"""GPUs by their many names, and how a wheel's code runs on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfimg.core.errors import UsageError
from tfimg.matrix.gpus import (
    ExecutionMode,
    describe_ptx,
    explain_no_support,
    find_execution_mode,
    find_gpu,
    is_arm64_gpu,
    parse_capability,
)
from tfimg.matrix.schema import Gpu, Matrix, PtxReport

NAMED = {
    "sm_37": ["K80"], "sm_60": ["Tesla P100-PCIE-16GB"],
    "sm_70": ["Tesla V100-SXM2-16GB", "V100S", "Tesla V100-DGXS-32GB", "GRID V100D-8Q", "GRID V100DX-32C"],
    "sm_61": ["GTX 1080", "GTX 1080 Ti", "gtx1080ti", "Tesla P40", "GRID P40-24Q", "Quadro P2200",
              "NVIDIA TITAN X (Pascal)"],
    "sm_35": ["Tesla K40m", "Tesla K20Xm"], "sm_52": ["GeForce GTX TITAN X", "GRID M60-8Q"], "sm_50": ["Quadro M2000M"],
    "sm_75": ["T4", "t4", "NVIDIA T4", "Tesla T4", "tesla-t4", "TESLA_T4", " t4 ", "T4-16Q", "GRID T4-2B4",
              "Quadro RTX 8000",
              "NVIDIA T4G", "Quadro RTX 6000 with Max-Q Design", "GRID RTX6000P-8Q", "NVIDIA RTX6000-24Q",
              "GeForce GTX 1650 with Max-Q Design", "GeForce GTX 1660 SUPER", "Quadro T1000 with Max-Q Design",
              "sm_75", "SM 75", "sm-75", "sm75", "compute_75", "cc7.5", "CC 75", "7.5"],
    "sm_80": ["NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", "A100", "GRID A100D-20C", "NVIDIA A100-4-20C",
              "NVIDIA A800-SXM4-80GB", "NVIDIA A800D-4-20C"],
    "sm_86": ["A10", "A10G", "NVIDIA RTX A6000", "NVIDIA GeForce RTX 3080 Laptop GPU", "RTX 3050", "RTX 3060Ti",
              "NVIDIA RTX A2000 8GB Laptop GPU", "NVIDIA A10-24Q", "NVIDIA RTXA6000-48Q"],
    "sm_89": ["RTX 4090", "rtx4090", "rtx-4090", "GeForce RTX 4090", "NVIDIA GeForce RTX 4090 D", "NVIDIA L4",
              "NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX6000-Ada-48Q", "NVIDIA L40S-48C", "L20", "rtx4090d",
              "NVIDIA RTX 500 Ada Generation Laptop GPU"],
    "sm_90": ["NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB", "NVIDIA H20-3e", "NVIDIA H100XM-80C"],
    "sm_100": ["NVIDIA B200", "10.0"],
    "sm_103": ["sm_103"],
    "sm_120": ["NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX Pro 6000 Blackwell DC-4-24Q"],
    "sm_121": ["12.1"],
    "sm_87": ["8.7", "Orin (nvgpu)", "Jetson AGX Orin", "NVIDIA Jetson Orin Nano"], "sm_110": ["NVIDIA Thor"],
}  # fmt: skip


def test_a_gpu_is_found_by_what_people_nvidia_smi_and_the_matrix_call_it(matrix: Matrix) -> None:
    for known in (NAMED, matrix.gpus):
        found = {sm: {name: find_gpu(matrix, name) for name in (sm, *names)} for sm, names in known.items()}
        assert found == {sm: dict.fromkeys((sm, *names), sm) for sm, names in known.items()}


UNKNOWN_NAMES = ["", " ", "T", "T40", "A", "RTX", "NVIDIA", "RTX 6000", "980", "4090", "TPU"]
UNKNOWN_CAPABILITIES = ["sm_", "sm_755", "7", "75"]


@pytest.mark.parametrize("name", UNKNOWN_NAMES + UNKNOWN_CAPABILITIES)
def test_a_name_that_the_matrix_lacks_is_not_guessed(name: str, matrix: Matrix) -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu(matrix, name)
    first, known = str(caught.value).split(": ", maxsplit=1)
    assert first == f"--gpu {name!r} is not a GPU of the matrix"
    assert known.startswith(("it has T4, A100, RTX 4090, Quadro RTX 6000 and others", "similar names are "))
    assert known.endswith(
        ". Write a name of the matrix, or the GPU's compute capability, for example sm_75 or 7.5 "
        "(NVIDIA's list of CUDA GPUs has it)."
    )


def test_an_unknown_name_is_answered_with_those_near_to_it(matrix: Matrix) -> None:
    similar = {
        "RTX 407": "RTX A400, RTX 4070, RTX 4090, RTX 5070",
        "4090": "RTX 4090",
        "NVIDIA RTX 6000": "Quadro RTX 6000, RTX A6000, RTX 6000 Ada, RTX PRO 6000",
    }
    for text, names in similar.items():
        with pytest.raises(UsageError, match=f"similar names are {names}\\."):
            find_gpu(matrix, text)


def test_gpus_of_arm_machines(matrix: Matrix) -> None:
    found = [is_arm64_gpu(matrix, name) for name in ("NVIDIA T4G", "Orin (nvgpu)", "NVIDIA GB200", "Tesla T4", "B200")]
    assert found == [True, True, True, False, False]


def test_the_last_digit_of_a_capability_is_the_minor() -> None:
    found = [parse_capability(name) for name in ("sm_75", "compute_80", "sm_100", "compute_121")]
    assert found == [(7, 5), (8, 0), (10, 0), (12, 1)]


OLD = ("sm_35", "sm_50", "sm_60", "sm_70", "sm_75", "compute_80")
NEW = ("sm_60", "sm_70", "sm_80", "sm_89", "compute_90")

RUNS: list[tuple[tuple[str, ...], ExecutionMode | None, str]] = [
    (OLD, "code", "sm_35 sm_37 sm_75 sm_80 sm_89"),
    (OLD, "ptx", "sm_90"),
    (OLD, None, "sm_30 sm_100 sm_120"),
    (NEW, "code", "sm_75 sm_90"),
    (NEW, None, "sm_37 sm_52 sm_100"),
    (("sm_75",), None, "sm_70 sm_80"),
    (("compute_70",), "code", "sm_75"),
    (("compute_70",), "ptx", "sm_80"),
    (("compute_70",), None, "sm_60"),
    ((), None, "sm_75"),
]


@pytest.mark.parametrize(("architectures", "means", "gpus"), RUNS)
def test_code_runs_within_its_major_and_ptx_on_what_is_newer_below_blackwell(
    architectures: tuple[str, ...], means: ExecutionMode | None, gpus: str, matrix: Matrix
) -> None:
    for order in (architectures, architectures[::-1]):
        found = {sm: find_execution_mode(matrix, with_code(matrix, order), sm) for sm in gpus.split()}
        assert found == dict.fromkeys(gpus.split(), means)


def with_code(matrix: Matrix, architectures: tuple[str, ...], **reports: PtxReport) -> Gpu:
    """A row's facts with other architectures and reports."""
    gpu = matrix.rows[0].gpu
    assert gpu
    return replace(gpu, architectures=architectures, reports=reports)


FAILS = PtxReport(runs="fails", reason="it fails")
UNPROVEN = PtxReport(runs="unproven", reason="some say", issue="a/b#1")


def test_reports_decide_where_ptx_is_not_known_to_run(matrix: Matrix) -> None:
    gpu = with_code(matrix, NEW, sm_100=FAILS, sm_120=UNPROVEN)
    assert [find_execution_mode(matrix, gpu, sm) for sm in ("sm_100", "sm_120", "sm_121")] == [None, "unproven", None]
    # Without PTX a report is about nothing, and PTX is never for an older GPU.
    assert find_execution_mode(matrix, with_code(matrix, ("sm_90",), sm_120=UNPROVEN), "sm_120") is None
    assert find_execution_mode(matrix, with_code(matrix, ("compute_121",), sm_120=UNPROVEN), "sm_120") is None


def test_reports_about_ptx_name_their_source(matrix: Matrix) -> None:
    gpu = with_code(matrix, NEW, sm_100=FAILS, sm_120=UNPROVEN)
    assert describe_ptx(matrix, gpu, "sm_90") == matrix.ptx.note
    assert describe_ptx(matrix, gpu, "sm_120") == f"whether it runs is unproven: some say (a/b#1); {matrix.ptx.note}"
    assert explain_no_support(matrix, gpu, "sm_100") == "it fails"
    assert explain_no_support(matrix, gpu, "sm_121") == f"{matrix.ptx.reason} ({matrix.ptx.issue})"
    assert explain_no_support(matrix, gpu, "sm_61") is None


def test_each_release_states_what_is_reported_of_consumer_blackwell(matrix: Matrix) -> None:
    every = [
        (release.version, cuda, gpu)
        for row in matrix.rows
        for release in row.tensorflow
        for cuda, gpu in (row.gpu.toolkits if row.gpu else ())
    ]
    for capability in ("sm_100", "sm_120"):
        modes = {(version, cuda): find_execution_mode(matrix, gpu, capability) for version, cuda, gpu in every}
        assert {name: mode for name, mode in modes.items() if mode} == {("2.21.0", "12.9"): "unproven"}
    issues = {version: gpu.reports["sm_120"].issue for version, cuda, gpu in every if gpu.reports and cuda < "12.9"}
    assert {version: (issue or "").partition("#")[2] for version, issue in issues.items()} == {
        **dict.fromkeys(("2.16.1", "2.16.2", "2.20.0"), "101746"),
        **dict.fromkeys(("2.18.0", "2.18.1"), "90291"),
        **dict.fromkeys(("2.19.0", "2.19.1"), "97387"),
        "2.21.0": "145949",
    }
