"""`tfimg engine up|down|status|env`."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict, dataclass

from tfimg.cli.context import Context
from tfimg.cli.options import Command, flag
from tfimg.core.errors import EngineCannotBuild, EngineTooOld, EngineUnavailable, TfimgError
from tfimg.core.text import format_size
from tfimg.engine.buildx import choose_output
from tfimg.engine.connect import install_missing, set_up_emulation, start, stop
from tfimg.engine.interface import Engine
from tfimg.engine.machine import PrivateEngine, describe_starter, find_private_engine


@dataclass(frozen=True)
class EngineUp(Command):
    """Use the engine that runs, else start a private one.

    Examples:
      tfimg engine up --install
      tfimg engine up --emulate
    """

    install: bool = flag("install what is missing from the distribution's packages")
    emulate: bool = flag("install QEMU, and register it with the kernel, for images of other platforms")

    def run(self, context: Context) -> int:
        environ, own = context.services.environ, PrivateEngine(context.services.state)
        named = environ.get("DOCKER_HOST") or own.host
        private = own if named == own.host else find_private_engine(named)
        engine: Engine | None = None
        try:
            (engine,) = context.engines()
        except (EngineUnavailable, EngineTooOld):
            if private is None or os.geteuid() != 0:  # what the error says begins with root's part
                raise
        started = engine is None
        if self.install:
            install_missing(environ, engine=started, say=context.say)
        if self.emulate:
            for platform in set_up_emulation(environ, say=context.say):
                context.say(f"Containers of this machine run programs of {platform}.")
        if engine is None and private:
            context.say(f"Starting a private engine below {private.folder}")
            engine = start(private, environ)
        assert engine is not None  # noqa: S101  (it answered, or was started)
        return _print_engine(context, engine, started=started)


@dataclass(frozen=True)
class EngineDown(Command):
    """Stop the private engine and wait until it is gone.

    Examples:
      tfimg engine down
    """

    def run(self, context: Context) -> int:
        own = PrivateEngine(context.services.state)
        stopped = stop(own)
        sentence = f"Stopped; its images remain in {own.folder}." if stopped else "No private engine runs."
        context.print_result({"stopped": stopped, "folder": str(own.folder)}, sentence)
        return 0


@dataclass(frozen=True)
class EngineStatus(Command):
    """Say which engine would be used, and what it can do.

    Examples:
      tfimg engine status
    """

    def run(self, context: Context) -> int:
        try:
            return _print_engine(context, context.engines()[0], started=False)
        except EngineCannotBuild as error:
            return _print_runner(context, error)


@dataclass(frozen=True)
class EngineEnv(Command):
    """Print the setting that points plain docker at the engine.

    Examples:
      eval "$(tfimg engine env)"
    """

    def run(self, context: Context) -> int:
        host = context.engines()[0].get_capabilities().host
        context.print_result({"DOCKER_HOST": host}, f"export DOCKER_HOST={shlex.quote(host)}")
        return 0


def _print_runner(context: Context, reason: TfimgError) -> int:
    found = context.services.runner().get_device_support()
    fields = {
        "host": f"{found.host} (not started by tfimg)",
        "engine": f"{found.engine} {found.version}{', rootless' if found.rootless else ''}",
        "builds": f"no. {reason.next_step}",
    }
    context.print_result({**asdict(found), "builds": False, "private": False, "started": False}, fields)
    return 0


def _print_engine(context: Context, engine: Engine, *, started: bool) -> int:
    found = engine.get_capabilities()
    output = choose_output(found, "NAME")
    plan = {"compression": output.compression, "why": output.why}
    fields = {
        "host": f"{found.host} ({describe_starter(found.host)})",
        "engine": f"Docker {found.engine}",
        "buildx": found.buildx,
        "store": found.store,
        "disk": f"{format_size(found.free_bytes)} free below {found.data_root}",
        "layers": f"compression {output.compression}: {output.why}",
    }
    context.print_result(
        {**asdict(found), "private": find_private_engine(found.host) is not None, "started": started, "plan": plan},
        fields,
    )
    return 0
