"""This machine's connections: engines, registries, package indexes, clock. Tests pass their own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tfimg.core.errors import FileError
from tfimg.core.paths import state_folder
from tfimg.core.process import replace_process, run
from tfimg.core.text import read_clock

if TYPE_CHECKING:
    from tfimg.advisories.service import OsvService
    from tfimg.core.events import OnEvent
    from tfimg.engine.interface import Engine
    from tfimg.host.survey import Host
    from tfimg.index.client import Index
    from tfimg.index.network import HostNetwork
    from tfimg.inspect.secrets import Secret
    from tfimg.layers.layers import ByteCode, LayerResult, LayerStore, OnLayer
    from tfimg.matrix.schema import Platform
    from tfimg.recipe.layout import Compression
    from tfimg.recipe.lock import Lock
    from tfimg.recipe.releases import Releases
    from tfimg.registry.documents import ImageConfig, Registry
    from tfimg.registry.http import TimeBudget
    from tfimg.registry.reference import Reference


ANSWER_SECONDS = 5.0  # limit for a server's first answer, where a command examines the machine


@dataclass(kw_only=True)
class Services:
    """Connect to what lies outside this program, as the variables of `environ` say.

    Each method imports what it needs when it is called: most commands need little of it.
    """

    environ: Mapping[str, str] = field(default_factory=dict)
    _releases: dict[tuple[str, str], Releases] = field(default_factory=dict, init=False, repr=False)

    @property
    def state(self) -> Path:
        """The folder for caches, locks and the private engine."""
        return state_folder(self.environ)

    @property
    def cache(self) -> Path:
        """The folder of what takes long to compute; see `tfimg.core.cache`."""
        return self.state / "cache"

    def now(self) -> datetime:
        """Return the time in UTC. Raises `WrongClock`."""
        return read_clock()

    @property
    def today(self) -> date:
        """The day in UTC, as package indexes count it."""
        return self.now().date()

    def engine(self) -> Engine:
        """Return the engine to build with; see `tfimg.engine.connect`."""
        from tfimg.engine.connect import connect

        return connect(self.environ, self.state)

    def engines(self, builders: Sequence[str]) -> Sequence[Engine]:
        """Return the engines behind buildx builders of these names; see `tfimg.engine.connect`."""
        from tfimg.engine.connect import connect_builders

        return connect_builders(self.environ, self.state, builders)

    def runner(self) -> Engine:
        """Return the engine to run images with, which need not be able to build."""
        from tfimg.engine.connect import connect
        from tfimg.engine.docker import DockerEngine

        return connect(self.environ, self.state, ask=DockerEngine.get_device_support)

    def survey(self, docker_host: str) -> Host:
        """Return what this machine has; see `tfimg.host.survey`."""
        from tfimg.host.nvidia_smi import query_nvidia_smi
        from tfimg.host.survey import survey_host

        return survey_host(
            root=Path("/"),
            machine=os.uname().machine,
            query_smi=partial(query_nvidia_smi, partial(run, env=self.environ, timeout=60)),
            may_use=lambda path: os.access(path, os.R_OK | os.W_OK),
            docker_host=docker_host,
        )

    def hand_over(self, argv: Sequence[str], environ: Mapping[str, str]) -> int:
        """Become another program; only tests return, with its exit status. See `tfimg.core.process`."""
        replace_process(argv, env=environ)

    def open_browser(self, url: str) -> bool:
        """Open an address in the user's browser; return whether there is one."""
        import webbrowser

        return webbrowser.open(url)

    def pip_settings(self) -> Mapping[str, str]:
        """Return pip's own configuration; see `tfimg.index.network`."""
        from tfimg.index.network import read_pip_settings

        return read_pip_settings()

    @cached_property
    def network(self) -> HostNetwork:
        """How this machine reaches package indexes: proxies, certificates, index URLs."""
        from tfimg.index.network import read_host_network

        return read_host_network(self.environ, self.pip_settings())

    @property
    def layer_store(self) -> LayerStore:
        """The store of finished layers."""
        return _layer_store(self.state / "layers")

    def make_layers(
        self,
        lock: Lock,
        *,
        local_wheels: Sequence[Path],
        removed: tuple[str, ...] = (),
        byte_code: ByteCode,
        compression: Compression,
        fresh: bool,
        on_layer: OnLayer,
        on_event: OnEvent,
    ) -> tuple[LayerResult, ...]:
        """Make layers from a lock's wheels; see `tfimg.layers.layers`."""
        from tfimg.layers.layers import WheelSource, make_layers

        return make_layers(
            lock, self.layer_store, source=WheelSource(indexes=self.indexes, local_wheels=local_wheels),
            removed=removed, byte_code=byte_code, compression=compression, fresh=fresh, on_layer=on_layer,
            on_event=on_event,
        )  # fmt: skip

    def registry(self, reference: Reference, *, plain: bool = False, seconds: int | None = None) -> Registry:
        """Return the repository of a reference; see `tfimg.registry.client`. `plain`: without TLS.

        `seconds` are those that all answers of registries may take together, None for the usual ones. Raises
        `FileError` if SSL_CERT_FILE names a missing file.
        """
        from tfimg.registry.client import open_registry
        from tfimg.registry.http import ConnectionSettings

        ca = str(self.network.ca) if self.network.ca else None
        if ca is None and (named := self.environ.get("SSL_CERT_FILE")) and not plain:
            raise FileError(f"SSL_CERT_FILE names {named}, which is not a file.", next_step="Correct or unset it.")
        settings = ConnectionSettings(ca_file=ca, proxies=_proxies(self.network), plain_http=plain, budget=self._budget)
        self._budget.seconds = seconds or self._budget.seconds
        return open_registry(reference, self.environ, self.state, settings=settings)

    @cached_property
    def _budget(self) -> TimeBudget:
        """The time that registries may take, all together."""
        from tfimg.registry.http import TimeBudget

        return TimeBudget()

    def image_config(self, name: str, platform: Platform) -> ImageConfig:
        """Return the configuration of an image in a registry. Raises the errors of a `Registry`."""
        from tfimg.registry.documents import open_platform_image
        from tfimg.registry.reference import parse_reference

        reference = parse_reference(name)
        return open_platform_image(self.registry(reference), reference.target, platform).settings

    def secrets(self) -> tuple[Secret, ...]:
        """Return what this machine knows and an image must not hold; see `tfimg.inspect.host_secrets`."""
        import certifi
        from pypi_simple import PYPI_SIMPLE_ENDPOINT

        from tfimg.engine.bases import find_mirrors
        from tfimg.inspect.host_secrets import read_host_secrets

        public_index = ".".join((urlsplit(PYPI_SIMPLE_ENDPOINT).hostname or "").split(".")[-2:])
        return read_host_secrets(
            self.network,
            find_mirrors(),
            self.environ,
            public={public_index},
            public_certificates=[Path(certifi.where()).read_text(encoding="utf-8")],
        )

    def index(self) -> Index:
        """Return the package index that this machine's settings name, else the public one."""
        return self.indexes[0]

    def releases(self, python: str, platform: Platform) -> Releases:
        """Return the releases on the package indexes for a Python and platform; see `tfimg.recipe.releases`."""
        from tfimg.recipe.releases import Releases

        key = python, platform
        if key not in self._releases:
            self._releases[key] = Releases(indexes=self.indexes, python=python, platform=platform, cache=self.cache)
        return self._releases[key]

    @cached_property
    def indexes(self) -> tuple[Index, ...]:
        """The package indexes that this machine's settings name; each reads a page once."""
        return tuple(map(self.open_index, self.index_addresses))

    @property
    def index_addresses(self) -> tuple[str, ...]:
        """The addresses of the package indexes, which may hold credentials."""
        from pypi_simple import PYPI_SIMPLE_ENDPOINT

        first = self.network.variables.get("UV_DEFAULT_INDEX", PYPI_SIMPLE_ENDPOINT)
        # As pip has them, without the names that uv lets an index have.
        return (first, *self.network.variables.get("PIP_EXTRA_INDEX_URL", "").split())

    def open_index(self, url: str) -> Index:
        """Return the client of a package index, or of another server of wheels."""
        from tfimg.index.client import Index

        ca = str(self.network.ca) if self.network.ca else None
        return Index(url, ca=ca, proxies=_proxies(self.network))

    def ask_server(self, url: str) -> float:
        """Return the seconds in which a server answers one request, whatever it says of the request's credentials.

        Raises `NetworkError`.
        """
        import time

        from tfimg.index.client import probe

        ca = str(self.network.ca) if self.network.ca else None
        start = time.monotonic()
        probe(url, ca=ca, proxies=_proxies(self.network), seconds=ANSWER_SECONDS - 1)
        return time.monotonic() - start

    def advisory_service(self, url: str) -> OsvService:
        """Return the client of a service that speaks OSV's API. Raises `UsageError` for an invalid address."""
        from tfimg.advisories.service import OsvService

        ca = str(self.network.ca) if self.network.ca else None
        return OsvService(url, ca=ca, proxies=_proxies(self.network))

    def uv(self) -> str:
        """Return the path of the uv that was installed with tfimg; it resolves locks."""
        from uv import find_uv_bin

        return find_uv_bin()


@cache
def _layer_store(folder: Path) -> LayerStore:
    """Return the one store of a folder, which reads each layer once."""
    from tfimg.layers.layers import LayerStore

    return LayerStore(folder=folder)


def _proxies(network: HostNetwork) -> dict[str, str]:
    variables = {"http": "http_proxy", "https": "https_proxy", "no_proxy": "no_proxy"}
    proxies = {name: network.variables.get(variable, "") for name, variable in variables.items()}
    return {name: value for name, value in proxies.items() if value}
