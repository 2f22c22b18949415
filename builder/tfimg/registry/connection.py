"""A repository over HTTP: where it answers, who we are to it, and another try where that is worth it."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from io import BytesIO
from urllib.parse import urljoin, urlsplit

import requests

from tfimg.errors import RegistryRefused
from tfimg.registry.authorization import Authorization
from tfimg.registry.credentials import Credentials
from tfimg.registry.reference import HUB, Reference
from tfimg.registry.refusals import TRANSPORT, Answer, Asked, of_answer, of_transport, too_slow
from tfimg.registry.retry import Patience
from tfimg.transport import ProxyAdapter

CONNECT_SECONDS = 10.0
"""Also of one piece of what is sent. A connection around the world takes under 1 s; the rest is for busy machines."""

SILENCE_SECONDS = 60.0
"""A registry that says nothing for so long does not answer. It may be at work: one on an object store copies a large
blob from one place to another before it answers."""

ANSWER_SECONDS = 300.0
"""A manifest or a list that takes longer comes from one that keeps us waiting: the largest, at 28 kB/s."""

ANSWER_BYTES = 8 << 20
"""More than an answer may have: registries must take manifests of 4 MiB (OCI distribution specification 1.1,
"Pushing Manifests"), and some take larger ones."""

HOSTS: Mapping[str, str] = {HUB: f"registry-1.{HUB}"}
"""Registries that answer elsewhere than their names say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """How this machine reaches a registry. `ca` is a file of authorities to trust in place of the usual ones.

    `proxies` are by scheme; beside them `no_proxy` may name hosts that are reached without one. With `plain`, the
    registry has no TLS. Times are seconds.
    """

    ca: str | None = None
    proxies: Mapping[str, str] = field(default_factory=dict)
    plain: bool = False
    connect_seconds: float = CONNECT_SECONDS
    silence_seconds: float = SILENCE_SECONDS
    answer_seconds: float = ANSWER_SECONDS

    @property
    def timeout(self) -> tuple[float, float]:
        """As requests has it."""
        return self.connect_seconds, self.silence_seconds


class Connection:
    """Requests about one repository. For one thread at a time.

    Every method raises `NetworkError` where the registry does not answer and `RegistryRefused` where it says no.
    """

    def __init__(
        self, reference: Reference, *, credentials: Credentials | None, way: Way, patience: Patience
    ) -> None:
        self.host = reference.host
        self.path = reference.path
        self.repository = reference.repository
        self.patience = patience
        self._way = way
        self._loopback = is_loopback(self.host)
        self._session = requests.Session()
        # The edge has read the environment, and hands on what counts.
        self._session.trust_env = False
        self._session.verify = way.ca or True
        self._session.headers["Accept-Encoding"] = "identity"  # digests are of what is sent
        self._session.headers["User-Agent"] = "tfimg"
        if not self._loopback:
            self._session.proxies.update(way.proxies)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, ProxyAdapter())
        self._authorization = Authorization(
            host=self.host, path=self.path, credentials=credentials, session=self._session, timeout=way.timeout,
            patience=patience, cleartext=way.plain or self._loopback,
        )  # fmt: skip

    @cached_property
    def base(self) -> str:
        """The address of the repository. A registry on loopback may have TLS or not, and is asked."""
        netloc = HOSTS.get(self.host, self.host)
        plain = self._way.plain or (
            self._loopback and self.patience.keep_trying(partial(self._is_plain, netloc))
        )
        return f"{'http' if plain else 'https'}://{netloc}/v2/{self.path}/"

    def _is_plain(self, netloc: str) -> bool:
        try:
            self._session.get(f"https://{netloc}/v2/", timeout=self._way.timeout, stream=True).close()
        except requests.exceptions.SSLError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise of_transport(error, self.host, self._way.silence_seconds) from None
            return True
        except TRANSPORT as error:
            raise of_transport(error, self.host, self._way.silence_seconds) from None
        return False

    def ask(
        self, method: str, place: str, *, expected: Collection[int] = (200,),
        headers: Mapping[str, str] | None = None, content: bytes = b"",
    ) -> Answer:  # fmt: skip
        """A whole answer with an expected status; `place` is an address, or a path below the repository."""
        return self.patience.keep_trying(
            partial(self.once, method, place, expected=expected, headers=headers, content=content)
        )

    def once(
        self, method: str, place: str, *, expected: Collection[int] = (200,),
        headers: Mapping[str, str] | None = None, content: bytes = b"",
    ) -> Answer:  # fmt: skip
        """As `ask`, in one try. Raises `Passing` where another one is worth it."""
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
            with closing(self._send(method, url, headers or {}, content)) as response:
                challenge = (
                    response.headers.get("WWW-Authenticate", "") if response.status_code == 401 else ""
                )
                if not self._ours(url) or not self._authorization.meet(challenge, method):
                    yield response
                    return
            with closing(self._send(method, url, headers or {}, content)) as response:
                yield response
        except TRANSPORT as error:
            raise of_transport(error, self.host, self._way.silence_seconds) from None

    def refused(self, answer: Answer, method: str) -> Exception:
        """What to raise for an answer that was not expected."""
        asked = Asked(
            host=self.host, repository=self.repository, writing=method not in ("GET", "HEAD"),
            known=self._authorization.known,
        )  # fmt: skip
        return of_answer(answer, asked, self.patience)

    def _send(self, method: str, url: str, headers: Mapping[str, str], content: bytes) -> requests.Response:
        ours = self._authorization.header(method) if self._ours(url) else {}
        return self._session.request(
            method, url, headers={**headers, **ours}, stream=True, timeout=self._way.timeout,
            # As a file it goes out in small pieces, each of which may take as long as a connection.
            data=BytesIO(content) if content else None,
            allow_redirects=method in ("GET", "HEAD"),
        )  # fmt: skip

    def _ours(self, url: str) -> bool:
        """Whether an address is the registry's own: nobody else is told who we are."""
        return urlsplit(url)[:2] == urlsplit(self.base)[:2]

    def read(self, response: requests.Response) -> Answer:
        """All of an answer that was opened. Raises as `ask`, also where there is no end to it."""
        content = bytearray()
        deadline = self.patience.clock() + self._way.answer_seconds
        # What is there, and not as much as was asked for: that may be a byte a minute.
        while piece := response.raw.read1(1 << 16, decode_content=False):
            content += piece
            if len(content) > ANSWER_BYTES:
                raise RegistryRefused(
                    f"The registry {self.host} sends more than {ANSWER_BYTES >> 20} MiB where a manifest or a list "
                    "was asked for.",
                    next_step="Check that it is a registry.",
                )
            if self.patience.clock() > deadline:
                raise too_slow(self.host, self._way.answer_seconds)
        return Answer(
            status=response.status_code, headers=response.headers, content=bytes(content), url=response.url
        )


def is_loopback(host: str) -> bool:
    """Whether a registry is on this machine, where Docker too takes one without TLS."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
