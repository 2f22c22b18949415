"""What nvidia-smi prints, in each of its formats and as people paste it, and its failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tfimg.core.errors import NoAccelerator, TfimgError, UsageError
from tfimg.core.process import CommandFailed, run
from tfimg.host.nvidia_smi import (
    INPUT_HELP,
    MODULE_HELP,
    QUERY,
    HostGpu,
    NvidiaSmi,
    find_matrix_name,
    parse_nvidia_smi,
    query_nvidia_smi,
)
from tfimg.matrix.schema import Matrix

NO_DRIVER = (
    "does not contain the version of the driver, only {}. Add it as --driver VERSION: `nvidia-smi` prints it in its "
    f"first line. Or use `{QUERY}`."
)
NO_GPU = (
    "This output has the driver, 535.104.05, and no GPU that tfimg can read. Add --gpu NAME. Or write all of what "
    f"`nvidia-smi` prints to a file, or `{QUERY}`."
)

FOLDER = Path(__file__).parents[1] / "data" / "nvidia-smi"
FILES = sorted(FOLDER.iterdir())

H100 = ("NVIDIA H100 80GB HBM3", None)

READ: dict[str, tuple[str, str | None, list[tuple[str, str | None]]]] = {
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
    "t4-and-rtx5090-580.txt": ("580.82.09", "13.0", [("Tesla T4", None), ("NVIDIA GeForce RTX 5090", None)]),
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
        "nvidia-smi says: Unable to determine the device handle for GPU1: 0000:34:00.0: GPU is lost. Reboot the "
        f"system to recover this GPU. {REBOOT}",
    ),
    "rtx3090-and-lost-580.csv": (
        f"nvidia-smi says: Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error. {REBOOT}",
    ),
    "lost-and-a40-570.csv": (f"nvidia-smi lists 1 more without a readable name. {REBOOT}",),
}  # fmt: skip
"""What is reported of GPUs that cannot be read, by file; of all others nothing."""

HELP = "Install NVIDIA's driver, or repair it: `nvidia-smi` by itself must list the GPUs."

REFUSED: dict[str, tuple[type[TfimgError], str]] = {
    "failed.txt": (
        NoAccelerator,
        "nvidia-smi says: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
        f"the latest NVIDIA driver is installed and running. {MODULE_HELP}",
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
        "nvidia-smi says: Unable to determine the device handle for GPU0: 0000:01:00.0: GPU is lost. Reboot the "
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
}  # fmt: skip


def answer(
    driver: str, cuda: str | None, gpus: Sequence[tuple[str, str | None]], problems: tuple[str, ...] = ()
) -> NvidiaSmi:
    found = tuple(HostGpu(name=name, capability=sm) for name, sm in gpus)
    return NvidiaSmi(driver=driver, cuda=cuda, gpus=found, problems=problems)


def test_every_recorded_output_has_its_answer() -> None:
    assert {file.name for file in FILES} == READ.keys() | REFUSED.keys()


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize("name", READ)
def test_an_output_is_read(name: str, ends: str) -> None:
    text = (FOLDER / name).read_text().replace("\n", ends)
    assert parse_nvidia_smi(text) == answer(*READ[name], problems=PROBLEMS.get(name, ()))


@pytest.mark.parametrize("name", REFUSED)
def test_output_without_a_gpu_is_refused_with_its_own_message(name: str) -> None:
    kind, message = REFUSED[name]
    with pytest.raises(TfimgError) as caught:
        parse_nvidia_smi((FOLDER / name).read_text())
    assert (type(caught.value), str(caught.value)) == (kind, message)


NO_NAME = f"nvidia-smi's output has a GPU without a readable name. {INPUT_HELP}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name, driver_version\nT4, [N/A]\n", f"This output of nvidia-smi {NO_DRIVER.format('T4')}"),
        ("GPU 0: Tesla T4 (UUID: GPU-0a)\n", f"This output of nvidia-smi {NO_DRIVER.format('Tesla T4')}"),
        ("name, driver_version\n, 535.1\n", NO_NAME),
        ("name, driver_version\nT4\x07[2J, 535.1\n", NO_NAME),
        ("name, driver_version\n[Unknown Error], 535.1\n", NO_NAME),
        ("| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2 |\n", NO_GPU),
        (
            "name, driver_version\n",
            f"This is not output of nvidia-smi: it begins with 'name, driver_version'. {INPUT_HELP}",
        ),
    ],
)
def test_output_without_driver_or_gpu_says_what_is_missing(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_nvidia_smi(text)
    assert str(caught.value) == message


def test_a_driver_or_a_gpu_that_is_known_otherwise_completes_an_output() -> None:
    listed = parse_nvidia_smi("GPU 0: Tesla T4 (UUID: GPU-0a)\n", driver="535.104.05")
    assert listed == answer("535.104.05", None, [("Tesla T4", None)])
    header = "| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2 |\n"
    assert parse_nvidia_smi(header, gpu="T4") == answer("535.104.05", "12.2", [])


# Outputs as people paste them


FIELD = FOLDER.parent / "field"
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((FIELD / "nvidia-smi.yaml").read_text())
BESIDE = {"q-cut-of-two-535.txt": "The machine has 2 GPUs, and this output describes 1 of them."}


def test_every_output_of_the_field_has_its_answer() -> None:
    assert {file.name for file in (FIELD / "nvidia-smi").iterdir()} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_an_output_of_the_field_is_read_or_says_why_not(name: str, matrix: Matrix) -> None:
    text, expected = (FIELD / "nvidia-smi" / name).read_text(), EXPECTED[name]
    if "says" in expected:
        with pytest.raises(NoAccelerator if expected["no_accelerator"] else UsageError) as caught:
            parse_nvidia_smi(text)
        assert expected["says"] in str(caught.value)
        return
    found = parse_nvidia_smi(text)
    assert (found.driver, [find_matrix_name(matrix, gpu) for gpu in found.gpus]) == (
        expected["driver"],
        expected["gpus"],
    )
    assert found.problems == ((BESIDE[name],) if name in BESIDE else ())


def before_each_line(put: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{put}{line}\n" for line in text.splitlines())


def wrap(columns: int) -> Callable[[str], str]:
    def fold(text: str) -> str:
        lines = [line[i : i + columns] for line in text.splitlines() for i in range(0, len(line) or 1, columns)]
        return "\n".join(lines)

    return fold


PASTES: dict[str, Callable[[str], str]] = {
    "a prompt": lambda text: f"(base) user@gpu-01:~$ nvidia-smi\n{text}(base) user@gpu-01:~$ ",
    "PowerShell": lambda text: f"PS C:\\Users\\user> nvidia-smi\r\n{text}",
    "Compose": before_each_line("trainer-1  | "),
    "kubectl": before_each_line("[pod/train-0/main] "),
    "CI": before_each_line("2026-11-03T10:15:02.1234567Z "),
    "syslog": before_each_line("Nov 03 10:15:02 gpu-01 smi[812]: "),
    "a quotation": before_each_line("> "),
    "a comment": before_each_line("# "),
    "a list in Markdown": lambda text: f"1. What I get:\n\n   ```console\n{before_each_line('   ')(text)}   ```\n",
    "colours": lambda text: "".join(f"\x1b[0;32m{line}\x1b[0m\n" for line in text.splitlines()),
    "blanks of a web page": lambda text: text.replace(" ", "\xa0"),
    "one line": lambda text: " ".join(text.split()),
    "a terminal of 80 columns": wrap(80),
    "UTF-16 without its mark": lambda text: "\0".join(text),
    "between other lines": lambda text: f"+ uname -r\n6.8.0-48-generic\n{text}\n+ free -h\nMem: 62Gi\n",
}
"""What happens to an output on the way into an issue or a log."""

TABLES = ("t4-470.txt", "v100-470.txt", "h100-535.txt", "rtx3090-twice-550.txt", "h200-580.txt", "b200-610.txt")


@pytest.mark.parametrize("paste", PASTES)
@pytest.mark.parametrize("name", TABLES)
def test_a_pasted_table_is_read_as_the_output_itself(name: str, paste: str) -> None:
    assert parse_nvidia_smi(PASTES[paste]((FOLDER / name).read_text())) == answer(*READ[name])


NOT_ONE_LINE = PASTES.keys() - {"one line", "a terminal of 80 columns"}


@pytest.mark.parametrize("paste", sorted(NOT_ONE_LINE))
@pytest.mark.parametrize("name", ["h100-570.csv", "k80-470-no-units.csv"])
def test_a_pasted_query_is_read_as_the_output_itself(name: str, paste: str) -> None:
    assert parse_nvidia_smi(PASTES[paste]((FOLDER / name).read_text())) == answer(*READ[name])


@pytest.mark.parametrize("paste", sorted(NOT_ONE_LINE))
@pytest.mark.parametrize("name", ["q-twice-535.txt", "q-x-rtx4090-550.xml"])
def test_a_pasted_description_is_read_as_the_output_itself(name: str, paste: str) -> None:
    text = (FIELD / "nvidia-smi" / name).read_text()
    assert parse_nvidia_smi(PASTES[paste](text)) == parse_nvidia_smi(text)


@pytest.mark.parametrize("paste", PASTES)
def test_a_pasted_failure_keeps_its_cause(paste: str) -> None:
    with pytest.raises(NoAccelerator, match="Driver/library version mismatch"):
        parse_nvidia_smi(PASTES[paste]((FOLDER / "mismatch.txt").read_text()))


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for output in (text, f"name, driver_version\n{text}", f"| NVIDIA-SMI {text}"):
        read_or_expect_refusal(output)


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


Run = Callable[[Sequence[str]], str]


def failing_run(said: str, unless: str = "compute_cap") -> Run:
    def run(argv: Sequence[str]) -> str:
        if unless not in argv[1]:
            return "name, driver_version\nTesla T4, 470.256.02\n"
        raise CommandFailed(2, argv, said, "")

    return run


def refusal(run: Run) -> str:
    with pytest.raises(NoAccelerator) as caught:
        query_nvidia_smi(run)
    return str(caught.value)


def test_the_compute_capability_is_queried_unless_nvidia_smi_is_too_old() -> None:
    def run(argv: Sequence[str]) -> str:
        assert argv == ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv"]
        return (FOLDER / "h100-570.csv").read_text()

    assert query_nvidia_smi(run) == answer(*READ["h100-570.csv"])
    run = failing_run('Field "compute_cap" is not a valid field to query.\n\n')
    assert query_nvidia_smi(run) == answer("470.256.02", None, [("Tesla T4", None)])


@pytest.mark.parametrize("said", ['Field "compute_cap" is not a valid field to query.', "Segmentation fault"])
def test_unknown_output_of_nvidia_smi_is_an_error(said: str) -> None:
    message = f"This is not output of nvidia-smi: it begins with '{said}'. {HELP}"
    assert refusal(failing_run(said, unless="")) == message


@pytest.mark.parametrize("name", [name for name, (kind, _) in REFUSED.items() if kind is NoAccelerator])
def test_a_failure_of_nvidia_smi_keeps_its_message(name: str) -> None:
    assert refusal(failing_run((FOLDER / name).read_text(), unless="")) == REFUSED[name][1]


def test_a_failure_on_one_gpu_still_lists_the_others() -> None:
    name = "rtx3090-and-lost-580.csv"
    found = query_nvidia_smi(failing_run((FOLDER / name).read_text(), unless=""))
    assert found == answer(*READ[name], problems=PROBLEMS[name])


def test_an_nvidia_smi_that_is_missing_does_not_start_or_hangs_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"

    def start(argv: Sequence[str]) -> str:
        return run([str(program), *argv[1:]], timeout=0.1)

    comes = "`nvidia-smi`, which comes with NVIDIA's driver,"
    assert refusal(start) == f"{comes} is not installed. {HELP}"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    assert refusal(start) == f"{comes} cannot be started: Permission denied. {HELP}"
    program.chmod(0o755)
    assert refusal(start) == (
        f"`{program}` did not end within 0.1 seconds. Check `dmesg` for errors of the driver (NVRM, Xid), and reboot: "
        "a GPU that fell off the bus hangs it."
    )
