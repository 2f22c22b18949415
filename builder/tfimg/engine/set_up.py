"""Set an engine up on this machine: install packages, start the private engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tfimg.core.errors import EngineTooOld, EngineUnavailable
from tfimg.engine import private_engine
from tfimg.engine.base_images.debian import install_packages
from tfimg.engine.connect import private_engine as find_private_engine
from tfimg.engine.docker.engine import DockerEngine

Say = Callable[[str], None]


def install_missing(environ: Mapping[str, str], *, engine_too: bool, say: Say) -> None:
    """Install what is missing: the engine only where none runs, so that an engine of the user is not changed."""
    path = f"{environ.get('PATH', '')}:/usr/sbin:/sbin"
    engine_too = engine_too and not (shutil.which("dockerd", path=path) and _has_buildx(environ))
    if not engine_too and shutil.which("mmdebstrap", path=path):
        return
    say("Installing from the distribution's packages")
    say(f"Done: installed {install_packages(environ, engine=engine_too)}.")


def _has_buildx(environ: Mapping[str, str]) -> bool:
    try:
        DockerEngine(host="unix:///dev/null", environ=environ).buildx_version()
    except EngineTooOld:
        return False
    return True


def start_private_engine(environ: Mapping[str, str], state: Path, *, say: Say) -> DockerEngine:
    """Start the private engine of a state folder and wait until it answers. Raises `EngineSetupError`."""
    own = find_private_engine(state)
    say(f"Starting a private engine below {own.folder}")

    def answers() -> bool:
        # A new object each time: the API client remembers a failure.
        try:
            DockerEngine(host=own.host, environ=environ).get_capabilities()
        except EngineUnavailable:
            return False
        return True

    private_engine.start(own, path=environ.get("PATH", ""), answers=answers)
    return DockerEngine(host=own.host, environ=environ)
