"""What publishing needs, in memory: engine, registry, keys, state folder, project and command line."""

from functools import cached_property
from pathlib import Path
from typing import Any

from support.cli import CliResult, CliRunner
from support.environment import TestEnvironment
from support.hosts import PLAIN
from support.published_images import public_tags
from support.pushing_engine import PushingEngine
from support.signing import OURS, PASSWORD
from tfimg.core.events import OnEvent, ignore
from tfimg.core.paths import Workspace
from tfimg.host.survey import Host
from tfimg.project.project import Project
from tfimg.publish.publisher import Publication, Publisher
from tfimg.publish.repository import SignedRepository


class World:
    """One machine with its engine, and the registry that it publishes to with our key."""

    def __init__(
        self, home: Path, workspace: Workspace, *, engine: PushingEngine | None = None, host: Host = PLAIN
    ) -> None:
        self.home = home
        self.engine = engine or PushingEngine(workspace)
        self.registry = self.engine.registry
        environ = {"TFIMG_STATE": str(home / "state"), "TFIMG_WORKSPACE": str(workspace.root)}
        self.environment = TestEnvironment(environ=environ, docker=self.engine, registries=self.registry, host=host)
        self.project = Project(services=self.environment)
        variables = {"TFIMG_KEY_PASSWORD": PASSWORD.decode(), "TFIMG_WORKSPACE": str(workspace.root)}
        self.tfimg = CliRunner(home=home, services=self.environment, environ=variables)

    def repository(self, **fields: Any) -> SignedRepository:
        return SignedRepository(registry=self.registry, key=OURS, state=self.home / "state", **fields)

    def publish(self, *identifiers: str, reinstate: bool = False, on_event: OnEvent = ignore) -> Publication:
        """Publish images of the engine as a program does."""
        specs = [self.project.spec(identifier) for identifier in identifiers]
        publisher = Publisher(project=self.project, engine=self.engine)
        return publisher.publish(specs, self.repository(reinstate=reinstate), on_event=on_event)

    @cached_property
    def keys(self) -> str:
        """Our key pair in files of this name, which end in .key and .pub."""
        (self.home / "ours.key").write_bytes(OURS.pem(PASSWORD))
        (self.home / "ours.pub").write_bytes(OURS.verifying_key.pem)
        return str(self.home / "ours")

    def run_publish(self, *argv: str) -> CliResult:
        """Run `tfimg publish` with our key."""
        return self.tfimg("publish", *argv, "--key", f"{self.keys}.key", "--publisher", "me")

    @property
    def tags(self) -> dict[str, str]:
        return public_tags(self.registry.named)
