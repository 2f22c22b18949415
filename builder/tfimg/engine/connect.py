"""Find an engine, or start a private one.

Podman runs images and cannot build them: `connect` returns it where `ask` is not about builds.
"""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tfimg.core.errors import EngineSetupError, EngineTooOld, EngineUnavailable
from tfimg.core.paths import SYSTEM_STATE
from tfimg.core.process import CommandFailed, run, start_daemon
from tfimg.engine.bases import install_emulator, install_packages
from tfimg.engine.buildx import context_environment, find_builder
from tfimg.engine.docker import DockerEngine
from tfimg.engine.machine import (
    INSTALL_ENGINE,
    PrivateEngine,
    find_platform,
    find_private_engine,
    is_installed,
    may_use,
    register,
    runs_here,
)
from tfimg.matrix.schema import PLATFORMS, Platform

START_SECONDS = 60.0  # limit for the daemon's first answer: 1 s when tried, more while it recovers from a kill
STOP_SECONDS = 60.0  # limit for its end; it first stops its containers, which takes 10 s each at most


def install_missing(environ: Mapping[str, str], *, engine: bool, say: Callable[[str], None]) -> None:
    """Install what is missing of the tools and, with `engine`, of an engine with buildx. Raises `EngineSetupError`."""
    path = f"{environ.get('PATH', '')}:/usr/sbin:/sbin"
    if engine and shutil.which("dockerd", path=path):
        with suppress(EngineTooOld):
            # Any host: this asks buildx alone.
            DockerEngine(host="unix:///dev/null", environ=environ).buildx_version()
            engine = False
    if engine or not shutil.which("mmdebstrap", path=path):
        say("Installing from the distribution's packages")
        say(f"Done: installed {install_packages(environ, engine=engine)}.")


def set_up_emulation(environ: Mapping[str, str], *, say: Callable[[str], None]) -> tuple[Platform, ...]:
    """Let this machine run programs of all platforms, and return the emulated ones. Raises `EngineSetupError`."""
    native = find_platform(os.uname().machine)
    foreign = tuple(platform for platform in PLATFORMS if platform != native)
    missing = [platform for platform in foreign if not runs_here(platform)]
    if lacking := [platform for platform in missing if not is_installed(platform)]:
        say(f"Installing an emulator for {', '.join(lacking)} from the distribution's packages")
        say(f"Done: installed {install_emulator(environ)}.")
    for platform in missing:
        if not runs_here(platform):  # a service of the system registers it, where there is one
            register(platform, environ)
    if lacking := [platform for platform in missing if not runs_here(platform)]:
        raise EngineSetupError(
            f"QEMU is installed and registered, and this machine still does not run programs of {', '.join(lacking)}.",
            next_step="The kernel's log may say why; or use a machine of that platform.",
        )
    return foreign


def start(engine: PrivateEngine, environ: Mapping[str, str]) -> DockerEngine:
    """Start the daemon and wait until it answers. Raises `EngineSetupError`."""
    process, log_start = engine.pid(), 0
    if process is None:
        dockerd = shutil.which("dockerd", path=f"{environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if dockerd is None:
            raise EngineSetupError(
                "Docker Engine is not installed: there is no dockerd.",
                next_step=f"{INSTALL_ENGINE} installs it from the distribution's packages.",
            )
        engine.folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        # The containerd store has zstd layers and OCI manifests, which can be read.
        engine.settings.write_text(json.dumps({"features": {"containerd-snapshotter": True}}))
        options = {
            "--config-file": engine.settings,
            "--host": engine.host,
            "--data-root": engine.folder / "data",
            "--exec-root": engine.folder / "exec",
            "--pidfile": engine.folder / "dockerd.pid",
        }
        log_start = engine.log.stat().st_size if engine.log.exists() else 0
        process = start_daemon([dockerd, *(str(word) for option in options.items() for word in option)], log=engine.log)
    client = DockerEngine(host=engine.host, environ=environ)
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(EngineUnavailable):
            if engine.socket.exists():
                client.ping()
                return client
        if not (PROCESSES / str(process)).exists():
            raise _error(engine, "ended at once", log_start)
        if time.monotonic() > deadline:
            raise _error(engine, f"did not answer within {START_SECONDS:.0f} s", log_start)
        time.sleep(0.1)


def stop(engine: PrivateEngine) -> bool:
    """Stop the daemon and wait until it is gone. False if it did not run."""
    pid = engine.pid()
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while engine.pid() is not None:
        if time.monotonic() > deadline:
            raise _error(engine, f"did not end within {STOP_SECONDS:.0f} s")
        time.sleep(0.1)
    return True


def _error(engine: PrivateEngine, problem: str, log_start: int = 0) -> EngineSetupError:
    log = engine.log.read_bytes()[log_start:] if engine.log.exists() else b""  # what earlier daemons wrote is no reason
    lines = log.decode(errors="replace").splitlines()
    errors = [line for line in lines if "level=error" in line or "level=fatal" in line or "failed" in line]
    return EngineSetupError(
        f"The private engine {problem}. Its log says: {(errors or lines or ['nothing'])[-1]}",
        next_step=f"The whole log is {engine.log}.",
    )


DOCKER_SOCKET = Path("/var/run/docker.sock")
SYSTEM_RUNTIME = Path("/run")
PROCESSES = Path("/proc")


def connect(
    environ: Mapping[str, str], state: Path, *, ask: Callable[[DockerEngine], object] = DockerEngine.get_capabilities
) -> DockerEngine:
    """Return the first engine that answers `ask`. `DOCKER_HOST` is final where it is set.

    Raises `EngineUnavailable` when none answers, `EngineTooOld` when those that do cannot build.
    """
    failure: EngineTooOld | EngineUnavailable | None = None
    for host in _hosts(environ, state):
        engine = DockerEngine(host=host, environ=environ, cache=state / "cache")
        try:
            ask(engine)
        except EngineUnavailable as error:
            if environ.get("DOCKER_HOST"):
                raise
            if not may_use(host) and failure is None:
                failure = error
        except EngineTooOld as error:
            failure = error
        else:
            return engine
    start_podman = (
        "Start Podman's service (`systemctl --user enable --now podman.socket`; without systemd, "
        "`podman system service --time=0 &`), or Docker"
    )
    raise failure or EngineUnavailable(
        "No container engine answers on this machine.",
        next_step=f"{start_podman if shutil.which('podman', path=environ.get('PATH')) else 'Start Docker'}, or let "
        f"{INSTALL_ENGINE} set up an engine of tfimg's own.",
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
    engines = []
    for name in names:
        builder = find_builder(name, environ)
        if builder.driver == "docker":  # it builds inside an engine, which has the image at the end
            env = context_environment(builder.endpoint, environ)
            engines.append(DockerEngine(host=env["DOCKER_HOST"], environ=env, context=builder.endpoint))
        else:
            engines.append(DockerEngine(host=connect(environ, state).host, environ=environ, builder=name))
    return tuple(engines)


def list_shared_engines() -> Iterator[str]:
    """Yield the hosts of tfimg's engines that run on this machine, that of root's state folder first."""
    system = PrivateEngine(SYSTEM_STATE)
    hosts = dict.fromkeys([system.host] if system.socket.exists() else [])
    for file in PROCESSES.glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = file.read_bytes().decode(errors="replace").split("\0")
            hosts |= dict.fromkeys(word for word in words if find_private_engine(word) and "--pidfile" in words)
    yield from hosts


def _has_context(environ: Mapping[str, str]) -> bool:
    """Return whether a docker context is chosen: its host is printed by docker alone, which takes 0.1 s."""
    file = Path(environ.get("DOCKER_CONFIG") or f"{environ.get('HOME', '')}/.docker", "config.json")
    with suppress(OSError):
        if b'"currentContext"' in file.read_bytes():
            return True
    return "DOCKER_CONTEXT" in environ


def _hosts(environ: Mapping[str, str], state: Path) -> Iterator[str]:
    if host := environ.get("DOCKER_HOST"):
        yield host
        return
    private = PrivateEngine(state)
    if private.pid() is not None:
        yield private.host
    host = ""
    if _has_context(environ) or not DOCKER_SOCKET.exists():
        with suppress(CommandFailed, FileNotFoundError):
            # Where the `docker` command itself would go: its current context. Podman's stand-in for it prints nothing.
            host = run(["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"], env=environ).strip()
    if host or DOCKER_SOCKET.exists():
        yield host or f"unix://{DOCKER_SOCKET}"
    if os.geteuid() != 0:
        yield from list_shared_engines()
    named = environ.get("CONTAINER_HOST", "")
    if named.startswith(("unix://", "tcp://")):
        yield named
    for folder in (environ.get("XDG_RUNTIME_DIR"), SYSTEM_RUNTIME):
        if folder and (socket := Path(folder, "podman/podman.sock")).exists():
            yield f"unix://{socket}"
