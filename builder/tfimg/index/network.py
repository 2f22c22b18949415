"""Connections to package indexes and other web services, with retries and limits.

Builds receive them as BuildKit secrets (see images/build/with-network), never as build arguments, which images record.

The standard library reads any number of `100 Continue` responses and trailers, and every timeout of a socket begins
anew with each byte. `_MeteredResponse` bounds bytes and seconds below it, where the bytes come in.
"""

import ast
import io
import ipaddress
import math
import re
import shlex
import socket
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from http.client import HTTPResponse
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_auth_from_url, select_proxy, should_bypass_proxies
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, LocationParseError, NameResolutionError, NewConnectionError
from urllib3.util import parse_url
from urllib3.util.connection import allowed_gai_family

from tfimg.core import cancellation, process, retry
from tfimg.core.errors import FileError
from tfimg.core.text import escape_unprintable, quote_value, remove_credentials, truncate

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
UV_RESOLUTION = re.compile(r"UV_(?!CACHE_DIR|HTTP_TIMEOUT|SYSTEM_CERTS|NATIVE_TLS|INDEX_|KEYRING_PROVIDER)")
"""Beginnings of uv's variables that change what it resolves: all but those for connections."""

PROXY_SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")
PROXY_FORM = (
    "Write http://HOST:PORT, or http://NAME:PASSWORD@HOST:PORT with %40 for an @ in the password and %2F for a /."
)
NO_PIP = re.compile(r"No module named '?pip\b")

SYSTEM_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
NETWORK_SECRET = "TFIMG_NETWORK_SECRET"  # noqa: S105  (the name of a variable)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostNetwork:
    """Connection settings of the host.

    `variables` are for uv and pip; `left_out` lists settings that a container cannot use, and why.
    """

    ca: Path | None
    netrc: Path | None
    variables: Mapping[str, str]
    left_out: tuple[str, ...]

    def secrets(self) -> tuple[list[str], dict[str, str]]:
        """Return the values of `--secret`, and the environment that they refer to."""
        options, env = [], {}
        if self.ca:
            options.append(f"id=ca,src={self.ca}")
        if self.netrc:
            options.append(f"id=netrc,src={self.netrc}")
        if self.variables:
            # In the environment, because a kill would leave a file behind.
            options.append(f"id=network,env={NETWORK_SECRET}")
            lines = (f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items())
            env[NETWORK_SECRET] = "".join(lines)
        return options, env

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for uv on this host, without variables that change what it resolves."""
        kept = {name: value for name, value in environ.items() if not UV_RESOLUTION.match(name)}
        return {**kept, **self.variables, **({"SSL_CERT_FILE": str(self.ca)} if self.ca else {})}


def read_host_network(environ: Mapping[str, str], pip: Mapping[str, str]) -> HostNetwork:
    """Return the settings in the environment and in pip's configuration (`read_pip_settings`).

    Raises `FileError` for a proxy without a valid address, and for a setting that is not UTF-8.
    """
    ca = Path(environ.get("SSL_CERT_FILE") or pip.get("cert") or SYSTEM_BUNDLE)
    netrc = Path(environ.get("NETRC") or Path(environ.get("HOME", "/")) / ".netrc")
    proxies = {name: value for name in PROXY_VARIABLES if (value := environ.get(name.lower()) or environ.get(name))}
    if (proxy := pip.get("proxy")) and "HTTPS_PROXY" not in proxies:
        proxies.update(HTTP_PROXY=proxy, HTTPS_PROXY=proxy)
    for name, value in proxies.items():
        _check_proxy("pip's proxy" if value == proxy else name, value)
    index = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or pip.get("index-url")
    extra = (environ.get("UV_INDEX") or environ.get("UV_EXTRA_INDEX_URL") or pip.get("extra-index-url") or "").split()
    on_disk = {url for url in filter(None, (*extra, index)) if "://" not in url or url.startswith("file:")}
    reachable = [url for url in extra if url not in on_disk]
    left_out = [f"extra index {url}: it is a folder of this host" for url in extra if url in on_disk]
    variables: dict[str, str] = {}
    if index in on_disk:
        left_out.append(f"index {index}: it is a folder of this host")
    elif index:
        variables.update(UV_DEFAULT_INDEX=index, PIP_INDEX_URL=index)
    if reachable:
        # uv lets an index have a name, pip does not.
        unnamed = [re.sub(r"^[\w-]+=", "", url) for url in reachable]
        variables.update(UV_INDEX=" ".join(reachable), PIP_EXTRA_INDEX_URL=" ".join(unnamed))
    if hosts := environ.get("UV_INSECURE_HOST") or pip.get("trusted-host"):
        variables.update(UV_INSECURE_HOST=hosts, PIP_TRUSTED_HOST=hosts)
    for value in (*proxies.values(), *variables.values()):
        try:
            value.encode()
        except UnicodeEncodeError:  # Python keeps other bytes of a variable as surrogates
            raise FileError(
                f"The address of a proxy or index is not UTF-8: {quote_value(remove_credentials(value))}.",
                next_step="Correct the variable or pip's setting; other bytes are written as %XX.",
            ) from None

    return HostNetwork(
        ca=ca if ca.is_file() else None,
        netrc=netrc if netrc.is_file() else None,
        # Programs expect upper or lower case.
        variables=proxies | {name.lower(): value for name, value in proxies.items()} | variables,
        left_out=tuple(left_out),
    )


def _check_proxy(name: str, address: str) -> None:
    """Raise `FileError` for what is no address of a proxy, without showing a password in it."""
    try:
        parts = parse_url(address if "://" in address else f"http://{address}")
        reason = "" if parts.host and parts.scheme in PROXY_SCHEMES else "it has no host, or another scheme than http"
    except LocationParseError:
        reason = "its name or port is malformed"
    if reason and name != "NO_PROXY":
        shown = quote_value(re.sub(r"(?s)^(\w+://)?.*@", r"\1", address))  # also of a password with a /
        raise FileError(f"{name} is not the address of a proxy: {shown}, {reason}.", next_step=PROXY_FORM)


def read_pip_settings() -> dict[str, str]:
    """Return pip's effective settings by option; none if pip is not installed.

    Raises `FileError` for settings that pip cannot read: without them, another index would be used than is meant.
    """
    try:
        listed = process.run([*process.python_module_command("pip"), "--disable-pip-version-check", "config", "list"])
    except process.CommandFailed as error:
        reason = error.stderr or error.stdout or f"it ended with {error.returncode}"
        if NO_PIP.search(reason):
            return {}
        raise _unreadable(reason) from None
    return parse_pip_settings(listed)


def _unreadable(reason: str) -> FileError:
    line = escape_unprintable(remove_credentials(" ".join(reason.split())))  # it quotes lines with passwords
    return FileError(
        f"pip's configuration cannot be read: {truncate(line).rstrip('.')}.",
        next_step="`pip config debug` lists its files and variables: correct them.",
    )


PIP_SECTIONS = ("global", "install", ":env:")
"""Sections of pip's settings that installations read: a later one takes precedence."""


def parse_pip_settings(listed: str) -> dict[str, str]:
    """Parse the output of `pip config list`. Raises `FileError`."""
    found: dict[str, dict[str, str]] = {section: {} for section in PIP_SECTIONS}
    for line in listed.splitlines():
        key, equal, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if equal and section in found:
            try:
                # pip prints values as Python would: a list over several lines has \n in it.
                found[section][name] = str(ast.literal_eval(value))
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):  # the latter for deep nesting
                raise _unreadable(line) from None
            if "\0" in found[section][name]:
                raise _unreadable(f"{name} has a NUL character")
    return {name: value for settings in found.values() for name, value in settings.items()}


MAX_STEP_BYTES = 1 << 20
"""Bytes of one step: the head of a response with what may come before it, or one read. http.client reads at most
100 header lines of 64 kB; common servers send less than 16 kB."""

STEP_SECONDS = 300.0  # longest time of one step

READ_BYTES = 1 << 16

PIECE_BYTES, PIECE_SECONDS = 1 << 18, 0.05
"""The most of a body that is waited for at once, and about how long. A `read1` of TLS gives 16 kB: with it alone,
2.2 GB of wheels from eight connections took 11.8 s of a processor, and take 7.0 s."""

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
    """Yield a body as it arrives, a fast one in larger pieces.

    Raises `LimitExceeded` if it has a lower average rate after `seconds`. The caller's own time does not count.
    """
    spent, received = 0.0, 0
    while True:
        # A quarter of what has come: buffers on the way give a beginning at once.
        size = min(int(received / spent * PIECE_SECONDS), received // 4, PIECE_BYTES) if spent else 0
        read, size = (response.raw.read, size) if size > READ_BYTES else (response.raw.read1, READ_BYTES)
        start = time.monotonic()
        chunk = read(size, decode_content=decode)
        spent += time.monotonic() - start
        received += len(chunk)
        if spent > seconds + received / bytes_per_second:
            raise LimitExceeded(f"it has sent {received} bytes in {spent:.0f} seconds", seconds=seconds)
        if not chunk:
            return
        yield chunk


def retry_request(
    session: requests.Session, method: str, url: str, policy: retry.RetryPolicy, **options: Any
) -> requests.Response:
    """Return the streamed response to an idempotent request, which is sent again if it fails for the moment.

    Raises `HTTPError` for a transient status after the last attempt, and as requests.
    """

    def attempt() -> requests.Response:
        cancellation.raise_if_cancelled()
        response = session.request(method, url, stream=True, **options)
        if response.status_code in TRANSIENT_STATUSES:
            response.close()
            response.raise_for_status()
        return response

    return policy.retry_on((requests.ConnectionError, requests.Timeout, requests.HTTPError), attempt)


class Place(IntEnum):
    """Where an address is: the higher, the nearer to this machine."""

    PUBLIC = 0
    PRIVATE = 1
    LINK = 2
    MACHINE = 3


PLACES: Mapping[Place, str] = {
    Place.PUBLIC: "an address of the public network",
    Place.PRIVATE: "an address of a private network",
    Place.LINK: "an address that a network or cloud keeps for this machine",
    Place.MACHINE: "an address of this machine",
}

METADATA = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254")))
"""Where Azure, Alibaba, AWS and Google tell a machine its settings, beside the link-local 169.254.169.254."""

METADATA_NAMES = ("metadata", "instance-data")  # first labels of the names of such services

EMBEDDED = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""IPv6 addresses that end with one of IPv4: compatible, mapped, translated and NAT64 (RFC 4291, 2765, 6052)."""

UNICAST = ipaddress.IPv6Network("2000::/3")  # the only IPv6 addresses that are assigned for all networks (RFC 4291)


def find_place(address: str) -> Place:
    """Return where an IP address is; one that stands for another is where that is."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        is_embedding = not ip.is_loopback and any(ip in network for network in EMBEDDED)
        ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if is_embedding else ip.sixtofour or ip
    if ip.is_loopback or ip.is_unspecified:
        return Place.MACHINE
    if ip.is_link_local or ip in METADATA:
        return Place.LINK
    is_assigned = ip.version == 4 or ip in UNICAST
    return Place.PUBLIC if ip.is_global and is_assigned and not ip.is_multicast else Place.PRIVATE


def find_named_place(host: str) -> Place:
    """Return where a host is as far as its text says: an address in any spelling, or a name that no public one is.

    Where a proxy resolves names, nothing else is known: a name of the public DNS counts as public.
    """
    try:
        # The C library reads 127.1, 0x7f000001 and 2130706433 too (inet_aton(3)).
        return find_place(str(socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)[0][4][0]))
    except (OSError, UnicodeError):
        labels = host.lower().split(".")
    first, last = labels[0], labels[-1]
    if "localhost" in (first, last):
        return Place.MACHINE
    if first in METADATA_NAMES:
        return Place.LINK
    return Place.PRIVATE if len(labels) == 1 or last in ("internal", "local") else Place.PUBLIC


class ForbiddenAddress(OSError):
    """A server names one that is nearer to this machine than itself. The text names it and its address."""


@dataclass
class Confinement:
    """Lets a server name others of its own network and of wider ones, but none that is nearer to this machine.

    `place` is that of the first server; None before the first connection.
    """

    place: Place | None = None

    def admit(self, host: str, places: Mapping[str, Place]) -> list[str]:
        """Return the addresses of a host that may be contacted. Raises `ForbiddenAddress` without any."""
        admitted = [address for address, place in places.items() if self.place is None or place <= self.place]
        if not admitted:
            address, place = next(iter(places.items()))
            raise ForbiddenAddress(f"{host}{f' ({address})' * (address != host)}, {PLACES[place]}")
        return admitted

    def settle(self, place: Place) -> None:
        """Note the place of a server that answers, which counts if it is the first."""
        self.place = place if self.place is None else self.place


class _ConfinedConnection(HTTPConnection):
    """Connects to the addresses that were judged, so that DNS cannot answer the connection with another one."""

    confinement: Confinement | None = None

    def _new_conn(self) -> socket.socket:
        if self.confinement is None or self.proxy:
            return super()._new_conn()
        host = self.host
        try:
            found = socket.getaddrinfo(host, self.port, allowed_gai_family(), socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise NameResolutionError(host, self, socket.gaierror(str(error))) from None
        places = {str(one[4][0]): find_place(str(one[4][0])) for one in found}
        failure: NewConnectionError | ConnectTimeoutError
        try:
            for address in self.confinement.admit(host, places):
                self.host = address
                try:
                    connected = super()._new_conn()
                except (NewConnectionError, ConnectTimeoutError) as error:
                    failure = error
                else:
                    self.confinement.settle(places[address])
                    return connected
        finally:
            self.host = host  # TLS verifies this name
        raise failure


class _MeteredAdapter(HTTPAdapter):
    """Limits each step of a response, and where connections go."""

    def __init__(self, step_seconds: float, confinement: Confinement | None) -> None:
        self._confinement = confinement
        response = type("Response", (_MeteredResponse,), {"step_seconds": step_seconds})
        fields = {"response_class": response, "confinement": confinement}
        self._pools = {}
        for scheme, pool in (("http", HTTPConnectionPool), ("https", HTTPSConnectionPool)):
            metered = type("Connection", (_ConfinedConnection, pool.ConnectionCls), fields)
            self._pools[scheme] = type("Pool", (pool,), {"ConnectionCls": metered})
        super().__init__()

    def send(self, request: Any, *arguments: Any, **options: Any) -> requests.Response:
        """Send a request. Raises `ForbiddenAddress` for one through a proxy, of which the name alone can be judged."""
        if self._confinement and select_proxy(request.url, options.get("proxies")):
            host = str(urlsplit(request.url).hostname)
            place = find_named_place(host)
            self._confinement.admit(host, {host: place})
            self._confinement.settle(place)
        return super().send(request, *arguments, **options)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_headers(self, proxy: str) -> dict[str, str]:
        """Return the header with a proxy's login, in UTF-8 (RFC 7617, section 2.1); requests has Latin-1 alone."""
        name, password = get_auth_from_url(proxy)
        login = b64encode(f"{name}:{password}".encode()).decode()
        return {"Proxy-Authorization": f"Basic {login}"} if name else {}

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = self._pools
        return manager


class DirectSession(requests.Session):
    """A session that follows no redirect, keeps no cookie and reads no environment.

    Even with `allow_redirects=False`, requests reads the whole body of a redirect and parses its Location. Without a
    `confinement`, it connects to any address.
    """

    def __init__(self, *, step_seconds: float = STEP_SECONDS, confinement: Confinement | None = None) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        for scheme in ("http://", "https://"):
            self.mount(scheme, _MeteredAdapter(step_seconds, confinement))

    def merge_environment_settings(self, url: Any, *arguments: Any, **options: Any) -> Any:
        """Return the settings of a request; `no_proxy` applies to proxies of the session too."""
        settings = super().merge_environment_settings(url, *arguments, **options)
        if settings["proxies"] and should_bypass_proxies(url, settings["proxies"].get("no_proxy")):
            settings["proxies"] = {}
        return settings

    def get_redirect_target(self, resp: requests.Response) -> None:  # noqa: ARG002  (the name that requests gives it)
        """Return None: no response is a redirect to requests."""
        return


class _MeteredResponse(HTTPResponse):
    """A response whose head, and each `read` and `read1`, take at most `MAX_STEP_BYTES` and `step_seconds`.

    Readers do not count interim responses, headers, sizes of chunks and trailers.
    """

    step_seconds = STEP_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._meter = _Meter(self.fp.detach(), self.step_seconds)
        self.fp = io.BufferedReader(self._meter)

    def begin(self) -> None:
        with self._meter.step():
            super().begin()

    def read(self, amt: int | None = None) -> bytes:
        if self.chunked and amt is not None:  # http.client reads on to as many bytes, and trusts the sizes of chunks
            return self.read1(amt)
        with self._meter.step():
            return super().read(amt)

    def read1(self, n: int = -1) -> bytes:
        with self._meter.step():
            return super().read1(n)


class _Meter(io.RawIOBase):
    """Counts and times the bytes of a socket during a step. Raises `LimitExceeded`."""

    def __init__(self, raw: io.RawIOBase, step_seconds: float) -> None:
        self._raw, self._seconds = raw, step_seconds
        self._left = self._deadline = math.inf

    @contextmanager
    def step(self) -> Iterator[None]:
        self._left, self._deadline = MAX_STEP_BYTES, time.monotonic() + self._seconds
        with cancellation.on_cancel(self._disconnect):
            yield
        self._left = self._deadline = math.inf

    def _disconnect(self) -> None:
        """End a wait of another thread: for it, the server ends the connection."""
        with suppress(OSError):
            socket.socket.shutdown(self._raw._sock, socket.SHUT_RDWR)  # type: ignore[attr-defined]  # of a SocketIO

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
