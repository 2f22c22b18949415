"""A client of registries, a registry in this process, a proxy between them, and a browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.chromium import Browser, browser, program
from support.faulty_proxy import Faulty, faulty
from support.loopback_registry import Loopback, loopback
from support.manifests import LONGEST_WAITS, PLAIN, Open, Slept
from tfimg.core.retry import RetryPolicy
from tfimg.registry.client import HttpRegistry
from tfimg.registry.http import Connection, ConnectionSettings
from tfimg.registry.reference import Credentials, parse_repository


@pytest.fixture
def slept() -> Slept:
    """The waits that the client would have made."""
    return Slept()


@pytest.fixture
def open_registry(slept: Slept, tmp_path: Path) -> Open:
    """The client of a registry by its address."""

    def opened(
        address: str, *, credentials: Credentials | None = None, settings: ConnectionSettings = PLAIN
    ) -> HttpRegistry:
        reference = parse_repository(f"{address}/team/tf")
        retry_policy = RetryPolicy(sleep=slept, backoff=LONGEST_WAITS)
        connection = Connection(reference, credentials=credentials, settings=settings, retry_policy=retry_policy)
        return HttpRegistry(connection, locks=tmp_path / "locks")

    return opened


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as registry:
        yield registry


@pytest.fixture
def proxy(server: Loopback) -> Iterator[Faulty]:
    with faulty(server.address) as between:
        yield between


@pytest.fixture
def client(proxy: Faulty, open_registry: Open) -> HttpRegistry:
    """A client whose every request goes through the proxy."""
    return open_registry(proxy.address)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser; a machine without one fails, so that a skipped test is not green."""
    try:
        program()
    except LookupError as error:
        pytest.fail(str(error))
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found
