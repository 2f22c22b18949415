"""How requests leave this machine, and how much of a response is taken: for package indexes and registries."""

from __future__ import annotations

import http.client
import io
import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.utils import should_bypass_proxies
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

MAX_HEAD = 1 << 20
"""Bytes of a response before its caller allows more: status line, headers, and the body of an error or redirect.

`http.client` reads interim responses (100 Continue) without end, urllib3 the body of a response that it retries."""

MAX_LINE = 65_536
"""Bytes of a line: the limit of `http.client` for headers, which urllib3 does not have for chunks."""

MIN_RATE = 10_000
"""Bytes per second that a response must have on average: eight downloads share a line of 1 Mbit/s at 15,000."""

GRACE_SECONDS = 60
"""Seconds of waiting before the rate counts."""


class ProxyAdapter(HTTPAdapter):
    """Goes past the proxy to what `no_proxy` names: requests does so only for proxies of the environment."""

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        """Send one request; as `HTTPAdapter.send`."""
        if proxies and should_bypass_proxies(request.url or "", proxies.get("no_proxy")):
            proxies = {}
        return super().send(request, stream, timeout, verify, cert, proxies)


class BoundedAdapter(ProxyAdapter):
    """Takes only so much of each response: `MAX_HEAD` bytes until `allow_body`, and none that is too slow."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Create the pools of direct connections; as `HTTPAdapter.init_poolmanager`."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Return the pools of a proxy; as `HTTPAdapter.proxy_manager_for`."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager


def allow_body(response: requests.Response, size: int) -> None:
    """Let a streamed response of a `BoundedAdapter` have a body of `size` bytes."""
    meter: _Meter = response.raw._original_response.meter  # type: ignore[union-attr]  # ours: `_Response`
    # Sizes of chunks come on top of their content.
    meter.limit = meter.received + size + size // 8 + MAX_LINE


def read_body(response: requests.Response, limit: int) -> bytes:
    """Return the whole body of a streamed response. Raises `ValueError` if it has more than `limit` bytes."""
    allow_body(response, limit)
    content = bytearray()
    with response:
        for piece in response.iter_content(1 << 16):
            content += piece
            if len(content) > limit:
                raise ValueError(f"its response has more than {limit} bytes")
    return bytes(content)


class _Meter(io.RawIOBase):
    """A socket's file that counts. Raises `HTTPException` beyond `limit` bytes, `TimeoutError` below `MIN_RATE`."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._waited = 0.0
        self.received = 0
        self.limit = MAX_HEAD

    def readinto(self, buffer: Any, /) -> int | None:
        start = time.monotonic()
        count: int = self._raw.readinto(buffer) or 0
        self._waited += time.monotonic() - start
        self.received += count
        if self.received > self.limit:
            raise http.client.HTTPException(f"the response has more than {self.limit} bytes")
        if self._waited > GRACE_SECONDS + self.received / MIN_RATE:
            raise TimeoutError(f"the response has {self.received} bytes after {self._waited:.0f} seconds")
        return count

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Reader(io.BufferedReader):
    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(MAX_LINE + 1 if size is None or size < 0 else size)
        if len(line) > MAX_LINE:
            raise http.client.LineTooLong("line")
        return line


class _Response(http.client.HTTPResponse):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.meter = _Meter(self.fp.detach())
        self.fp = _Reader(self.meter)


class _Connection(HTTPConnection):
    response_class = _Response


class _TlsConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


_POOLS = {"http": _Pool, "https": _TlsPool}
