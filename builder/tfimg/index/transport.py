"""HTTP transport for package indexes and registries: proxies, and limits on what a server may send.

The standard library reads any number of `100 Continue` responses and trailers, and every timeout of a socket begins
anew with each byte. `_MeteredResponse` bounds bytes and seconds below it, where the bytes come in.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.utils import should_bypass_proxies
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.retry import RetryPolicy

MAX_STEP_BYTES = 1 << 20
"""Bytes of one step: the head of a response with what may come before it, or one `read1`. http.client reads at most
100 header lines of 64 kB; common servers send less than 16 kB."""

STEP_SECONDS = 300.0
"""Longest time of one step."""

READ_BYTES = 1 << 16

TRANSIENT_STATUSES = frozenset({429, 500, 502, 503, 504})


class LimitExceeded(OSError):
    """A server exceeds a limit of size or time. HTTP libraries report an OSError as a broken connection.

    `seconds` is the limit where the server was too slow, else None.
    """

    def __init__(self, what: str, *, seconds: float | None = None) -> None:
        self.seconds = seconds
        super().__init__(what)


def read_chunks(
    response: requests.Response, seconds: float, bytes_per_second: float, *, decode: bool = False
) -> Iterator[bytes]:
    """Yield a body as it arrives; `read` would wait for all bytes, however slowly they come.

    Raises `LimitExceeded` if it has a lower average rate after `seconds`. The caller's own time does not count.
    """
    spent, received = 0.0, 0
    while True:
        start = time.monotonic()
        chunk = response.raw.read1(READ_BYTES, decode_content=decode)
        spent += time.monotonic() - start
        received += len(chunk)
        if spent > seconds + received / bytes_per_second:
            raise LimitExceeded(f"it has sent {received} bytes in {spent:.0f} seconds", seconds=seconds)
        if not chunk:
            return
        yield chunk


def retry_request(
    session: requests.Session, method: str, url: str, policy: RetryPolicy, **options: Any
) -> requests.Response:
    """Return the streamed response to an idempotent request, which is sent again if it fails for the moment.

    Raises `HTTPError` for a transient status after the last attempt, and as requests.
    """

    def attempt() -> requests.Response:
        raise_if_cancelled()
        response = session.request(method, url, stream=True, **options)
        if response.status_code in TRANSIENT_STATUSES:
            response.close()
            response.raise_for_status()
        return response

    return policy.retry_on((requests.ConnectionError, requests.Timeout, requests.HTTPError), attempt)


class _MeteredAdapter(HTTPAdapter):
    """Limits each step of a response."""

    def __init__(self, step_seconds: float) -> None:
        self._pools = _metered_pools(step_seconds)
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = self._pools
        return manager


class DirectSession(requests.Session):
    """A session that follows no redirect, keeps no cookie and reads no environment.

    Even with `allow_redirects=False`, requests reads the whole body of a redirect and parses its Location.
    """

    def __init__(self, *, step_seconds: float = STEP_SECONDS) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        for scheme in ("http://", "https://"):
            self.mount(scheme, _MeteredAdapter(step_seconds))

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """Return the settings of a request; `no_proxy` applies to proxies of the session too."""
        settings = super().merge_environment_settings(url, proxies, stream, verify, cert)
        if settings["proxies"] and should_bypass_proxies(url, settings["proxies"].get("no_proxy")):
            settings["proxies"] = {}
        return settings

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002  (the name that requests gives it)
        """Return None: no response is a redirect to requests."""
        return


class _MeteredResponse(HTTPResponse):
    """A response whose head, and each `read1`, take at most `MAX_STEP_BYTES` and `step_seconds`.

    Readers do not count interim responses, headers, sizes of chunks and trailers.
    """

    step_seconds = STEP_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._meter = _Meter(self.fp.detach(), self.step_seconds)
        self.fp = io.BufferedReader(self._meter)

    def begin(self) -> None:
        self._meter.start_step()
        super().begin()
        self._meter.end_step()

    def read1(self, n: int = -1) -> bytes:
        self._meter.start_step()
        content = super().read1(n)
        self._meter.end_step()
        return content


class _Meter(io.RawIOBase):
    """Counts and times the bytes of a socket during a step. Raises `LimitExceeded`."""

    def __init__(self, raw: io.RawIOBase, step_seconds: float) -> None:
        self._raw = raw
        self._seconds = step_seconds
        self.end_step()

    def start_step(self) -> None:
        self._left: float = MAX_STEP_BYTES
        self._deadline = time.monotonic() + self._seconds

    def end_step(self) -> None:
        self._left = self._deadline = float("inf")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count: int | None = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise LimitExceeded(f"more than {MAX_STEP_BYTES >> 20} MiB of headers or framing")
        if time.monotonic() > self._deadline:
            raise LimitExceeded(f"no answer within {self._seconds:g} s", seconds=self._seconds)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _metered_pools(seconds: float) -> dict[str, type[HTTPConnectionPool]]:
    """Return classes of connection pools whose responses are metered."""

    class Response(_MeteredResponse):
        step_seconds = seconds

    class Connection(HTTPConnection):
        response_class = Response

    class SecureConnection(HTTPSConnection):
        response_class = Response

    class Pool(HTTPConnectionPool):
        ConnectionCls = Connection

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = SecureConnection

    return {"http": Pool, "https": SecurePool}
