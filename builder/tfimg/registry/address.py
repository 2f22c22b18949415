"""Addresses that a registry names: Location, Link and realm. They are followed only if plain, and compared by origin.

Parsers of URLs disagree about userinfo, backslashes, percent signs and letters beyond ASCII in a host. Such an address
is refused, so that the compared origin is the contacted one.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

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


def resolve_address(base: str, address: str) -> str:
    """Return an address that may be relative to `base` as a complete one. Raises `InvalidAddress`."""
    parts = _split(address)
    if parts.scheme and not parts.netloc:
        raise InvalidAddress("it has no host name")
    complete = urljoin(base, address)
    parse_origin(complete)
    return complete


def _split(address: str) -> SplitResult:
    if not PRINTABLE.fullmatch(address):
        raise InvalidAddress("it has characters that no address has")
    try:
        return urlsplit(address)
    except ValueError as error:
        raise InvalidAddress(str(error).lower()) from None


def check_redirect(origin: Origin, target: Origin) -> None:
    """Raise `InvalidAddress` unless a registry may send a client on to another origin."""
    if origin.scheme == "https" and target.scheme != "https":
        raise InvalidAddress("it points to a server without TLS")
    if is_loopback(target.host) and not is_loopback(origin.host):
        raise InvalidAddress("it points to this machine")


def check_realm(registry: Origin, realm: Origin) -> None:
    """Raise `InvalidAddress` unless a registry may name a token server at this origin, which receives credentials.

    With TLS it may be any host; without TLS only the registry's host without TLS, or this machine from this machine.
    """
    is_local = is_loopback(registry.host) and is_loopback(realm.host)
    if is_loopback(realm.host) and not is_local:
        raise InvalidAddress("it points to this machine")
    if realm.scheme == "https" or is_local:
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
