"""`tfimg run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, ClassVar

from cyclopts import Parameter

from tfimg.cli.options import Command, flag, identifier_option, image_argument, option, values

if TYPE_CHECKING:
    from tfimg.cli.context import Context


@dataclass(frozen=True)
class Run(Command):
    """Start a container with the flags that the image's device needs.

    Examples:
      tfimg run tfimg/tensorflow:2.15 -v $PWD:/work -w /work -- python train.py
    """

    image: str = image_argument()
    _: KW_ONLY
    identifier: str | None = identifier_option()
    gpus: str | None = option("all (default of a GPU image), numbers: 0,1, or MIG devices: 0:0", "WHICH")
    no_gpu: bool = flag("run a GPU image on the processor")
    shm_size: str | None = option("shared memory (default: 1g for GPUs, 16g for TPUs)", "SIZE")
    volume: tuple[str, ...] = values(
        "show a folder of the machine in the container", "HOST:PATH[:ro]", names=("--volume", "-v")
    )
    publish: tuple[str, ...] = values("let a port of the container be reached", "PORT:PORT", names=("--publish", "-p"))
    env: tuple[str, ...] = values("set a variable", "NAME[=VALUE]", names=("--env", "-e"))
    user: tuple[str, ...] = values(
        "run as another user (default: the image's, who is not root)", "UID[:GID]", names=("--user", "-u")
    )
    workdir: tuple[str, ...] = values("start in another folder", "PATH", names=("--workdir", "-w"))
    name: tuple[str, ...] = values("name the container", "NAME")
    dry_run: bool = flag("print the docker command and what is missing; start nothing")
    program: tuple[str, ...] = field(default=(), metadata={"parameter": Parameter(parse=False)})

    alternatives: ClassVar[Mapping[str, str]] = {"--gpus": "gpus", "--no-gpu": "no_gpu"}

    def run(self, context: Context) -> int:
        """Run the command."""
        from tfimg.cli.hosts import run

        return run(self, context)
