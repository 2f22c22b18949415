"""HTTP requests about one repository: address, authorization, redirects and retries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from urllib.parse import urljoin

import requests

from tfimg.core.retry import RetryPolicy
from tfimg.index.network import DirectSession
from tfimg.registry import responses
from tfimg.registry.address import InvalidAddress, Origin, check_redirect, is_loopback, parse_origin, resolve_address
from tfimg.registry.authorization import Authorization
from tfimg.registry.credentials import Credentials
from tfimg.registry.reference import DOCKER_HUB, Reference
from tfimg.registry.responses import Response

CONNECT_SECONDS = 10.0
"""Timeout of a connection, and of sending one piece. A connection around the world takes less than 1 s."""

READ_SECONDS = 60.0
"""Timeout of a silent registry. One on an object store may copy a large blob before it answers."""

RESPONSE_SECONDS = 300.0
"""Timeout of a whole manifest or list: the largest one at 28 kB/s."""

MAX_REDIRECTS = 5
"""Redirects of one request. A blob in an object store needs one or two."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})

HOSTS: Mapping[str, str] = {DOCKER_HUB: f"registry-1.{DOCKER_HUB}"}
"""Registries that answer at another host than their name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionSettings:
    """How this machine reaches a registry. `ca_file` replaces the default certificate authorities.

    `proxies` are by scheme; `no_proxy` among them names hosts without a proxy. `plain_http`: the registry has no TLS.
    """

    ca_file: str | None = None
    proxies: Mapping[str, str] = field(default_factory=dict)
    plain_http: bool = False
    connect_seconds: float = CONNECT_SECONDS
    read_seconds: float = READ_SECONDS
    response_seconds: float = RESPONSE_SECONDS


class Connection:
    """Requests about one repository, from one thread at a time.

    Every method raises `NetworkError` if the registry does not answer, and `RegistryError` if it refuses.
    """

    def __init__(
        self,
        reference: Reference,
        *,
        credentials: Credentials | None,
        settings: ConnectionSettings,
        retry_policy: RetryPolicy,
    ) -> None:
        self.host = reference.host
        self.repository = reference.repository
        self.retry_policy = retry_policy
        self.response_seconds = settings.response_seconds
        self._path = reference.path
        self._plain_http = settings.plain_http
        self._timeout = settings.connect_seconds, settings.read_seconds
        self._session = DirectSession(step_seconds=settings.response_seconds)
        self._session.verify = settings.ca_file or True
        self._session.headers["Accept-Encoding"] = "identity"  # digests are of the bytes that are sent
        self._session.headers["User-Agent"] = "tfimg"
        if not is_loopback(self.host):
            self._session.proxies.update(settings.proxies)
        self._authorization = Authorization(
            reference=reference,
            credentials=credentials,
            session=self._session,
            timeout=self._timeout,
            response_seconds=settings.response_seconds,
        )

    @cached_property
    def base(self) -> str:
        """The address of the repository. A registry on loopback is probed for TLS."""
        is_plain = self._plain_http or (is_loopback(self.host) and self.retry_policy.retry_transient(self._lacks_tls))
        return f"{'http' if is_plain else 'https'}://{HOSTS.get(self.host, self.host)}/v2/{self._path}/"

    @cached_property
    def origin(self) -> Origin:
        """The only origin that receives the credentials."""
        return parse_origin(self.base)

    def _lacks_tls(self) -> bool:
        try:
            self._session.get(f"https://{self.host}/v2/", timeout=self._timeout, stream=True).close()
        except responses.TRANSPORT_ERRORS as error:
            is_other = "CERTIFICATE_VERIFY_FAILED" in str(error) or responses.UNREADABLE_AUTHORITY.search(str(error))
            if isinstance(error, requests.exceptions.SSLError) and not is_other:
                return True
            raise self._map_transport_error(error) from None
        return False

    def _map_transport_error(self, error: Exception) -> Exception:
        if responses.UNREADABLE_AUTHORITY.search(str(error)):
            return responses.authority_error(str(self._session.verify), self.host)
        return responses.map_transport_error(error, self.host, self._timeout[1])

    def request(
        self,
        method: str,
        target: str,
        *,
        expected: Collection[int] = (200,),
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        once: bool = False,
    ) -> Response:
        """Return a whole response with an expected status. `target`: an address, or a path below the repository.

        `once`: make one attempt, and raise `TransientError` if a retry may succeed.
        """

        def attempt() -> Response:
            with self.open(method, target, headers=headers, content=content) as opened:
                response = self.read(opened)
            if response.status in expected:
                return response
            raise self.map_error(response, method)

        return attempt() if once else self.retry_policy.retry_transient(attempt)

    @contextmanager
    def open(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, content: bytes = b""
    ) -> Iterator[requests.Response]:
        """Yield a response before its content is read, in one attempt. Raises as `request` with `once`."""
        url = urljoin(self.base, target)
        try:
            response, is_own = self._send(method, url, headers or {}, content)
            with response:
                # Only the registry's own response may ask for its credentials (CVE-2020-15157).
                is_challenge = is_own and response.status_code == 401
                challenge = response.headers.get("WWW-Authenticate", "") if is_challenge else ""
                if not self._authorization.answer_challenge(challenge, method, self.origin):
                    yield response
                    return
            with self._send(method, url, headers or {}, content)[0] as response:
                yield response
        except responses.TRANSPORT_ERRORS as error:
            raise self._map_transport_error(error) from None

    def read(self, response: requests.Response) -> Response:
        """Read an open response to its end, within limits."""
        return responses.read_response(response, self.host, self.response_seconds)

    def map_error(self, response: Response, method: str) -> Exception:
        """Return the error for an unexpected response."""
        is_write, has_credentials = method not in ("GET", "HEAD"), self._authorization.credentials is not None
        return responses.map_response(
            response, self.host, self.repository, is_write=is_write, has_credentials=has_credentials
        )

    def resolve_link(self, base: str, address: str, name: str, *, same_origin: bool = False) -> str:
        """Return the address in a header as a complete one. Raises `RegistryError` if it may not be followed.

        `name` is its name in messages.
        """
        try:
            complete = resolve_address(base, address)
            check_redirect(self.origin, parse_origin(complete))
            if same_origin and parse_origin(complete) != self.origin:
                raise InvalidAddress("it points to another host")
        except InvalidAddress as error:
            raise responses.address_error(self.host, name, address, error) from None
        return complete

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes
    ) -> tuple[requests.Response, bool]:
        """Send a request and follow the redirects of a read; return the response, and whether it is the registry's own.

        After a redirect to another origin nothing is the registry's own, even back at its origin.
        """
        is_own = True
        for _ in range(MAX_REDIRECTS + 1):
            is_own = is_own and parse_origin(url) == self.origin
            response = self._session.request(
                method,
                url,
                headers={**headers, **(self._authorization.header(method) if is_own else {})},
                # A file is sent in small pieces, and the connection's timeout is for each of them.
                data=BytesIO(content) if content else None,
                stream=True,
                timeout=self._timeout,
            )
            location = response.headers.get("Location") if response.status_code in REDIRECTS else None
            if location is None or method not in ("GET", "HEAD"):
                return response, is_own
            with response:
                self.read(response)  # so that the connection can be reused
            url = self.resolve_link(url, location, "the target of a redirect")
        raise responses.limit_error(self.host, f"more than {MAX_REDIRECTS} redirects in a row")
