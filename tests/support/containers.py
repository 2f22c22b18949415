"""Containers that tests start beside the ones of `tfimg`, through testcontainers.

They carry the label of the test run, by which the reaper removes them when the run was killed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from support.session import label
from tfimg.engine.docker import DockerEngine

testcontainers_config.ryuk_disabled = True  # its image would have to be pulled; see `support.reaper`


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The exit status of a container's program, and what it printed."""

    status: int
    stdout: str
    stderr: str


@contextmanager
def container(engine: DockerEngine, image: str, **settings: Any) -> Iterator[DockerContainer]:
    """Prepare a container for the caller to configure and start; stop and remove it at the end of the block.

    `settings` are those of the Docker SDK's `containers.create`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.host)  # testcontainers reads it at every step
        prepared = DockerContainer(image).with_kwargs(labels=label(), **settings)
        try:
            yield prepared
        finally:
            prepared.stop()


def run_container(
    engine: DockerEngine,
    image: str,
    *command: str,
    volumes: Mapping[Path, str] | None = None,
    tmpfs: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **settings: Any,
) -> Ended:
    """Run a program in a container to its end, five minutes at most; `volumes` are mounted for reading."""
    with container(engine, image, **settings) as prepared:
        prepared.with_command(list(command))
        for source, target in (volumes or {}).items():
            prepared.with_volume_mapping(str(source), target, "ro")
        for name, value in (env or {}).items():
            prepared.with_env(name, value)
        for folder in tmpfs:
            prepared.with_tmpfs_mount(folder)
        running = prepared.start().get_wrapped_container()
        status = running.wait(timeout=300)["StatusCode"]
        stdout, stderr = (running.logs(stdout=out, stderr=not out).decode(errors="replace") for out in (True, False))
    return Ended(status=status, stdout=stdout, stderr=stderr)
