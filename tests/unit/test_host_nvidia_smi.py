"""Recorded output of nvidia-smi → driver and GPUs, or a sentence; and how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfimg.core.errors import NoAccelerator, TfimgError, UsageError
from tfimg.core.process import CommandFailed, run
from tfimg.host.survey import INPUT_HELP, Gpu, NvidiaSmi, parse_nvidia_smi, query_nvidia_smi

FOLDER = Path(__file__).parents[1] / "data" / "nvidia-smi"
FILES = sorted(FOLDER.iterdir())

H100 = ("NVIDIA H100 80GB HBM3", None)

TOLD: dict[str, tuple[str, str | None, list[tuple[str, str | None]]]] = {
    "t4-470.txt": ("470.256.02", "11.4", [("Tesla T4", None)]),
    "t4-535.txt": ("535.104.05", "12.2", [("Tesla T4", None)]),
    "v100-470.txt": ("470.182.03", "11.4", [("Tesla V100-SXM2...", None)]),
    "geforce-470-name-cut-away.txt": ("470.57.02", "11.4", [("NVIDIA GeForce ...", None)]),
    "a100-525.txt": ("525.105.17", "12.0", [("NVIDIA A100-SXM...", None)]),
    "a10g-535.txt": ("535.183.01", "12.2", [("NVIDIA A10G", None)]),
    "l4-550.txt": ("550.54.15", "12.4", [("NVIDIA L4", None)]),
    "rtx4090-560.txt": ("560.35.03", "12.6", [("NVIDIA GeForce RTX 4090", None)]),
    "rtx3090-twice-550.txt": ("550.120", "12.4", [("NVIDIA GeForce RTX 3090", None)] * 2),
    "rtx5090-580.txt": ("580.82.09", "13.0", [("NVIDIA GeForce RTX 5090", None)]),
    "t4-and-rtx5090-580.txt": (
        "580.82.09", "13.0", [("Tesla T4", None), ("NVIDIA GeForce RTX 5090", None)],
    ),
    "b200-610.txt": ("610.43.02", "13.3", [("NVIDIA B200", None)]),
    "h100-535.txt": ("535.161.08", "12.2", [H100] * 8),
    "h100-mig-570.txt": ("570.124.06", "12.8", [H100]),
    "h100-570.csv": ("570.124.06", None, [("NVIDIA H100 PCIe", "sm_90")] * 2),
    "gh200-570.csv": ("570.86.15", None, [("NVIDIA GH200 480GB", "sm_90")]),
    "b200-570.csv": ("570.133.20", None, [("NVIDIA B200", "sm_100")] * 8),
    "gb10-580.csv": ("580.95.05", None, [("NVIDIA GB10", "sm_121")]),
    "unnamed-580.csv": ("580.95.05", None, [("NVIDIA Graphics Device", "sm_89")]),
    "k80-470-no-units.csv": ("470.256.02", None, [("Tesla K80", None)] * 2),
    "h200-580.txt": ("580.95.05", "13.0", [("NVIDIA H200", None)] * 2),
    "h200-580.csv": ("580.95.05", None, [("NVIDIA H200", "sm_90")] * 2),
    "t4-535.csv": ("535.104.05", None, [("Tesla T4", "sm_75")]),
    "t4-and-err-470.txt": ("470.256.02", "11.4", [("Tesla T4", None)] * 2),
    "l4-twice-580.txt": ("580.65.06", "13.0", [("NVIDIA L4", None)] * 2),
    "l4-twice-580.csv": ("580.65.06", None, [("NVIDIA L4", "sm_89")] * 2),
    "rtx5090-580.csv": ("580.82.09", None, [("NVIDIA GeForce RTX 5090", "sm_120")]),
    "h100-mig-570.csv": ("570.124.06", None, [("NVIDIA H100 80GB HBM3", "sm_90")]),
    "gh200-580.txt": ("580.82.07", "13.0", [("NVIDIA GH200 480GB", None)]),
    "gb10-580.txt": ("580.95.05", "13.0", [("NVIDIA GB10", None)]),
    "gtx770-470-not-supported.csv": ("470.256.02", None, [("NVIDIA GeForce GTX 770", None)]),
    "rtx3090-and-lost-580.txt": ("580.82.09", "13.0", [("NVIDIA GeForce RTX 3090", None)]),
    "rtx3090-and-lost-580.csv": ("580.82.09", None, [("NVIDIA GeForce RTX 3090", "sm_86")] * 2),
    "lost-and-a40-570.csv": ("570.133.20", None, [("NVIDIA A40", "sm_86")]),
}  # fmt: skip
"""Driver, CUDA, and each GPU's name and capability, by file."""

REBOOT = "Check `dmesg` for errors of the driver (NVRM, Xid), and reboot: a GPU that fell off the bus hangs it."

PROBLEMS = {
    "rtx3090-and-lost-580.txt": (
        "nvidia-smi says: Unable to determine the device handle for GPU1: 0000:34:00.0: GPU is lost.  Reboot the "
        f"system to recover this GPU. {REBOOT}",
    ),
    "rtx3090-and-lost-580.csv": (
        f"nvidia-smi says: Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error. {REBOOT}",
    ),
    "lost-and-a40-570.csv": (f"nvidia-smi lists 1 more without a readable name. {REBOOT}",),
}  # fmt: skip
"""What is told of GPUs that cannot be read, by file; of all others nothing."""

HELP = "Install NVIDIA's driver, or repair it: `nvidia-smi` by itself must list the GPUs."

REFUSED: dict[str, tuple[type[TfimgError], str]] = {
    "failed.txt": (
        NoAccelerator,
        "nvidia-smi says: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
        f"the latest NVIDIA driver is installed and running. {HELP}",
    ),
    "mismatch.txt": (
        NoAccelerator,
        "nvidia-smi says: Failed to initialize NVML: Driver/library version mismatch. Reboot: the driver was updated, "
        "and the module that is loaded is still the old one.",
    ),
    "no-devices.txt": (
        NoAccelerator,
        "nvidia-smi says: No devices were found. Check whether the GPU is on the bus (`lspci -d 10de:`), and "
        "`dmesg` for its errors.",
    ),
    "lost-580.txt": (
        NoAccelerator,
        "nvidia-smi says: Unable to determine the device handle for GPU0: 0000:01:00.0: GPU is lost.  Reboot the "
        f"system to recover this GPU. {REBOOT}",
    ),
    "lost-580.csv": (
        NoAccelerator,
        f"nvidia-smi says: Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error. {REBOOT}",
    ),
    "not-installed.txt": (NoAccelerator, f"nvidia-smi says: bash: nvidia-smi: command not found. {HELP}"),
    "empty.txt": (UsageError, f"nvidia-smi's output is empty. {INPUT_HELP}"),
    "rocm.txt": (
        UsageError,
        "This is not output of nvidia-smi: it begins with '============================ ROCm System Management "
        f"Interfac'. {INPUT_HELP}",
    ),
    "xml.txt": (UsageError, f"This is nvidia-smi's XML, which tfimg does not read. {INPUT_HELP}"),
}  # fmt: skip


def answer(
    driver: str,
    cuda: str | None,
    gpus: Sequence[tuple[str, str | None]],
    problems: tuple[str, ...] = (),
) -> NvidiaSmi:
    found = tuple(Gpu(name=name, capability=sm) for name, sm in gpus)
    return NvidiaSmi(driver=driver, cuda=cuda, gpus=found, problems=problems)


def test_every_recorded_output_has_its_answer() -> None:
    assert {file.name for file in FILES} == TOLD.keys() | REFUSED.keys()


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize("name", TOLD)
def test_an_output_is_read(name: str, ends: str) -> None:
    text = (FOLDER / name).read_text().replace("\n", ends)
    assert parse_nvidia_smi(text) == answer(*TOLD[name], problems=PROBLEMS.get(name, ()))


@pytest.mark.parametrize("name", REFUSED)
def test_output_without_a_gpu_is_refused_with_its_own_message(name: str) -> None:
    kind, message = REFUSED[name]
    with pytest.raises(TfimgError) as caught:
        parse_nvidia_smi((FOLDER / name).read_text())
    assert (type(caught.value), str(caught.value)) == (kind, message)


NO_DRIVER = "nvidia-smi's output does not contain the version of the driver."
NO_NAME = "nvidia-smi's output has a GPU without a readable name."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name, driver_version\nT4, [N/A]\n", NO_DRIVER),
        ("name, driver_version\n, 535.1\n", NO_NAME),
        ("name, driver_version\nT4\x1b[2J, 535.1\n", NO_NAME),
        ("name, driver_version\n[Unknown Error], 535.1\n", NO_NAME),
        (
            "name, driver_version\n",
            "This is not output of nvidia-smi: it begins with 'name, driver_version'.",
        ),
    ],
)
def test_truncated_output_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_nvidia_smi(text)
    assert str(caught.value) == f"{message} {INPUT_HELP}"


def test_a_driver_without_gpus() -> None:
    header = (FOLDER / "t4-535.txt").read_text().partition("|   0")[0]
    with pytest.raises(NoAccelerator, match=r"^nvidia-smi lists no GPU; the driver is 535\.104\.05\."):
        parse_nvidia_smi(header)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for told in (text, f"name, driver_version\n{text}", f"| NVIDIA-SMI {text}"):
        read_or_expect_refusal(told)


@given(st.sampled_from(FILES), st.integers(0, 5000), st.integers(0, 200), st.text(max_size=20))
def test_a_damaged_output_is_read_or_refused(file: Path, start: int, length: int, put: str) -> None:
    text = file.read_text()
    read_or_expect_refusal(text[:start] + put + text[start + length :])


def read_or_expect_refusal(text: str) -> None:
    try:
        found = parse_nvidia_smi(text)
    except TfimgError:
        return
    assert found.gpus
    assert all(gpu.name.isprintable() for gpu in found.gpus)


# Asking


Run = Callable[[Sequence[str]], str]


def failing_run(said: str, unless: str = "compute_cap") -> Run:
    def run(argv: Sequence[str]) -> str:
        if unless not in argv[1]:
            return "name, driver_version\nTesla T4, 470.256.02\n"
        raise CommandFailed(2, argv, said, "")

    return run


def raising_run(error: OSError) -> Run:
    def run(_: Sequence[str]) -> str:
        raise error

    return run


def refusal(run: Run) -> str:
    with pytest.raises(NoAccelerator) as caught:
        query_nvidia_smi(run)
    return str(caught.value)


def test_the_compute_capability_is_queried_where_nvidia_smi_supports_it() -> None:
    asked: list[Sequence[str]] = []

    def run(argv: Sequence[str]) -> str:
        asked.append(argv)
        return (FOLDER / "h100-570.csv").read_text()

    assert query_nvidia_smi(run) == answer(*TOLD["h100-570.csv"])
    assert asked == [["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv"]]


def test_an_old_nvidia_smi_is_queried_without_it() -> None:
    run = failing_run('Field "compute_cap" is not a valid field to query.\n\n')
    assert query_nvidia_smi(run) == answer("470.256.02", None, [("Tesla T4", None)])


@pytest.mark.parametrize("said", ['Field "compute_cap" is not a valid field to query.', "Segmentation fault"])
def test_unknown_output_of_nvidia_smi_is_an_error(said: str) -> None:
    told = f"This is not output of nvidia-smi: it begins with '{said}'. {HELP}"
    assert refusal(failing_run(said, unless="")) == told


@pytest.mark.parametrize("name", [name for name, (kind, _) in REFUSED.items() if kind is NoAccelerator])
def test_a_failure_of_nvidia_smi_keeps_its_message(name: str) -> None:
    assert refusal(failing_run((FOLDER / name).read_text(), unless="")) == REFUSED[name][1]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (FileNotFoundError(2, "No such file or directory"), "is not installed"),
        (PermissionError(13, "Permission denied"), "cannot be started: Permission denied"),
    ],
    ids=["missing", "forbidden"],
)
def test_a_machine_without_one_that_starts(error: OSError, why: str) -> None:
    assert refusal(raising_run(error)) == f"`nvidia-smi`, which comes with NVIDIA's driver, {why}. {HELP}"


def test_a_failure_on_one_gpu_still_lists_the_others() -> None:
    name = "rtx3090-and-lost-580.csv"
    found = query_nvidia_smi(failing_run((FOLDER / name).read_text(), unless=""))
    assert found == answer(*TOLD[name], problems=PROBLEMS[name])


def test_one_that_hangs(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    assert refusal(lambda argv: run([str(program), *argv[1:]], timeout=0.1)) == (
        f"`{program}` did not end within 0.1 seconds. Check `dmesg` for errors of the driver (NVRM, Xid), and reboot: "
        "a GPU that fell off the bus hangs it."
    )
