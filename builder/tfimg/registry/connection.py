"""A repository over HTTP: where it answers, who we are to it, and another try where that is worth it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from io import BytesIO
from urllib.parse import urljoin

import requests

from tfimg.index.transport import DirectSession
from tfimg.registry.address import InvalidAddress, Origin, check_redirect, is_loopback, parse_origin, resolve_address
from tfimg.registry.authorization import Authorization
from tfimg.registry.credentials import Credentials
from tfimg.registry.error_mapping import (
    TRANSPORT_ERRORS,
    RequestContext,
    Response,
    address_error,
    limit_error,
    map_response,
    map_transport_error,
)
from tfimg.registry.reference import DOCKER_HUB, Reference
from tfimg.registry.responses import read_response
from tfimg.registry.retry import RetryPolicy

CONNECT_SECONDS = 10.0
"""Also of one piece of what is sent. A connection around the world takes under 1 s; the rest is for busy machines."""

SILENCE_SECONDS = 60.0
"""A registry that says nothing for so long does not answer. It may be at work: one on an object store copies a large
blob from one place to another before it answers."""

ANSWER_SECONDS = 300.0
"""A manifest or a list that takes longer comes from one that keeps us waiting: the largest, at 28 kB/s."""

MAX_REDIRECTS = 5
"""Redirects of one request. A blob in an object store needs one or two."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})

HOSTS: Mapping[str, str] = {DOCKER_HUB: f"registry-1.{DOCKER_HUB}"}
"""Registries that answer elsewhere than their names say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionSettings:
    """How this machine reaches a registry. `ca_file` is a file of authorities to trust in place of the usual ones.

    `proxies` are by scheme; beside them `no_proxy` may name hosts that are reached without one. With `plain_http`, the
    registry has no TLS. Times are seconds.
    """

    ca_file: str | None = None
    proxies: Mapping[str, str] = field(default_factory=dict)
    plain_http: bool = False
    connect_seconds: float = CONNECT_SECONDS
    read_seconds: float = SILENCE_SECONDS
    response_seconds: float = ANSWER_SECONDS

    @property
    def timeout(self) -> tuple[float, float]:
        """As requests has it."""
        return self.connect_seconds, self.read_seconds


class Connection:
    """Requests about one repository. For one thread at a time.

    Every method raises `NetworkError` where the registry does not answer and `RegistryError` where it says no.
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
        self.path = reference.path
        self.repository = reference.repository
        self.retry_policy = retry_policy
        self._settings = settings
        self._loopback = is_loopback(self.host)
        self._session = DirectSession(step_seconds=settings.response_seconds)
        self._session.verify = settings.ca_file or True
        self._session.headers["Accept-Encoding"] = "identity"  # digests are of what is sent
        self._session.headers["User-Agent"] = "tfimg"
        if not self._loopback:
            self._session.proxies.update(settings.proxies)
        self._authorization = Authorization(
            host=self.host,
            path=self.path,
            credentials=credentials,
            session=self._session,
            timeout=settings.timeout,
            response_seconds=settings.response_seconds,
            retry_policy=retry_policy,
        )

    @property
    def response_seconds(self) -> float:
        """Longest time of one answer."""
        return self._settings.response_seconds

    @cached_property
    def base(self) -> str:
        """The address of the repository. A registry on loopback may have TLS or not, and is asked."""
        netloc = HOSTS.get(self.host, self.host)
        plain = self._settings.plain_http or (
            self._loopback and self.retry_policy.retry_transient(partial(self._is_plain, netloc))
        )
        return f"{'http' if plain else 'https'}://{netloc}/v2/{self.path}/"

    @cached_property
    def origin(self) -> Origin:
        """Where the registry answers: nothing else gets its credentials."""
        return parse_origin(self.base)

    def _is_plain(self, netloc: str) -> bool:
        try:
            self._session.get(f"https://{netloc}/v2/", timeout=self._settings.timeout, stream=True).close()
        except requests.exceptions.SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise map_transport_error(error, self.host, self._settings.read_seconds) from None
            return True
        except TRANSPORT_ERRORS as error:
            raise map_transport_error(error, self.host, self._settings.read_seconds) from None
        return False

    def ask(
        self,
        method: str,
        place: str,
        *,
        expected: Collection[int] = (200,),
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
    ) -> Response:
        """A whole answer with an expected status; `place` is an address, or a path below the repository."""
        return self.retry_policy.retry_transient(
            partial(self.once, method, place, expected=expected, headers=headers, content=content)
        )

    def once(
        self,
        method: str,
        place: str,
        *,
        expected: Collection[int] = (200,),
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
    ) -> Response:
        """As `ask`, in one try. Raises `TransientError` where another one is worth it."""
        with self.opened(method, place, headers=headers, content=content) as response:
            answer = self.read(response)
        if answer.status in expected:
            return answer
        raise self.refused(answer, method)

    @contextmanager
    def opened(
        self, method: str, place: str, *, headers: Mapping[str, str] | None = None, content: bytes = b""
    ) -> Iterator[requests.Response]:
        """An answer before its content is read, in one try. What fails in the block raises as `once` does."""
        url = urljoin(self.base, place)
        try:
            response, own = self._send(method, url, headers or {}, content)
            with closing(response):
                # Only the registry's own answer asks for its credentials (CVE-2020-15157).
                asks = own and response.status_code == 401
                challenge = response.headers.get("WWW-Authenticate", "") if asks else ""
                if not self._authorization.meet(challenge, method, self.origin):
                    yield response
                    return
            response, _ = self._send(method, url, headers or {}, content)
            with closing(response):
                yield response
        except TRANSPORT_ERRORS as error:
            raise map_transport_error(error, self.host, self._settings.read_seconds) from None

    def refused(self, answer: Response, method: str) -> Exception:
        """What to raise for an answer that was not expected."""
        asked = RequestContext(
            host=self.host,
            repository=self.repository,
            writing=method not in ("GET", "HEAD"),
            known=self._authorization.known,
        )
        return map_response(answer, asked, self.retry_policy)

    def follow(self, base: str, address: str, name: str, *, own: bool = False) -> str:
        """Return the address in a header, complete. Raises `RegistryError` for one that is not followed.

        `name` says in the message what the address is of; with `own`, it must be the registry's.
        """
        try:
            whole = resolve_address(base, address)
            check_redirect(self.origin, parse_origin(whole))
            if own and parse_origin(whole) != self.origin:
                raise InvalidAddress("it leads to another host")
        except InvalidAddress as error:
            raise address_error(self.host, name, address, error) from None
        return whole

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes
    ) -> tuple[requests.Response, bool]:
        """Send a request, follow redirects of a read, and return the answer and whether it is the registry's own.

        After one redirect to another origin nothing is the registry's own, also back at its origin.
        """
        own = True
        for _ in range(MAX_REDIRECTS + 1):
            own = own and parse_origin(url) == self.origin
            response = self._session.request(
                method,
                url,
                headers={**headers, **(self._authorization.header(method) if own else {})},
                # As a file it goes out in small pieces, each of which may take as long as a connection.
                data=BytesIO(content) if content else None,
                stream=True,
                timeout=self._settings.timeout,
            )
            location = response.headers.get("Location") if response.status_code in REDIRECTS else None
            if location is None or method not in ("GET", "HEAD"):
                return response, own
            with closing(response):
                self.read(response)  # so that the connection can be used again
            url = self.follow(url, location, "the target of a redirect")
        raise limit_error(self.host, f"more than {MAX_REDIRECTS} redirects in a row")

    def read(self, response: requests.Response) -> Response:
        """Return all of an answer that was opened. Raises as `ask`, also where there is no end to it."""
        return read_response(response, self.host, self._settings.response_seconds)
