"""Connection to the API of a Docker engine."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound

from tfimg.core.errors import EngineError, EngineUnavailable, ImageMissing

SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 35_000),
)
"""A TCP connection ends 35 s after the other machine was last heard of (Linux, tcp(7)): a long check is silent for
minutes, and so is an engine behind a broken network."""

REQUEST_SECONDS = 600
"""Exports of large images take minutes."""

PING_SECONDS = 20
"""Limit for a busy engine's answer. It took under 1 s when tried."""


PODMAN = "Podman Engine"
"""What Podman's service calls itself in its answer to /version."""


def find_error(line: Mapping[str, Any]) -> str | None:
    """Return the error in a line of an engine's stream: the engine answers 200 before it begins."""
    return line.get("error") or (line.get("errorDetail") or {}).get("message")


class _ApiClient(docker.APIClient):
    def mount(self, prefix: Any, adapter: Any) -> None:
        """Set socket options on every connection."""
        adapter.poolmanager.connection_pool_kw["socket_options"] = SOCKET_OPTIONS
        super().mount(prefix, adapter)

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """Prefer the engine's certificate authority to REQUESTS_CA_BUNDLE (psf/requests issue 3829)."""
        chosen = self.verify if verify is None else verify
        return super().merge_environment_settings(url, proxies, stream, chosen, cert)


class _Client(docker.DockerClient):
    def __init__(self, **options: Any) -> None:
        self.api = _ApiClient(**options)


class DockerConnection:
    """Connection to the engine at `host`, such as `unix:///run/docker.sock`.

    `builder` is the buildx builder that builds for the engine; `context` the docker context that named it.
    """

    def __init__(
        self, *, host: str, environ: Mapping[str, str], builder: str | None = None, context: str | None = None
    ) -> None:
        self.host = host
        self.builder = builder
        self.context = context
        # By name: `docker buildx use` may have made another the default, and the image would stay in there.
        self.environ = {**environ, "DOCKER_HOST": host, "BUILDX_BUILDER": builder or "default"}

    @property
    def is_local(self) -> bool:
        """Whether the engine runs on this machine."""
        return self.host.startswith("unix://")

    @cached_property
    def client(self) -> docker.DockerClient:
        """The API client. It reads DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH, as buildx does."""
        return self._connect(REQUEST_SECONDS)

    @cached_property
    def podman(self) -> str | None:
        """Podman's version; None if the engine is Docker."""
        with self.errors():
            components = self.client.version().get("Components") or ()
        return next((str(part["Version"]) for part in components if part.get("Name") == PODMAN), None)

    def ping(self) -> None:
        """Raises `EngineUnavailable` unless the engine answers soon."""
        self._connect(PING_SECONDS).close()

    def _connect(self, timeout: int) -> docker.DockerClient:
        with self.errors():
            try:
                return _Client.from_env(timeout=timeout, version="auto", environment=self.environ)
            except DockerException as error:
                raise self.unavailable(error) from None

    def info(self) -> dict[str, Any]:
        """Return what the engine says of itself (`docker info`)."""
        with self.errors():
            found: dict[str, Any] = self.client.info()
        return found

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Map a lost connection to `EngineUnavailable`, and a refusal to `EngineError`."""
        try:
            yield
        except APIError as error:
            kind = ImageMissing if isinstance(error, ImageNotFound) else EngineError
            raise kind(
                f"The engine at {self.host} refused: {error.explanation or error}",
                next_step="Its own log may say more; `tfimg engine status` says where it runs.",
            ) from None
        except requests.exceptions.RequestException as error:
            raise self.unavailable(error) from None

    def unavailable(self, error: Exception) -> EngineUnavailable:
        """Return the error for an engine that does not answer."""
        next_step = "Start it; or unset DOCKER_HOST and let `tfimg engine up --install` set one up."
        if self.context:
            next_step = f"Start it; or correct the docker context {self.context}, or name another --builder, or none."
        return EngineUnavailable(f"No container engine answers at {self.host}: {error}.", next_step=next_step)
