"""A machine that is a folder, recorded output of nvidia-smi, and the level that a host can prove."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.hosts import NO_SMI, T4, make_host, with_gpus
from support.memory_engine import toolkit
from tfimg.core.errors import NoAccelerator, NoContainerToolkit, NoEmulation, TfimgError, UnavailableDriver, UsageError
from tfimg.core.levels import Level
from tfimg.core.process import CommandFailed, run
from tfimg.engine.interface import DeviceSupport
from tfimg.host.survey import (
    INPUT_HELP,
    Execution,
    Host,
    HostGpu,
    NvidiaSmi,
    TargetHost,
    TargetLevel,
    choose_target_level,
    parse_nvidia_smi,
    query_nvidia_smi,
    survey_host,
)
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec

SMI = NvidiaSmi(driver="550.54.15", cuda="12.4", gpus=(HostGpu(name="T4", capability="sm_75"),))


def no_smi() -> NvidiaSmi:
    raise NO_SMI


def write(root: Path, path: str, text: str = "", mode: int = 0o644) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def look(root: Path, **given: Any) -> Host:
    """Survey a machine of which nothing but its folder is real."""
    plain = {"machine": "x86_64", "query_smi": no_smi, "may_use": lambda _: True, "docker_host": "unix:///run/e.sock"}
    return survey_host(root=root, **{**plain, **given})


def test_an_empty_machine_has_nothing(tmp_path: Path) -> None:
    assert look(tmp_path) == Host(
        platform="linux/amd64", avx=False, memory_bytes=None, cards=0, module=False, smi=NO_SMI, tpus=(),
        closed_tpus=(), hook=False, cdi=(), socket="absent",
    )  # fmt: skip


def test_avx_is_one_of_the_flags(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", "processor : 0\nflags\t\t: fpu sse avx512f avx xsave\n")
    assert look(tmp_path).avx is True
    write(tmp_path, "proc/cpuinfo", "processor : 0\nflags\t\t: fpu sse avx2\nmodel name : avx\n")
    assert look(tmp_path).avx is False
    assert look(tmp_path, machine="aarch64").avx is None


def test_a_processor_that_no_wheel_is_for_keeps_the_kernel_s_name_and_memory_is_in_bytes(tmp_path: Path) -> None:
    found = [look(tmp_path, machine=name).platform for name in ("aarch64", "ppc64le")]
    assert found == ["linux/arm64", "ppc64le"]
    write(tmp_path, "proc/meminfo", "MemTotal:       24684084 kB\nMemFree: 1 kB\n")
    assert look(tmp_path).memory_bytes == 24684084 * 1024


def test_gpus_are_nvidia_s_display_devices(tmp_path: Path) -> None:
    devices = {
        "0000:00:01.0": ("0x10de", "0x030200"),  # a GPU without a screen
        "0000:00:02.0": ("0x10de", "0x030000"),
        "0000:00:03.0": ("0x10de", "0x040300"),  # the sound of a GPU
        "0000:00:04.0": ("0x8086", "0x030000"),  # Intel's
    }
    for address, (vendor, kind) in devices.items():
        write(tmp_path, f"sys/bus/pci/devices/{address}/vendor", f"{vendor}\n")
        write(tmp_path, f"sys/bus/pci/devices/{address}/class", f"{kind}\n")
    assert look(tmp_path).cards == 2


def test_a_loaded_driver_and_what_nvidia_smi_says(tmp_path: Path) -> None:
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n"
    write(tmp_path, "proc/driver/nvidia/version", version)
    found = look(tmp_path, query_smi=lambda: SMI)
    assert (found.module, found.smi) == (True, SMI)


def test_tpus_are_accelerators_or_vfio_groups(tmp_path: Path) -> None:
    for name in ("accel1", "accel0", "vfio/0", "vfio/vfio", "accel/accel0"):
        write(tmp_path, f"dev/{name}", mode=0o600 if name == "accel1" else 0o666)
    found = look(tmp_path)
    assert found.tpus == ("/dev/accel0", "/dev/accel1", "/dev/vfio/0")
    assert found.closed_tpus == ("/dev/accel1",)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n"),
        ("nvidia.yml", 'cdiVersion: "0.5.0"\nkind: "nvidia.com/gpu"'),
        ("nvidia.json", '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []}'),
        ("nvidia.json", '{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu"}'),
    ],
)
def test_a_specification_of_nvidia_s_is_found(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, f"var/run/cdi/{name}", text)
    assert look(tmp_path).cdi == ("/var/run/cdi",)


def test_other_specifications_are_not_nvidia_s_gpus(tmp_path: Path) -> None:
    write(tmp_path, "etc/cdi/other.yaml", "kind: vendor.com/net\n# not nvidia.com/gpu\n")
    write(tmp_path, "etc/cdi/near.yaml", "kind: nvidia.com/gpu-fabric\n")
    write(tmp_path, "etc/cdi/notes.txt", "kind: nvidia.com/gpu\n")
    assert look(tmp_path).cdi == ()


def test_the_hook_is_the_toolkit_s(tmp_path: Path) -> None:
    write(tmp_path, "usr/bin/nvidia-container-runtime-hook", mode=0o755)
    assert look(tmp_path).hook is True


def test_a_socket_is_open_closed_or_absent(tmp_path: Path) -> None:
    write(tmp_path, "run/e.sock")
    assert look(tmp_path).socket == "open"
    assert look(tmp_path, may_use=lambda _: False).socket == "closed"
    assert look(tmp_path, docker_host="tcp://engine.example:2376").socket == "absent"


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
        "nvidia-smi says: Unable to determine the device handle for GPU1: 0000:34:00.0: GPU is lost.  Reboot the "
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


NO_DRIVER = "nvidia-smi's output does not contain the version of the driver."
NO_NAME = "nvidia-smi's output has a GPU without a readable name."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name, driver_version\nT4, [N/A]\n", NO_DRIVER),
        ("name, driver_version\n, 535.1\n", NO_NAME),
        ("name, driver_version\nT4\x1b[2J, 535.1\n", NO_NAME),
        ("name, driver_version\n[Unknown Error], 535.1\n", NO_NAME),
        ("name, driver_version\n", "This is not output of nvidia-smi: it begins with 'name, driver_version'."),
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


ARM, CPU, GPU, TPU = "2.15.1-cpu-py3.11-arm64", "2.15.1-cpu-py3.11", "2.15.1-cuda12.2-py3.11", "2.20.0-tpu-py3.11"
NVIDIA = toolkit(runtimes=("nvidia", "runc"))
FAR = replace(NVIDIA, host="tcp://far:1")
CDI = toolkit(cdi_devices=("nvidia.com/gpu=all",))
TPUS = make_host(tpus=("/dev/accel0", "/dev/accel1"))
NODES = "/dev/accel0 /dev/accel1"
H100 = HostGpu(name="NVIDIA H100", capability="sm_90")
TWO_GPUS = with_gpus(H100, T4)
NAMED = f"NVIDIA H100, {T4.name}; driver 550.54.15"

Choose = Callable[..., TargetLevel]


@pytest.fixture
def choose(matrix: Matrix, specs: Sequence[ImageSpec], named: Callable[[str], ImageSpec]) -> Choose:
    """Return the function that chooses a level for an identifier."""

    def choose_level(
        identifier: str, host: Host, toolkit_: DeviceSupport, requested: Level | None = None,
        execution: Execution = "native",
    ) -> TargetLevel:  # fmt: skip
        target_host = TargetHost(matrix=matrix, specs=specs, host=host, toolkit=toolkit_)
        return choose_target_level(named(identifier), target_host, requested, execution)

    return choose_level


@pytest.mark.parametrize(
    ("identifier", "host", "toolkit_", "expected"),
    [
        (CPU, make_host(), toolkit(), TargetLevel(level=Level.VALIDATED)),
        (GPU, TWO_GPUS, NVIDIA, TargetLevel(level=Level.VALIDATED, access="nvidia", accelerator=NAMED)),
        (GPU, TWO_GPUS, CDI, TargetLevel(level=Level.VALIDATED, access="cdi", accelerator=NAMED)),
        (GPU, make_host(), FAR, TargetLevel(level=Level.VALIDATED, access="nvidia", accelerator="not known")),
        (TPU, TPUS, toolkit(), TargetLevel(level=Level.VALIDATED, access="privileged", accelerator=NODES)),
    ],
    ids=["cpu", "gpu", "gpu by CDI", "gpu on another machine", "tpu"],
)
def test_the_device_allows_every_level(
    identifier: str, host: Host, toolkit_: DeviceSupport, expected: TargetLevel, choose: Choose
) -> None:
    assert choose(identifier, host, toolkit_) == choose(identifier, host, toolkit_, Level.VALIDATED) == expected
    assert choose(identifier, host, toolkit_, Level.LINKED) == TargetLevel(level=Level.LINKED)


OLD = with_gpus(T4, driver="470.57.02")


@pytest.mark.parametrize(
    ("identifier", "host", "toolkit_", "error", "reason"),
    [
        (GPU, make_host(), NVIDIA, NoAccelerator, "this machine has none"),
        (GPU, with_gpus(), toolkit(), NoContainerToolkit, "cannot give a GPU to a container"),
        (GPU, OLD, NVIDIA, UnavailableDriver, "needs NVIDIA driver 525.60.13 or newer"),
        (TPU, make_host(), toolkit(), NoAccelerator, "neither /dev/accel0 nor /dev/vfio/0"),
    ],
    ids=["no GPU", "no toolkit", "old driver", "no TPU"],
)
def test_without_the_device_the_level_is_linked_unless_validated_is_requested(
    identifier: str, host: Host, toolkit_: DeviceSupport, error: type[TfimgError], reason: str, choose: Choose
) -> None:
    found = choose(identifier, host, toolkit_)
    assert (found.level, found.access) == ("linked", "none")
    assert reason in (found.reason or "")
    with pytest.raises(error, match=reason) as raised:
        choose(identifier, host, toolkit_, Level.VALIDATED)
    assert raised.value.next_step.startswith("Omit --level")
    assert raised.value.next_step.endswith(f"`tfimg doctor {identifier}` shows the next step for this machine.")


def test_an_emulator_proves_linked_at_most(choose: Choose) -> None:
    reason = f"{ARM} is for linux/arm64, and the engine runs on linux/amd64, which emulates linux/arm64."
    expected = TargetLevel(level=Level.LINKED, reason=reason, emulated=True)
    assert choose(ARM, make_host(), toolkit(), None, "emulated") == expected
    assert choose(ARM, make_host(), toolkit(), Level.LINKED, "emulated") == expected
    with pytest.raises(NoEmulation) as raised:
        choose(ARM, make_host(), toolkit(), Level.VALIDATED, "emulated")
    assert str(raised.value) == (
        f"{reason} Validate it on a machine of linux/arm64, or omit --level to prove level linked."
    )


@pytest.mark.parametrize("requested", [Level.LINKED, Level.VALIDATED])
def test_where_an_image_cannot_run_it_is_only_built(requested: Level, choose: Choose) -> None:
    found = choose(ARM, make_host(), toolkit(), None, "none")
    what = f"{ARM} is for linux/arm64, and the engine runs on linux/amd64, where programs of linux/arm64 do not run."
    step = "`tfimg engine up --emulate` installs an emulator"
    assert found == TargetLevel(level=Level.BUILT, reason=f"{what} No check was run. {step}.")
    with pytest.raises(NoEmulation) as raised:
        choose(ARM, make_host(), toolkit(), requested, "none")
    assert str(raised.value) == f"{what} {step}; or validate it on a machine of linux/arm64."


def test_a_machine_of_the_image_s_kind_proves_everything(choose: Choose) -> None:
    assert choose(ARM, make_host(), replace(toolkit(), platform="linux/arm64")) == TargetLevel(level=Level.VALIDATED)
