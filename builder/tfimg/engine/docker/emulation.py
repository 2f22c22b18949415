"""Platforms whose programs a Docker engine runs."""

from __future__ import annotations

import secrets
from contextlib import closing

from tfimg.core.tar import make_archive
from tfimg.engine.docker.containers import DockerContainers
from tfimg.engine.docker.images import DockerImages
from tfimg.engine.docker.info import DockerInfo
from tfimg.engine.emulation import make_probe
from tfimg.engine.protocol import Exit, RunRequest
from tfimg.matrix.schema import Platform

PROBE_SECONDS = 60.0
"""Limit of the probe, which takes a second on a busy machine."""


class DockerEmulation(DockerInfo, DockerContainers, DockerImages):
    """`can_run` of `Engine`."""

    def can_run(self, platform: Platform) -> bool:
        """See `Engine`. An image of one tiny program proves it: an engine does not know what its kernel emulates."""
        if platform == self.get_device_support().platform:
            return True
        name = f"tfimg/probe:{platform.partition('/')[2]}-{secrets.token_hex(4)}"
        repository, _, tag = name.partition(":")
        archive = make_archive({"/probe": (make_probe(platform), 0o755)})
        with self.errors():
            self.client.api.import_image_from_data(archive, repository=repository, tag=tag)
        try:
            with closing(
                self.run(RunRequest(image=name, command=["/probe"], files={}), timeout=PROBE_SECONDS)
            ) as items:
                return any(isinstance(item, Exit) and item.status == 0 for item in items)
        finally:
            self.remove(name)
