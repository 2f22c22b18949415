"""Containers that tests start beside the ones of `tfimg`, through testcontainers.

They carry the label of the test run, by which the reaper removes them when the run was killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from support.session import label
from tfimg.engine.docker import DockerEngine

testcontainers_config.ryuk_disabled = True  # its image would have to be pulled; see `support.reaper`


@contextmanager
def container(engine: DockerEngine, image: str) -> Iterator[DockerContainer]:
    """Prepare a container for the caller to configure and start; stop and remove it at the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.host)  # testcontainers reads it at every step
        prepared = DockerContainer(image).with_kwargs(labels=label())
        try:
            yield prepared
        finally:
            prepared.stop()
