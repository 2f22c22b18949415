"""Hosts as values: without an accelerator, and with NVIDIA GPUs."""

from dataclasses import replace
from typing import Any

from tfimg.core.errors import NoAccelerator
from tfimg.host.nvidia_smi import HostGpu, NvidiaSmi
from tfimg.host.survey import Host

NO_SMI = NoAccelerator("nvidia-smi is not installed.", next_step="Install it.")

PLAIN = Host(
    platform="linux/amd64", avx=True, memory_bytes=16 * 1024**3, cards=0, module=False, smi=NO_SMI, tpus=(),
    closed_tpus=(), hook=False, cdi=(), socket="open",
)  # fmt: skip
"""A machine without any accelerator."""

T4 = HostGpu(name="Tesla T4", capability="sm_75")
H100 = HostGpu(name="NVIDIA H100 PCIe", capability="sm_90")
RTX_5090 = HostGpu(name="NVIDIA GeForce RTX 5090", capability="sm_120")
B200 = HostGpu(name="NVIDIA B200", capability="sm_100")


def make_host(**changes: Any) -> Host:
    return replace(PLAIN, **changes)


def with_gpus(*gpus: HostGpu, driver: str = "550.54.15", problems: tuple[str, ...] = (), **changes: Any) -> Host:
    smi = NvidiaSmi(driver=driver, cuda="12.4", gpus=gpus or (T4,), problems=problems)
    return make_host(cards=len(smi.gpus), module=True, smi=smi, **changes)
