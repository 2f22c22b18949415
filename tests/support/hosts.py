"""Machines: as values, and as the edge of a command that looks at one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from support.memory_engine import FakeEngine
from tfimg.cli.edge import Edge
from tfimg.engine.protocol import Engine, StoredImage
from tfimg.errors import NoAccelerator, TfimgError
from tfimg.host.nvidia_smi import Gpu, NvidiaSmi
from tfimg.host.survey import Host
from tfimg.recipe.labels import IDENTIFIER

NO_SMI = NoAccelerator("nvidia-smi is not installed.", next_step="Install it.")

PLAIN = Host(
    platform="linux/amd64", avx=True, memory_bytes=16 * 1024**3, cards=0, module=False, smi=NO_SMI, tpus=(),
    closed_tpus=(), hook=False, cdi=(), socket="open",
)  # fmt: skip
"""A machine without any accelerator."""

T4 = Gpu(name="Tesla T4", capability="sm_75", memory_mib=15360)
H100 = Gpu(name="NVIDIA H100 PCIe", capability="sm_90", memory_mib=81559)
B200 = Gpu(name="NVIDIA B200", capability="sm_100", memory_mib=183359)


def plain(**changes: Any) -> Host:
    return replace(PLAIN, **changes)


def with_gpus(*gpus: Gpu, driver: str = "550.54.15", **changes: Any) -> Host:
    smi = NvidiaSmi(driver=driver, cuda="12.4", gpus=gpus or (T4,))
    return plain(cards=len(smi.gpus), module=True, smi=smi, **changes)


@dataclass
class HostEdge(Edge):
    """A machine and an engine on it; what a command would have become is kept in `handed`."""

    host: Host = PLAIN
    answers: FakeEngine = field(default_factory=FakeEngine)
    refuses: TfimgError | None = None
    without_docker: bool = False
    handed: list[tuple[Sequence[str], Mapping[str, str]]] = field(default_factory=list)

    def engine(self, environ: Mapping[str, str], state: Path) -> Engine:
        return self.runner(environ, state)

    def runner(self, *_: object, **__: object) -> Engine:
        if self.refuses:
            raise self.refuses
        return self.answers

    def survey(self, *_: object, **__: object) -> Host:
        return self.host

    def hand_over(self, argv: Sequence[str], environ: Mapping[str, str]) -> int:
        if self.without_docker:
            raise FileNotFoundError("docker")
        self.handed.append((argv, environ))
        return 7

    def pip_settings(self) -> Mapping[str, str]:
        return {}


def holding(edge: HostEdge, name: str, identifier: str | None) -> None:
    """Put an image into the edge's engine that says what it is, or does not."""
    labels = {IDENTIFIER: identifier} if identifier else {}
    edge.answers.names[name] = StoredImage(digest="sha256:1", layers=(), unpacked_bytes=1, labels=labels)
