"""A machine that is a folder, and the level that a host can prove."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.hosts import NO_SMI, T4, make_host, with_gpus
from support.memory_engine import toolkit
from tfimg.core.errors import NoAccelerator, NoContainerToolkit, NoEmulation, TfimgError, UnavailableDriver
from tfimg.core.levels import Level
from tfimg.engine.interface import DeviceSupport
from tfimg.host.nvidia_smi import HostGpu, NvidiaSmi
from tfimg.host.survey import Execution, Host, TargetHost, TargetLevel, choose_target_level, survey_host
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
