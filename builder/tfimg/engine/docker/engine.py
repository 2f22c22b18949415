"""Docker as a container engine."""

from __future__ import annotations

from tfimg.engine.docker.buildx import DockerBuilder
from tfimg.engine.docker.containers import DockerContainers
from tfimg.engine.docker.images import DockerImages
from tfimg.engine.docker.info import DockerInfo
from tfimg.engine.docker.transfer import DockerTransfer


class DockerEngine(DockerInfo, DockerBuilder, DockerImages, DockerTransfer, DockerContainers):
    """Implements `Engine`: builds through `docker buildx`, everything else through Docker's API."""
