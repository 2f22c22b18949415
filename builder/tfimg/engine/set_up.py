"""Set an engine up on this machine: install packages, start the private engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from tfimg.core.errors import EngineTooOld
from tfimg.engine.base_images.debian import install_packages
from tfimg.engine.docker.engine import DockerEngine
from tfimg.engine.private_engine import PrivateEngine, start

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
    own = PrivateEngine(state)
    say(f"Starting a private engine below {own.folder}")
    return start(own, environ)
