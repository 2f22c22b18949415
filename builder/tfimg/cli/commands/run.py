"""Commands that start a container."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    IdentifierOptions,
    LocalImageOptions,
    argument,
    flag,
    option,
    option_group,
    values,
)
from tfimg.cli.values import positive_number
from tfimg.host.jupyter import NOTEBOOKS, Notebook, choose_port, find_newest, plan_notebook, require_notebooks, serve
from tfimg.host.run import RunOptions, missing_client, plan_run

PASSED_ON = ("volume", "mount", "publish", "network", "ipc", "env", "env_file", "user", "workdir", "name")
"""Fields that become options of `docker run` of the same name."""


def split_options(line: str) -> tuple[str, ...]:
    """Split options of `docker run` as a shell does. Raises `ValueError` for anything else."""
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        raise ValueError(f"{line!r} is not a valid line of a shell: {str(error).lower()}") from None
    if not words or not words[0].startswith("-"):
        raise ValueError(f"{line!r} does not begin with an option of docker run, such as --cap-add SYS_PTRACE")
    return words


@option_group
class GpuOptions:
    """The accelerators of a container."""

    gpus: str | None = option("all (default of a GPU image), numbers: 0,1, or MIG devices: 0:0", "WHICH")
    no_gpu: bool = flag("run a GPU image on the processor")
    shm_size: str | None = option("shared memory (default: 1g for GPUs, 16g for TPUs)", "SIZE")

    alternatives: ClassVar[tuple[tuple[str, str], ...]] = (("--gpus", "gpus"), ("--no-gpu", "no_gpu"))


@option_group
class ContainerOptions(GpuOptions, IdentifierOptions):
    """Options of a container in the foreground."""

    volume: tuple[str, ...] = values(
        "show a folder of the machine in the container", "HOST:PATH[:ro]", name=("--volume", "-v")
    )
    publish: tuple[str, ...] = values("publish a port of the container", "PORT:PORT", name=("--publish", "-p"))
    mount: tuple[str, ...] = values("mount as docker run does", "type=bind,source=DIR,target=PATH")
    network: str | None = option("network of the container: host, none, or a name", "NAME", name=("--network", "--net"))
    ipc: str | None = option("shared memory of another container or the machine: host", "MODE")
    env: tuple[str, ...] = values("set a variable", "NAME[=VALUE]", name=("--env", "-e"))
    env_file: tuple[str, ...] = values("set the variables of a file", "FILE")
    user: str | None = option(
        "run as another user (default: the owner of the mounted working folder, else the image's; not root)",
        "UID[:GID]",
        name=("--user", "-u"),
    )
    workdir: str | None = option("start in another folder", "PATH", name=("--workdir", "-w"))
    name: str | None = option("name the container", "NAME")
    interactive: bool = flag(
        "pass standard input to the program (always the case, unless it is closed)", name=("--interactive", "-i")
    )
    tty: bool = flag("give the program a terminal (default: if there is one)", name=("--tty", "-t"))
    rm: bool = flag("remove the container when it ends (always the case)")
    docker_args: tuple[str, ...] | None = option(
        "more options of docker run, in one word: --docker-args='--cap-add SYS_PTRACE --pid host'",
        "OPTIONS",
        parse=split_options,
    )
    dry_run: bool = flag("print the docker or podman command and what is missing; start nothing")

    def start(self, context: Context, image: str, program: Sequence[str]) -> int:
        """Find out what an image is, what it needs and whether that is here; become `docker run` or `podman run`."""
        engine, project = context.services.runner(), context.project()
        spec = project.spec_of_image(engine, image, self.identifier)
        host = project.target_host(engine)
        options = RunOptions(
            gpus=self.gpus,
            no_gpu=self.no_gpu,
            shm_size=self.shm_size,
            options=(*self._list_passed_on(), *(self.docker_args or ())),
            interactive=self.interactive or (sys.stdin is not None and not sys.stdin.closed),
            terminal=self.tty or all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)),
            program=tuple(program),
        )
        planned = plan_run(image, spec, options, host)
        if self.dry_run:
            facts = {"argv": planned.argv, "image": spec.identifier, "device": planned.device, "notes": planned.notes}
            missing = [str(lack) for lack in planned.missing]
            context.print_result({**facts, "missing": missing}, shlex.join(planned.argv))
        for note in planned.notes:
            context.say(f"Note: {note}")
        if self.dry_run:
            for lack in missing:
                context.say(f"Missing: {lack}")
            return 0
        if planned.missing:
            raise planned.missing[0]
        try:
            return context.services.hand_over(planned.argv, docker_environ(context, host.toolkit.host))
        except FileNotFoundError:
            raise missing_client(planned.argv) from None

    def _list_passed_on(self) -> Iterator[str]:
        for name in PASSED_ON:
            given: str | tuple[str, ...] | None = vars(self)[name]
            for value in (given,) if isinstance(given, str) else given or ():
                yield from (f"--{name.replace('_', '-')}", value)


@dataclass(frozen=True)
class Run(Command, LocalImageOptions, ContainerOptions):
    """Start a container with the flags that the image's device needs.

    Examples:
      tfimg run tfimg/tensorflow:2.15 -v $PWD:/work -w /work -- python train.py
    """

    program: tuple[str, ...] = ()

    def run(self, context: Context) -> int:
        return self.start(context, self.image, self.program)


def docker_environ(context: Context, host: str) -> dict[str, str]:
    """Return the environment of a `docker` command for an engine. A context would win over DOCKER_HOST."""
    environ = {name: value for name, value in context.services.environ.items() if name != "DOCKER_CONTEXT"}
    return {**environ, "DOCKER_HOST": host}


@dataclass(frozen=True)
class Shell(Command, ContainerOptions):
    """Start bash in an image, with the flags that its device needs.

    Examples:
      tfimg shell
      tfimg shell tfimg/tensorflow:2.15 -v $PWD:/work -w /work
    """

    image: str | None = argument("an image in the engine (default: its newest of variant dev)", "IMAGE", default=None)

    def run(self, context: Context) -> int:
        image = self.image or find_newest(context.services.runner().list_images(), ("dev",))
        return self.start(context, image, ("bash",))


@dataclass(frozen=True)
class Jupyter(Command, GpuOptions, IdentifierOptions):
    """Start JupyterLab of an image on a port of this machine's loopback, and stop it with Ctrl-C.

    Examples:
      tfimg jupyter -v $PWD --open
      tfimg jupyter tfimg/tensorflow:2.15-jupyter
    """

    image: str | None = argument(
        "an image in the engine (default: its newest of variant jupyter or dev)", "IMAGE", default=None
    )
    volume: str | None = option("folder of the machine for notebooks and data", "DIR", name=("--volume", "-v"))
    port: int | None = option(
        "port on 127.0.0.1 (default: a free one)", "PORT", parse=partial(positive_number, limit=65535)
    )
    open: bool = flag("open the address in a browser")

    def run(self, context: Context) -> int:
        engine, project = context.services.runner(), context.project()
        image = self.image or find_newest(engine.list_images(), NOTEBOOKS)
        spec = project.spec_of_image(engine, image, self.identifier)
        require_notebooks(image, spec)
        host = project.target_host(engine)
        notebook = Notebook(
            image=image,
            container=f"tfimg-jupyter-{secrets.token_hex(4)}",
            port=choose_port(self.port),
            token=secrets.token_hex(24),
            folder=Path(self.volume).absolute() if self.volume else None,
        )
        options = RunOptions(gpus=self.gpus, no_gpu=self.no_gpu, shm_size=self.shm_size)
        planned = plan_notebook(notebook, spec, options, host)
        for note in planned.notes:
            context.say(f"Note: {note}")
        if planned.missing:
            raise planned.missing[0]
        is_ready = False

        def announce() -> None:
            nonlocal is_ready
            is_ready = True
            facts = {"image": image, "container": notebook.container, "port": notebook.port, "token": notebook.token}
            context.print_result({"url": notebook.url, **facts}, notebook.url)
            context.say("Ctrl-C stops it and removes the container, with all files that are not in a folder of -v.")
            if self.open and not context.services.open_browser(notebook.url):
                context.say("No browser was found: open the address in one.")

        environ = docker_environ(context, host.toolkit.host)
        context.say(f"Starting JupyterLab of {image}")
        try:
            serve(notebook, planned.argv, environ, on_ready=announce, clock=time.monotonic)
        except KeyboardInterrupt:
            if not is_ready:
                raise
            context.say("Stopped; the container is removed.")
        return 0
