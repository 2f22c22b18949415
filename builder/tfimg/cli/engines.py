"""`tfimg engine up|down|status|env`."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from tfimg.build.image import choose_output
from tfimg.cli.context import Context
from tfimg.core.errors import EngineTooOld, EngineUnavailable
from tfimg.engine import private_engine as private
from tfimg.engine.base_images.debian import install_packages
from tfimg.engine.connect import private_engine
from tfimg.engine.docker.bridge import suggest_bridge_repair
from tfimg.engine.docker.engine import DockerEngine
from tfimg.engine.protocol import Engine

if TYPE_CHECKING:
    from tfimg.cli.commands.engine import EngineDown, EngineEnv, EngineStatus, EngineUp


def up(command: EngineUp, context: Context) -> int:
    """`tfimg engine up [--install]`: the engine that runs, else a private one."""
    engine = _find_running_engine(context)
    if command.install:
        _install_missing(context, engine_too=engine is None)
    return _print_engine(context, engine or _start_private_engine(context), started=engine is None)


def _find_running_engine(context: Context) -> Engine | None:
    """The engine that answers and can build; None where a private one is to be started."""
    try:
        return context.engine
    except (EngineUnavailable, EngineTooOld):
        if context.services.environ.get("DOCKER_HOST"):
            raise
        return None


def _install_missing(context: Context, *, engine_too: bool) -> None:
    """Install what is missing: the engine only where none runs, so that an engine of the user is not changed."""
    path = f"{context.services.environ.get('PATH', '')}:/usr/sbin:/sbin"
    engine_too = engine_too and not (shutil.which("dockerd", path=path) and _has_buildx(context.services.environ))
    if not engine_too and shutil.which("mmdebstrap", path=path):
        return
    context.say("Installing from the distribution's packages")
    done = install_packages(context.services.environ, engine=engine_too)
    context.say(f"Done: installed {done}.")


def _has_buildx(environ: Mapping[str, str]) -> bool:
    try:
        DockerEngine(host="unix:///dev/null", environ=environ).buildx_version()
    except EngineTooOld:
        return False
    return True


def _start_private_engine(context: Context) -> DockerEngine:
    own = private_engine(context.services.state)
    context.say(f"Starting a private engine below {own.folder}")
    engine = DockerEngine(host=own.host, environ=context.services.environ)

    def answers() -> bool:
        # A new object each time: the API client remembers a failure.
        try:
            DockerEngine(host=own.host, environ=context.services.environ).get_capabilities()
        except EngineUnavailable:
            return False
        return True

    private.start(own, path=context.services.environ.get("PATH", ""), answers=answers)
    return engine


def down(_command: EngineDown, context: Context) -> int:
    """`tfimg engine down`."""
    own = private_engine(context.services.state)
    stopped = private.stop(own)
    if context.command.json:
        context.emit({"stopped": stopped, "folder": str(own.folder)})
    else:
        print(f"Stopped; its images stay below {own.folder}." if stopped else "No private engine runs.")
    return 0


def status(_command: EngineStatus, context: Context) -> int:
    """`tfimg engine status`."""
    return _print_engine(context, context.engine, started=False)


def env(_command: EngineEnv, context: Context) -> int:
    """`tfimg engine env`."""
    host = context.engine.get_capabilities().host
    if context.command.json:
        context.emit({"DOCKER_HOST": host})
    else:
        print(f"export DOCKER_HOST={shlex.quote(host)}")
    return 0


def _print_engine(context: Context, engine: Engine, *, started: bool) -> int:
    from tfimg.cli.fields import print_fields
    from tfimg.cli.show import size

    found = engine.get_capabilities()
    output = choose_output(found, "NAME")
    own = private_engine(context.services.state).host == found.host
    if context.command.json:
        plan = {"compression": output.compression, "why": output.why}
        context.emit({**asdict(found), "private": own, "started": started, "plan": plan})
        return 0
    lost = found.missing_bridge
    print_fields(
        {
            "host": f"{found.host} ({'private' if own else 'not started by tfimg'})",
            "engine": f"Docker {found.engine}",
            "buildx": found.buildx,
            "buildkit": found.buildkit or "inside the engine, which does not tell its version",
            "store": found.store,
            "disk": f"{size(found.free_bytes)} free below {found.data_root}",
            "network": f"its bridge {lost} is gone. {suggest_bridge_repair(lost, private=own)}" if lost else None,
            "layers": f"compression {output.compression}: {output.why}",
        }
    )
    return 0
