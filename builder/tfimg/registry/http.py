"""Requests to a registry: address, connection, credentials asked for, errors.

Parsers of URLs disagree about userinfo, backslashes, percent signs and letters beyond ASCII in a host. Such an address
is refused, so that the compared origin is the contacted one.
"""

from __future__ import annotations

import ipaddress
import math
import re
import time
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import unescape
from http import HTTPStatus
from io import BytesIO
from typing import Annotated, Any
from urllib.parse import SplitResult, urljoin, urlsplit

import requests
from pydantic import ConfigDict, Field
from requests.utils import parse_dict_header
from urllib3 import Retry
from urllib3.exceptions import HTTPError, InvalidHeader

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import FileError, NetworkError, NotInRegistry, RegistryError, TagImmutable, TfimgError
from tfimg.core.failures import (
    CREATE_FIRST,
    EXEMPT_TAGS,
    IMMUTABLE_TAG,
    RAISE_LIMIT,
    certificate_step,
    innermost,
    network_error,
    read_failure,
)
from tfimg.core.retry import RetryPolicy, TransientError
from tfimg.core.text import format_duration, quote_value, truncate
from tfimg.index.network import Confinement, DirectSession, ForbiddenAddress, LimitExceeded, read_chunks
from tfimg.registry.reference import DOCKER_HUB, Credentials, Reference

PRINTABLE = re.compile(r"[\x21\x22\x24-\x5b\x5d-\x7e]+")
"""ASCII without controls, blanks, the backslash and the fragment's #."""

LABEL = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
AUTHORITY = re.compile(rf"({LABEL}(?:\.{LABEL})*|\[[0-9a-f:.]+\])(?::([0-9]{{1,5}}))?", re.IGNORECASE)
"""Host and port. Stores such as S3 have underscores in host names."""

PORTS = {"http": 80, "https": 443}


class InvalidAddress(ValueError):
    """An address that is not followed; the text is the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Scheme, host in lower case, and port (RFC 6454)."""

    scheme: str
    host: str
    port: int


def parse_origin(address: str) -> Origin:
    """Return the origin of a complete address. Raises `InvalidAddress`."""
    parts = _split(address)
    if parts.scheme not in PORTS:
        raise InvalidAddress("it is neither http nor https")
    authority = AUTHORITY.fullmatch(parts.netloc)
    port = int(authority[2] or PORTS[parts.scheme]) if authority else 0
    if not authority or not 0 < port < 1 << 16:
        raise InvalidAddress("it has no plain host name and port")
    return Origin(scheme=parts.scheme, host=authority[1].lower(), port=port)


def resolve_address(origin: Origin, base: str, address: str) -> str:
    """Return an address to which a registry sends a client on, and which may be relative to `base`, as a complete one.

    Raises `InvalidAddress`, also for one without TLS, unless the registry is such a one itself.
    """
    parts = _split(address)
    if parts.scheme and not parts.netloc:
        raise InvalidAddress("it has no host name")
    complete = urljoin(base, address)
    target = parse_origin(complete)
    if origin.scheme == "https" and target.scheme != "https":
        raise InvalidAddress("it points to a server without TLS")
    return complete


def _split(address: str) -> SplitResult:
    if not PRINTABLE.fullmatch(address):
        raise InvalidAddress("it has characters that no address has")
    try:
        return urlsplit(address)
    except ValueError as error:
        raise InvalidAddress(str(error).lower()) from None


def check_realm(registry: Origin, realm: Origin) -> None:
    """Raise `InvalidAddress` unless a registry may name a token server at this origin, which receives credentials.

    With TLS it may be any host; without TLS only the registry's host without TLS, or this machine from this machine.
    """
    if realm.scheme == "https" or (is_loopback(registry.host) and is_loopback(realm.host)):
        return
    if registry.scheme == "https" or registry.host != realm.host:
        raise InvalidAddress("it points to a server without TLS")


def is_loopback(host: str) -> bool:
    """Return whether HOST[:PORT] is on this machine, where Docker too accepts a registry without TLS."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


MAX_RESPONSE_BYTES = 8 << 20
"""Registries must take manifests of 4 MiB (OCI distribution specification 1.1, "Pushing Manifests"), some take more."""

TRANSIENT_STATUSES = frozenset({408, 425, 429, *range(500, 600)}) - {501, 505, 507, 511}
"""Statuses after which a retry may succeed (RFC 9110, 6585, 8470)."""

TRANSIENT_CODES = frozenset({"MANIFEST_BLOB_UNKNOWN", "BLOB_UPLOAD_UNKNOWN", "BLOB_UPLOAD_INVALID"})
"""Error codes after which a retry may succeed: while another client sends a blob of a manifest, distribution's link to
it is empty for a moment (`registry/storage/linkedblobstore.go`), and it drops an upload whose request was cut
(`handlers/blobupload.go`)."""

FULL = re.compile(
    r"no space left|insufficient storage|quota|storage limit|\"?Err\"?: ?28\b|disk (?:is )?full", re.IGNORECASE
)
"""Messages of full registries: distribution prints the number of ENOSPC, Harbor mentions a quota."""

MAX_HEAD = 16_384  # bytes at the beginning of a page in which its title is looked for
HTML = re.compile(rb"\s*<(?:!doctype html|html)\b", re.IGNORECASE)
TITLE = re.compile(rb"<title[^>]{0,100}>(.{0,400}?)</title>", re.IGNORECASE | re.DOTALL)

EXPECTS_TLS = re.compile(r"HTTP request (?:was sent )?to (?:an )?HTTPS|plain HTTP to an SSL", re.IGNORECASE)
"""Responses of Go, nginx and Apache to a request without TLS on a port with TLS."""

MAX_RETRY_HEADER = 64  # characters of a Retry-After that are read; a date has 29
UNREADABLE_AUTHORITY = re.compile(r"\[X509\b")
TRANSPORT_ERRORS = (requests.RequestException, HTTPError, OSError)  # exceptions of requests and its transport


class _Problem(Document):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    code: str | None = None
    message: str | None = None


class _ErrorDocument(Document):
    """Error document of a registry (OCI distribution specification 1.1, "Error Codes")."""

    errors: Annotated[tuple[_Problem, ...], Field(max_length=1000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """A whole response. Header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str

    @property
    def errors(self) -> tuple[tuple[str, str], ...]:
        """Return the codes and messages of a well-formed error document."""
        try:
            problems = parse_document(_ErrorDocument, self.content).errors
        except InvalidDocument:
            return ()
        return tuple((problem.code or "", problem.message or "") for problem in problems)

    @property
    def page(self) -> str | None:
        """Return the title of an HTML page, which may be empty; None for any other content."""
        head = self.content[:MAX_HEAD]
        if "text/html" not in self.headers.get("Content-Type", "").lower() and not HTML.match(head):
            return None
        title = TITLE.search(head)
        return " ".join(unescape(title[1].decode(errors="replace")).split()) if title else ""

    @property
    def message(self) -> str:
        """Return the registry's explanation on one line, in at most `MAX_QUOTED` characters."""
        plain = "text/plain" in self.headers.get("Content-Type", "")
        text = "; ".join(f"{code}: {message}" if message else code for code, message in self.errors)
        text = text or (self.content.decode(errors="replace") if plain else self.page or "")
        # On one line, so that a registry cannot write lines that look like tfimg's.
        text = truncate(" ".join(text.split())).removeprefix(f"{self.status} ")
        return text or next((status.phrase for status in HTTPStatus if status == self.status), "")


def map_response(
    response: Response, host: str, repository: str, *, is_write: bool, has_credentials: bool
) -> TransientError | TfimgError:
    """Return the error for a response with an unexpected status. `has_credentials`: the request had an account."""
    status, reply = response.status, f"{response.status} {response.message}".strip().rstrip(".")
    login = f"Log in with `docker login {host}`"
    if is_write and status in (400, 403, 409, 412) and IMMUTABLE_TAG.search(response.content.decode(errors="replace")):
        return TagImmutable(
            f"The registry {host} does not let a tag of {repository} move: {reply}.", next_step=EXEMPT_TAGS
        )
    can_be_full = status >= 500 or status in (403, 412, 413)
    if status == 507 or (can_be_full and FULL.search(response.content.decode(errors="replace"))):
        return RegistryError(
            f"The registry {host} is full: {reply}.",
            next_step="Ask its owner for space or a larger quota, then run it again: uploads are not repeated.",
        )
    after = parse_retry_after(response.headers.get("Retry-After"))
    if status == 429:
        seconds = parse_size(response.headers.get("Retry-After"))
        wait = f" and to wait {seconds} s" if seconds else ""
        error = NetworkError(
            f"The registry {host} asks for fewer requests{wait}: {reply}.",
            next_step="Run it again later, or log in: registries allow accounts more requests.",
        )
        return TransientError(error, after=after)
    if status in TRANSIENT_STATUSES:
        error = NetworkError(
            f"The registry {host} failed: {reply}.", next_step="Run it again later; the registry's log has the cause."
        )
        return TransientError(error, after=after)
    if status == 400 and EXPECTS_TLS.search(response.content.decode(errors="replace")):
        return RegistryError(
            f"The registry {host} has TLS, and the request had none: {reply}.", next_step="Leave out --plain-http."
        )
    if status in (400, 404, 416) and not TRANSIENT_CODES.isdisjoint(code for code, _ in response.errors):
        return TransientError(_refusal(status, host, repository, reply, is_write=is_write))
    if status == 401 and not has_credentials:
        return RegistryError(
            f"The registry {host} requires a login for {repository}: {reply}.", next_step=f"{login}, and run it again."
        )
    if status == 401 and "insufficient_scope" not in response.headers.get("WWW-Authenticate", ""):
        return credentials_error(host, reply)
    if status in (401, 403):
        action = "write to" if is_write else "read"
        create = "; some registries say the same of a repository or project that must be created first" * is_write
        return RegistryError(
            f"The registry {host} denies permission to {action} {repository}: {reply}.",
            next_step=f"{login} as a user with that permission, or check the repository's name{create}.",
        )
    return _refusal(status, host, repository, reply, is_write=is_write)


def _refusal(status: int, host: str, repository: str, reply: str, *, is_write: bool) -> TfimgError:
    if status == 407:
        return NetworkError(
            f"The proxy for {host} requires authentication: {reply}.",
            next_step="Put a name and password into HTTPS_PROXY: http://NAME:PASSWORD@PROXY:PORT.",
        )
    if is_write and status == 405:
        return RegistryError(
            f"The registry {host} is read-only: {reply}.",
            next_step="Wait until its owner allows writing; or check the name: other web servers answer the same.",
        )
    if status == 404 and not is_write:
        return NotInRegistry(
            f"The registry {host} does not have the requested part of {repository}: {reply}.",
            next_step="Check the name, and that it was not deleted.",
        )
    if "BLOB_UPLOAD_" in reply:  # the beginning of `TRANSIENT_CODES` about uploads
        return RegistryError(
            f"The registry {host} lost an upload to {repository}: {reply}.",
            next_step="Run it again; if it stays so, tell its owner: several servers behind one name need the same "
            "storage and the same secret.",
        )
    if status == 404:
        return RegistryError(f"The registry {host} has no repository {repository}: {reply}.", next_step=CREATE_FIRST)
    if status == 413:
        return RegistryError(
            f"The registry {host}, or a proxy before it, takes no request of this size: {reply}.", next_step=RAISE_LIMIT
        )
    if status < 400:
        return RegistryError(
            f"The server at {host} is not a registry: {reply}.",
            next_step="Check the name and the port; a login page of the network may answer instead.",
        )
    return RegistryError(
        f"The registry {host} refused a request about {repository}: {reply}.",
        next_step="Check the name; the registry's log may say more.",
    )


def credentials_error(host: str, reply: str) -> RegistryError:
    """Return the error for an unknown user, a wrong password or an expired token."""
    return RegistryError(
        f"The registry {host} rejected the credentials: {' '.join(reply.split())}.",
        next_step=f"Log in again with `docker login {host}`; a token may have expired.",
    )


def map_transport_error(error: Exception, host: str, seconds: float) -> TransientError | TfimgError:
    """Return the error for a missing or incomplete response. `seconds` is the timeout."""
    cause = innermost(error)
    if isinstance(cause, LimitExceeded):
        return timeout_error(host, cause.seconds) if cause.seconds else limit_error(host, str(cause))
    if isinstance(cause, ForbiddenAddress):
        return RegistryError(
            f"The registry {host} points to {truncate(str(cause))}.",
            next_step="Nothing was sent there: a registry may name servers of its own network and of the public one, "
            "and none that is nearer to this machine. Check that it is the right registry, and ask its owner.",
        )
    failure = replace(read_failure(error), host=host)
    match failure.stage:
        case "time":
            return TransientError(timeout_error(host, seconds))
        case "certificate":
            folder = f"or put it into Docker's folder: /etc/docker/certs.d/{host}/ca.crt"
            private = f"For a private certificate authority, name its file with SSL_CERT_FILE, {folder}."
            return network_error("", failure, next_step=certificate_step(failure.reason) or private)
        case "TLS":
            plain = "Use --plain-http for a registry without TLS; otherwise check the name and the port."
            return network_error("", failure, next_step=plain)
        case "other":
            failure = replace(failure, stage="connection")
    step = "Run it again: completed uploads are not repeated." if failure.stage == "cut" else ""
    return TransientError(network_error("", failure, server=f"the registry {host}", next_step=step))


def page_error(response: Response, what: str) -> RegistryError:
    """Return the error for an HTML page in place of `what` a registry would send."""
    title = f" with the title {quote_value(response.message)}" if response.page else ""
    return RegistryError(
        f"The server at {urlsplit(response.url).netloc} answered with an HTML page{title} in place of {what}.",
        next_step="It may be a sign-in page: sign in to the network, or ask the registry's owner to let programs reach "
        "/v2/ with the credentials of `docker login`. Check the name and the port too.",
    )


def address_error(host: str, name: str, address: str, reason: Exception) -> RegistryError:
    """Return the error for an address in a header that is not followed."""
    return RegistryError(
        f"The registry {host} names {truncate(address)!r} as {name}: {reason}.",
        next_step="Nothing was sent there. Check that it is the right registry, and ask its owner.",
    )


def limit_error(host: str, excess: str) -> RegistryError:
    return RegistryError(f"The registry {host} sent {excess}.", next_step="Check that it is a registry.")


def timeout_error(host: str, seconds: float) -> NetworkError:
    """Return the error for a response that does not begin or end in time."""
    return NetworkError(
        f"The registry {host} is too slow: it did not answer within {seconds:g} s.",
        next_step="Run it again later: completed uploads are not repeated.",
    )


def parse_size(header: str | None) -> int:
    """Return the number in a header; 0 without a plausible one."""
    return int(header) if header and re.fullmatch(r"[0-9]{1,15}", header) else 0


def parse_retry_after(header: str | None) -> float:
    """Return the seconds of a Retry-After, a number or a date (RFC 9110, section 10.2.3); 0 for anything else."""
    try:
        return Retry().parse_retry_after((header or "")[:MAX_RETRY_HEADER])
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0


ACTIONS = {"GET": "pull", "HEAD": "pull", "DELETE": "delete", "POST": "pull,push", "PUT": "pull,push"}
"""Right that a method needs (distribution, `handlers/app.go`)."""

TOKEN = re.compile(r"[\x21-\x7e]{1,32768}")
"""A token that fits a header; those of large organisations at GitLab or Harbor have 4 kB."""


class _TokenDocument(Document):
    """A token server's response. The lifetime is not read: the registry answers 401 to an expired token."""

    token: str | None = None
    access_token: str | None = None


RESPONSE_SECONDS = 300.0  # timeout of a whole manifest or list: the largest one at 28 kB/s
BUDGET_SECONDS = 7200  # longest wait of a command for all responses together: a GPU image of 4 GB at 600 kB/s
MAX_REDIRECTS = 5  # redirects of one request. A blob in an object store needs one or two


@dataclass
class TimeBudget:
    """Time that an operation may wait for registries: for all responses and pauses between attempts together.

    `spent` are the seconds of it that have passed.
    """

    seconds: float = BUDGET_SECONDS
    spent: float = 0.0

    def spend(self, seconds: float, host: str) -> None:
        """Raise `NetworkError` when more is spent than there is."""
        self.spent += seconds
        if self.spent > self.seconds:
            raise NetworkError(
                f"The registry {host} is too slow: its answers have taken {format_duration(self.seconds)} altogether.",
                next_step="Run it again later: completed uploads are not repeated. --registry-time allows more.",
            )

    @contextmanager
    def wait(self, host: str) -> Iterator[None]:
        """Count the time of the block. Raises as `spend`."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.spent += time.monotonic() - start
        self.spend(0, host)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionSettings:
    """How this machine reaches a registry. `ca_file` replaces the default certificate authorities.

    `proxies` are by scheme; `no_proxy` among them names hosts without a proxy. `plain_http`: the registry has no TLS.
    Registries with one `budget` share it.
    """

    ca_file: str | None = None
    proxies: Mapping[str, str] = field(default_factory=dict)
    plain_http: bool = False
    connect_seconds: float = 10.0
    """Timeout of a connection, and of sending one piece. A connection around the world takes less than 1 s."""
    read_seconds: float = 60.0
    """Timeout of a silent registry. One on an object store may copy a large blob before it answers."""
    response_seconds: float = RESPONSE_SECONDS
    budget: TimeBudget = field(default_factory=TimeBudget)


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
        self.retry_policy = replace(retry_policy, sleep=self._pause)
        self._sleep = retry_policy.sleep
        self._budget = settings.budget
        self.response_seconds = settings.response_seconds
        self._path = reference.path
        self._plain_http = settings.plain_http
        self._timeout = settings.connect_seconds, settings.read_seconds
        self._session = DirectSession(step_seconds=settings.response_seconds, confinement=Confinement())
        self._session.verify = settings.ca_file or True
        self._session.headers["Accept-Encoding"] = "identity"  # digests are of the bytes that are sent
        self._session.headers["User-Agent"] = "tfimg"
        if not is_loopback(self.host):
            self._session.proxies.update(settings.proxies)
        self._credentials = credentials
        self._authorizations: dict[str, str] = {}  # headers by the actions that they allow

    @cached_property
    def base(self) -> str:
        """The address of the repository. A registry on loopback is probed for TLS."""
        is_plain = self._plain_http or (is_loopback(self.host) and self.retry_policy.retry_transient(self._lacks_tls))
        host = f"registry-1.{DOCKER_HUB}" if self.host == DOCKER_HUB else self.host
        return f"{'http' if is_plain else 'https'}://{host}/v2/{self._path}/"

    @cached_property
    def origin(self) -> Origin:
        """The only origin that receives the credentials."""
        return parse_origin(self.base)

    def _lacks_tls(self) -> bool:
        try:
            self._fetch("GET", f"https://{self.host}/v2/").close()
        except TRANSPORT_ERRORS as error:
            is_other = "CERTIFICATE_VERIFY_FAILED" in str(error) or UNREADABLE_AUTHORITY.search(str(error))
            if isinstance(error, requests.exceptions.SSLError) and not is_other:
                return True
            raise self._map_transport_error(error) from None
        return False

    def _pause(self, seconds: float) -> None:
        self._budget.spend(seconds, self.host)
        self._sleep(seconds)

    def _fetch(self, method: str, url: str, **options: Any) -> requests.Response:
        """Return a response whose content is not read yet, after time of the budget."""
        with self._budget.wait(self.host):
            return self._session.request(method, url, stream=True, timeout=self._timeout, **options)

    def read_chunks(self, response: requests.Response, bytes_per_second: float = math.inf) -> Iterator[bytes]:
        """Yield a body as it arrives, in time of the budget. Raises as `tfimg.index.network.read_chunks`."""
        chunks = read_chunks(response, self.response_seconds, bytes_per_second)
        while True:
            with self._budget.wait(self.host):
                chunk = next(chunks, b"")
            if not chunk:
                return
            yield chunk

    def _map_transport_error(self, error: Exception) -> Exception:
        if UNREADABLE_AUTHORITY.search(str(error)):
            return FileError(
                f"{self._session.verify} has no certificate that can be read, so the certificate of {self.host} cannot "
                "be verified.",
                next_step="Replace it with the certificate of the registry's authority, in PEM: -----BEGIN "
                "CERTIFICATE-----.",
            )
        return map_transport_error(error, self.host, self._timeout[1])

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
                if not self._answer_challenge(challenge, method):
                    yield response
                    return
            with self._send(method, url, headers or {}, content)[0] as response:
                yield response
        except TRANSPORT_ERRORS as error:
            raise self._map_transport_error(error) from None

    def read(self, response: requests.Response, host: str = "") -> Response:
        """Read an open response, of the registry or another `host`, to its end, without decompressing it.

        Raises `RegistryError` for too many bytes, and as `open`.
        """
        content = bytearray()
        for chunk in self.read_chunks(response):
            content += chunk
            if len(content) > MAX_RESPONSE_BYTES:
                raise limit_error(host or self.host, f"more than {MAX_RESPONSE_BYTES >> 20} MiB in one document")
        return Response(
            status=response.status_code, headers=response.headers, content=bytes(content), url=response.url or ""
        )

    def map_error(self, response: Response, method: str) -> Exception:
        is_write, has_credentials = method not in ("GET", "HEAD"), self._credentials is not None
        return map_response(response, self.host, self.repository, is_write=is_write, has_credentials=has_credentials)

    def resolve_link(self, base: str, address: str, name: str, *, same_origin: bool = False) -> str:
        """Return the address in a header as a complete one. Raises `RegistryError` if it may not be followed.

        `name` is its name in messages.
        """
        try:
            complete = resolve_address(self.origin, base, address)
            if same_origin and parse_origin(complete) != self.origin:
                raise InvalidAddress("it points to another host")
        except InvalidAddress as error:
            raise address_error(self.host, name, address, error) from None
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
            authorization = self._authorizations.get(ACTIONS[method]) if is_own else None
            response = self._fetch(
                method,
                url,
                headers={**headers, **({"Authorization": authorization} if authorization else {})},
                # A file is sent in small pieces, and the connection's timeout is for each of them.
                data=BytesIO(content) if content else None,
            )
            if not response.is_redirect or method not in ("GET", "HEAD"):
                return response, is_own
            with response:
                self.read(response)  # so that the connection can be reused
            url = self.resolve_link(url, response.headers["Location"], "the target of a redirect")
        raise limit_error(self.host, f"more than {MAX_REDIRECTS} redirects in a row")

    def _answer_challenge(self, challenge: str, method: str) -> bool:
        """Obtain the Authorization that a challenge of the registry itself asks for; return whether it is new."""
        scheme, _, rest = challenge.strip().partition(" ")
        actions, account = ACTIONS[method], self._credentials
        pair = f"{account.username}:{account.password}" if account else ""
        basic = f"Basic {b64encode(pair.encode()).decode()}" if account else ""
        parameters: dict[str, str] = parse_dict_header(rest)  # type: ignore[no-untyped-call]
        if scheme.lower() == "bearer" and parameters.get("realm"):
            value = f"Bearer {self._request_token(parameters, actions, basic)}"
        elif scheme.lower() == "basic" and account and account.username:
            value = basic
        else:
            return False
        is_new = self._authorizations.get(actions) != value
        self._authorizations[actions] = value
        return is_new

    def _request_token(self, parameters: Mapping[str, str], actions: str, basic: str) -> str:
        """Return a token from the server that a challenge names, for an account or anonymously."""
        realm, account = parameters["realm"], self._credentials
        try:
            check_realm(self.origin, parse_origin(realm))
        except InvalidAddress as error:
            raise address_error(self.host, "its token server", realm, error) from None
        server = urlsplit(realm).netloc
        query = {"scope": parameters.get("scope") or f"repository:{self._path}:{actions}"}
        if parameters.get("service"):
            query["service"] = parameters["service"]
        try:
            if account and account.identity_token:
                # OAuth 2.0 (RFC 6749) requires a client's identifier with a refresh token.
                grant = {"grant_type": "refresh_token", "client_id": "tfimg", "refresh_token": account.identity_token}
                opened = self._fetch("POST", realm, data={**query, **grant})
            else:
                headers = {"Authorization": basic} if basic else {}
                opened = self._fetch("GET", realm, params=query, headers=headers)
            with opened:
                response = self.read(opened, server)
        except TRANSPORT_ERRORS as error:
            names = self.host if isinstance(innermost(error), ForbiddenAddress) else server
            raise map_transport_error(error, names, self._timeout[1]) from None
        if response.status != requests.codes.ok:
            is_denied = response.status in (400, 401, 403)
            if is_denied and account:
                raise credentials_error(self.host, f"{response.status} {response.message}")
            host = self.host if is_denied else server  # only a 401 depends on credentials
            raise map_response(response, host, self.repository, is_write=False, has_credentials=False)
        try:
            document = parse_document(_TokenDocument, response.content)
            token = document.token or document.access_token or ""
            if not TOKEN.fullmatch(token):
                raise InvalidDocument("a token has 1 to 32768 printable characters of ASCII")
        except InvalidDocument as error:
            if response.page is not None:
                raise page_error(response, "a token") from None
            raise RegistryError(
                f"The token server {server} of {self.host} sent no valid token: {error}.",
                next_step="Run it again later, or ask its owner.",
            ) from None
        return token
