"""A machine that is a folder: what is read from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.hosts import NO_SMI
from tfimg.host.survey import Gpu, Host, NvidiaSmi, survey_host

SMI = NvidiaSmi(driver="550.54.15", cuda="12.4", gpus=(Gpu(name="T4", capability="sm_75"),))


def no_smi() -> NvidiaSmi:
    raise NO_SMI


def write(root: Path, path: str, text: str = "", mode: int = 0o644) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def look(root: Path, **given: Any) -> Host:
    """Survey a machine of which nothing but its folder is real."""
    asked = {
        "machine": "x86_64",
        "query_smi": no_smi,
        "may_use": lambda _: True,
        "docker_host": "unix:///run/e.sock",
    }
    return survey_host(root=root, **{**asked, **given})


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


def test_a_processor_that_no_wheel_is_for_keeps_the_kernel_s_name(tmp_path: Path) -> None:
    found = [look(tmp_path, machine=name).platform for name in ("aarch64", "ppc64le")]
    assert found == ["linux/arm64", "ppc64le"]


def test_memory_is_in_bytes(tmp_path: Path) -> None:
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
