"""How requests leave this machine, for whoever speaks HTTP: package indexes and registries."""

from __future__ import annotations

from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.utils import should_bypass_proxies


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
