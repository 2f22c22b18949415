"""The double of a command's environment: nothing of this machine, unless a test gives it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from support.cli import NO_ENGINE
from support.hosts import PLAIN
from support.memory_engine import FakeEngine
from tfimg.core.errors import TfimgError
from tfimg.engine.interface import Engine
from tfimg.host.survey import Host
from tfimg.inspect.secrets import Secret
from tfimg.layers.layers import LayerResult, OnLayer
from tfimg.layers.wheel import Blob
from tfimg.matrix.schema import Platform
from tfimg.project.services import Services
from tfimg.recipe.layout import list_wheel_layers
from tfimg.recipe.lock import Lock
from tfimg.registry.documents import ImageConfig, Registry
from tfimg.registry.reference import Reference


@dataclass(kw_only=True)
class TestEnvironment(Services):
    """Answer commands from fields, and record their requests.

    `docker` is the engine, or the error of looking for one; without it, the real search finds nothing at its address.
    `registries` is one registry for every name. `docker_status` is the exit status of the `docker` program that a
    command hands over to; None means that it is not installed.
    """

    __test__ = False  # not a test, in spite of its name

    docker: FakeEngine | TfimgError | None = None
    builders: Mapping[str, FakeEngine] = field(default_factory=dict)
    host: Host = PLAIN
    registries: Registry | None = None
    pip: Mapping[str, str] = field(default_factory=dict)
    own_secrets: tuple[Secret, ...] = ()
    docker_status: int | None = 7

    answer: Callable[[str], object] | None = lambda _: None
    """What a server does with the request that looks whether it answers; None: a real request is sent."""

    time: datetime | None = None
    """What the clock shows; None for the machine's clock."""

    engine_searches: int = 0
    connections: list[tuple[str, bool]] = field(default_factory=list)
    """Name of each repository that was opened, and whether plain HTTP was requested."""
    handed_over: list[tuple[Sequence[str], Mapping[str, str]]] = field(default_factory=list)

    def now(self) -> datetime:
        return self.time or super().now()

    def engine(self) -> Engine:
        return self._docker() or Services(environ={**self.environ, "DOCKER_HOST": NO_ENGINE}).engine()

    def engines(self, builders: Sequence[str]) -> Sequence[Engine]:
        self.engine_searches += 1
        return [self.builders[name] for name in builders]

    def runner(self) -> Engine:
        return self._docker() or Services(environ={**self.environ, "DOCKER_HOST": NO_ENGINE}).runner()

    def _docker(self) -> FakeEngine | None:
        self.engine_searches += 1
        if isinstance(self.docker, TfimgError):
            raise self.docker
        return self.docker

    def survey(self, *_: object) -> Host:
        return self.host

    def hand_over(self, argv: Sequence[str], environ: Mapping[str, str]) -> int:
        if self.docker_status is None:
            raise FileNotFoundError(argv[0])
        self.handed_over.append((argv, environ))
        return self.docker_status

    def pip_settings(self) -> Mapping[str, str]:
        return self.pip

    def make_layers(
        self, lock: Lock, *, removed: tuple[str, ...] = (), on_layer: OnLayer, **_: object
    ) -> tuple[LayerResult, ...]:  # type: ignore[override]
        """Make layers without files."""
        blob = Blob(media_type="", digest="", diff_id="", size=0, unpacked=0, files=0)
        layers = [*list_wheel_layers(lock, removed)]
        for layer in layers:
            on_layer(layer, blob)
        return tuple(LayerResult(layer=layer, blob=blob, seconds=None) for layer in layers)

    def registry(self, reference: Reference, *, plain: bool = False, **_: Any) -> Registry:
        self.connections.append((reference.repository, plain))
        assert self.registries, "this test has no registry"
        return self.registries

    def image_config(self, name: str, platform: Platform) -> ImageConfig:
        return super().image_config(name, platform) if self.registries else ImageConfig()

    def secrets(self) -> tuple[Secret, ...]:
        return self.own_secrets

    def index(self) -> Any:
        raise AssertionError("this test has no package index")

    def releases(self, *_: object) -> Any:
        return self.index()

    def ask_server(self, url: str) -> float:
        if self.answer is None:
            return super().ask_server(url)
        self.answer(url)
        return 0.1

    def uv(self) -> str:
        return "false"
