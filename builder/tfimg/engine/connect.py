"""Find an engine: the one that is named, else the private one, Docker's or Podman's.

Podman runs images and cannot build them: `connect` returns it where `ask` is not about builds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tfimg.core.errors import EngineTooOld, EngineUnavailable
from tfimg.core.process import CommandFailed, run
from tfimg.engine.docker.builders import context_environment, find_builder
from tfimg.engine.docker.engine import DockerEngine
from tfimg.engine.private_engine import PrivateEngine

DOCKER_SOCKET = Path("/var/run/docker.sock")
SYSTEM_RUNTIME = Path("/run")

PODMAN_STEP = (
    "Start Podman's service (`systemctl --user enable --now podman.socket`; without systemd, "
    "`podman system service --time=0 &`), or Docker"
)


def connect(
    environ: Mapping[str, str], state: Path, *, ask: Callable[[DockerEngine], object] = DockerEngine.get_capabilities
) -> DockerEngine:
    """Return the first engine that answers `ask`. `DOCKER_HOST` is final where it is set.

    Raises `EngineUnavailable` when none answers, `EngineTooOld` when those that do cannot build.
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
        next_step=f"{PODMAN_STEP if shutil.which('podman', path=environ.get('PATH')) else 'Start Docker'}, or let "
        "`tfimg engine up --install` set up an engine of tfimg's own.",
    )


def connect_builders(environ: Mapping[str, str], state: Path, names: Sequence[str]) -> tuple[DockerEngine, ...]:
    """Return an engine for each builder, in order; without names, the default engine.

    A builder inside an engine stands for that engine; any other builds for the default engine. Raises `UsageError` for
    an unknown name, `EngineUnavailable` or `EngineTooOld` for a builder that cannot build.
    """
    if not names:
        return (connect(environ, state),)
    # Any host: this asks buildx alone.
    DockerEngine(host="unix:///dev/null", environ=environ).buildx_version()
    return tuple(_connect_builder(name, environ, state) for name in names)


def _connect_builder(name: str, environ: Mapping[str, str], state: Path) -> DockerEngine:
    builder = find_builder(name, environ)
    if builder.driver == "docker":  # it builds inside an engine, which has the image at the end
        env = context_environment(builder.endpoint, environ)
        return DockerEngine(host=env["DOCKER_HOST"], environ=env, context=builder.endpoint)
    return DockerEngine(host=connect(environ, state).host, environ=environ, builder=name)


def _hosts(environ: Mapping[str, str], state: Path) -> Iterator[str]:
    if host := environ.get("DOCKER_HOST"):
        yield host
        return
    private = PrivateEngine(state)
    if private.pid() is not None:
        yield private.host
    try:
        # Where the `docker` command itself would go: its current context.
        command = ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
        host = run(command, env=environ).strip()
    except (CommandFailed, FileNotFoundError):
        host = ""
    # Podman's stand-in for the `docker` command succeeds and prints nothing.
    if host or DOCKER_SOCKET.exists():
        yield host or f"unix://{DOCKER_SOCKET}"
    yield from _podman_hosts(environ)


def _podman_hosts(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the hosts of Podman's service: the one that is named, the user's own, the system's."""
    named = environ.get("CONTAINER_HOST", "")
    if named.startswith(("unix://", "tcp://")):
        yield named
    user = environ.get("XDG_RUNTIME_DIR")
    folders = [*([Path(user)] if user else []), SYSTEM_RUNTIME]
    for socket in (folder / "podman/podman.sock" for folder in folders):
        if socket.exists():
            yield f"unix://{socket}"
