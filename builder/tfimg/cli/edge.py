"""Where commands touch the world: an argument of `main`, so that tests hand in another."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tfimg.errors import UsageError

if TYPE_CHECKING:
    from tfimg.engine.network import HostNetwork
    from tfimg.engine.protocol import Engine
    from tfimg.host.survey import Host
    from tfimg.layers.make import Told
    from tfimg.layers.store import LayerStore
    from tfimg.leaks.rules import Rule
    from tfimg.proof.index import Index
    from tfimg.recipe.layout import Compression
    from tfimg.recipe.lockfile import Layers, LockedPackage
    from tfimg.registry.client import Moved
    from tfimg.registry.protocol import Registry
    from tfimg.registry.reference import Reference


class Edge:
    """The real world. Imports as late as it can: most commands need little of it."""

    def now(self) -> datetime:
        """Return the time in UTC."""
        return datetime.now(UTC)

    def engine(self, environ: Mapping[str, str], state: Path) -> Engine:
        """The engine to use; see `tfimg.engine.connect`."""
        from tfimg.engine.connect import connect

        return connect(environ, state)

    def engines(self, environ: Mapping[str, str], state: Path, names: Sequence[str]) -> Sequence[Engine]:
        """The engines behind builders of these names; see `tfimg.engine.connect`."""
        from tfimg.engine.connect import engines

        return engines(environ, state, names)

    def runner(self, environ: Mapping[str, str], state: Path) -> Engine:
        """The engine to run images with, which need not be able to build; see `tfimg.engine.connect`."""
        from tfimg.engine.connect import connect
        from tfimg.engine.docker import DockerEngine

        return connect(environ, state, ask=DockerEngine.toolkit)

    def survey(self, environ: Mapping[str, str], docker_host: str) -> Host:
        """What this machine has; see `tfimg.host.survey`."""
        from tfimg.host.nvidia_smi import ask
        from tfimg.host.survey import survey
        from tfimg.process import run

        def output(argv: Sequence[str]) -> str:
            return run(argv, env=environ, timeout=60).stdout

        return survey(
            root=Path("/"), machine=os.uname().machine, ask_smi=partial(ask, output),
            may_use=lambda path: os.access(path, os.R_OK | os.W_OK), docker_host=docker_host,
        )  # fmt: skip

    def hand_over(self, argv: Sequence[str], environ: Mapping[str, str]) -> int:
        """Become another program. Returns its status in tests alone; see `tfimg.process`."""
        from tfimg.process import hand_over

        hand_over(argv, env=environ)

    def pip_settings(self) -> Mapping[str, str]:
        """pip's own configuration; see `tfimg.engine.network`."""
        from tfimg.engine.network import pip_settings

        return pip_settings()

    def stages(
        self, lock: Layers, folder: Path, network: HostNetwork, *,
        supplied: Sequence[Path], compression: Compression, fresh: bool, on_event: Told,
    ) -> dict[str, str]:  # fmt: skip
        """Stages of a Dockerfile, made of wheels and kept in `folder`; see `tfimg.layers.make`."""
        from tfimg.layers.make import Source, make, stages

        store = _layer_store(folder)
        source = Source(indexes=self._indexes(network), supplied=supplied)
        made = make(lock, store, source=source, compression=compression, fresh=fresh, on_event=on_event)
        return stages(made, store)

    def registry(
        self, reference: Reference, environ: Mapping[str, str], state: Path, network: HostNetwork, *,
        plain: bool = False, moved: Moved | None = None,
    ) -> Registry:  # fmt: skip
        """The repository of a reference; see `tfimg.registry.connect`. With `plain`, it has no TLS."""
        from tfimg.registry.client import silent
        from tfimg.registry.connect import connect
        from tfimg.registry.connection import Way

        ca = str(network.ca) if network.ca else None
        way = Way(ca=ca, proxies=_proxies(network), plain=plain)
        return connect(reference, environ, state, way=way, moved=moved or silent)

    def secrets(self, environ: Mapping[str, str], network: HostNetwork) -> tuple[Rule, ...]:
        """What this machine knows and an image must not; see `tfimg.leaks.own`."""
        from urllib.parse import urlsplit

        import certifi
        from pypi_simple import PYPI_SIMPLE_ENDPOINT

        from tfimg.engine.debian import find_mirrors
        from tfimg.leaks.own import machine_secrets, read_surroundings

        everybody = ".".join((urlsplit(PYPI_SIMPLE_ENDPOINT).hostname or "").split(".")[-2:])
        around = read_surroundings(
            network, find_mirrors(), environ, public={everybody},
            public_certificates=[Path(certifi.where()).read_text(encoding="utf-8")],
        )  # fmt: skip
        return machine_secrets(network, around, environ)

    def index(self, network: HostNetwork) -> Index:
        """The package index that this machine's settings name, else the one that everybody uses."""
        return self._indexes(network)[0]

    def fetch_wheel(self, package: LockedPackage, folder: Path, network: HostNetwork) -> Path:
        """Download a locked wheel into a folder, and compare its hash; see `tfimg.layers.fetch`."""
        from tfimg.layers.fetch import fetch

        shared = folder / "downloads"
        shared.mkdir(parents=True, exist_ok=True)
        return fetch(
            package, folder, downloads=shared, indexes=self._indexes(network), supplied=(), go_on=lambda: None
        )

    def _indexes(self, network: HostNetwork) -> tuple[Index, ...]:
        from pypi_simple import PYPI_SIMPLE_ENDPOINT

        from tfimg.proof.index import Index

        first = network.variables.get("UV_DEFAULT_INDEX", PYPI_SIMPLE_ENDPOINT)
        # As pip has them, without the names that uv lets an index have.
        others = network.variables.get("PIP_EXTRA_INDEX_URL", "").split()
        proxies = _proxies(network)
        ca = str(network.ca) if network.ca else None
        return tuple(Index(url, ca=ca, proxies=proxies) for url in (first, *others))

    def pip_audit(self) -> Sequence[str]:
        """The program that asks an advisory service. Raises `UsageError` where it is not installed."""
        if find_spec("pip_audit") is None:
            raise UsageError(
                "pip-audit is not installed.",
                next_step="Install it beside tfimg: pip install 'tfimg[audit]'.",
            )
        from tfimg.process import python_module

        return python_module("pip_audit")

    def uv(self) -> str:
        """The program that resolves locks: the one that was installed with tfimg."""
        from uv import find_uv_bin

        return find_uv_bin()


@cache
def _layer_store(folder: Path) -> LayerStore:
    """The store of this run, which reads each layer once."""
    from tfimg.layers.store import LayerStore

    return LayerStore(folder=folder)


def _proxies(network: HostNetwork) -> dict[str, str]:
    """The proxies of this machine, as requests names them."""
    variables = {"http": "http_proxy", "https": "https_proxy", "no_proxy": "no_proxy"}
    proxies = {name: network.variables.get(variable, "") for name, variable in variables.items()}
    return {name: value for name, value in proxies.items() if value}
