"""Docker as a container engine."""

from __future__ import annotations

from tfimg.engine.docker.buildx import DockerBuilder
from tfimg.engine.docker.emulation import DockerEmulation
from tfimg.engine.docker.transfer import DockerTransfer


class DockerEngine(DockerEmulation, DockerBuilder, DockerTransfer):
    """Implements `Engine`: builds through `docker buildx`, everything else through Docker's API."""
