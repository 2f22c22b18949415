"""Which engine: the one that is named, else one that answers and can build, else tfimg's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tfimg.core.errors import EngineTooOld, EngineUnavailable
from tfimg.core.process import CommandFailed, run
from tfimg.engine.docker.builders import Builder, context_environment, find_builder
from tfimg.engine.docker.engine import DockerEngine
from tfimg.engine.private_engine import PrivateEngine


def private_engine(state: Path) -> PrivateEngine:
    """The private engine of a state folder."""
    return PrivateEngine(folder=state / "engine")


def connect(
    environ: Mapping[str, str],
    state: Path,
    *,
    ask: Callable[[DockerEngine], object] = DockerEngine.get_capabilities,
) -> DockerEngine:
    """The first engine that answers and is new enough: one that answers what it is asked first.

    `DOCKER_HOST` is final where it is set. Raises `EngineUnavailable` when none answers, `EngineTooOld` when
    those that do cannot build.
    """
    too_old: EngineTooOld | None = None
    for host in _hosts(environ, state):
        engine = DockerEngine(host=host, environ=environ)
        try:
            ask(engine)
        except EngineUnavailable:
            if environ.get("DOCKER_HOST"):
                raise
        except EngineTooOld as error:
            too_old = error
        else:
            return engine
    raise too_old or EngineUnavailable(
        "No container engine answers on this machine.",
        next_step="Start Docker, or let `tfimg engine up --install` set up an engine of tfimg's own.",
    )


def connect_builders(environ: Mapping[str, str], state: Path, names: Sequence[str]) -> tuple[DockerEngine, ...]:
    """An engine for each builder, in order; without names, the one at hand.

    A builder inside an engine stands for that engine: it builds, validates and tags there. Any other builds for the
    engine at hand. Raises `UsageError` for a name that is none, `EngineUnavailable` or `EngineTooOld` for one that
    cannot build.
    """
    if not names:
        return (connect(environ, state),)
    # Of no engine yet: whether there is a buildx to ask.
    DockerEngine(host="unix:///dev/null", environ=environ).buildx_version()
    return tuple(_engine(find_builder(name, environ), environ, state) for name in names)


def _engine(builder: Builder, environ: Mapping[str, str], state: Path) -> DockerEngine:
    if builder.is_engine:
        there = context_environment(builder.endpoint, environ)
        return DockerEngine(host=there["DOCKER_HOST"], environ=there, context=builder.endpoint)
    return DockerEngine(host=connect(environ, state).host, environ=environ, builder=builder.name)


def _hosts(environ: Mapping[str, str], state: Path) -> Iterator[str]:
    if named := environ.get("DOCKER_HOST"):
        yield named
        return
    own = private_engine(state)
    if own.pid() is not None:
        yield own.host
    if context := _context_host(environ):
        yield context


def _context_host(environ: Mapping[str, str]) -> str | None:
    """Where the `docker` command itself would go: its current context."""
    ask = ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
    try:
        return run(ask, env=environ).stdout.strip() or None
    except (CommandFailed, FileNotFoundError):
        return "unix:///var/run/docker.sock" if Path("/var/run/docker.sock").exists() else None
