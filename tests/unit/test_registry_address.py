"""Addresses that a registry names: which of them are followed, and where credentials may go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from support.messages import exactly
from tfimg.registry.http import (
    InvalidAddress,
    Origin,
    check_realm,
    check_redirect,
    is_loopback,
    parse_origin,
    resolve_address,
)


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("https://r.example/v2/", ("https", "r.example", 443)),
        ("HTTPS://R.Example:443", ("https", "r.example", 443)),
        ("http://r.example", ("http", "r.example", 80)),
        ("https://r.example:5000/a?b=c", ("https", "r.example", 5000)),
        ("https://my_bucket.store.example/x", ("https", "my_bucket.store.example", 443)),
        ("https://[::1]:5000/x", ("https", "[::1]", 5000)),
        ("https://xn--bcher-kva.example/", ("https", "xn--bcher-kva.example", 443)),
    ],
)
def test_the_origin_is_scheme_host_and_port(address: str, origin: tuple[str, str, int]) -> None:
    found = parse_origin(address)
    assert (found.scheme, found.host, found.port) == origin


UNPRINTABLE = "it has characters that no address has"
NO_HTTP = "it is neither http nor https"
NO_HOST = "it has no plain host name and port"


@pytest.mark.parametrize(
    ("reason", "addresses"),
    [
        (NO_HTTP, ("r.example", "//r.example", "/x", "ftp://r.example", "file:///etc/passwd")),
        (NO_HTTP, ("javascript:alert(1)", "data:,x")),
        (NO_HOST, ("https:", "https://", "https:///x", "https:r.example", "https://[::1%25eth0]/")),
        (NO_HOST, ("https://a@r.example/", "https://a:b@r.example/", "https://@r.example/", "https://r.example@/")),
        (NO_HOST, ("https://r.example./", "https://.r.example/", "https://a..b/", "https://-a/", "https://a-/")),
        (NO_HOST, ("https://r.example:/", "https://r.example:0/", "https://r.example:65536/")),
        (NO_HOST, ("https://r.example:1:2/", "https://r.example:+80/", f"https://r.example:{'9' * 5000}/")),
        (NO_HOST, ("https://r%2eexample/",)),
        (UNPRINTABLE, ("", "https://r.example\\@evil.example/", "https:\\\\r.example", "https://r.example\\/x")),
        (UNPRINTABLE, ("https://r.example:\uff180/", "https://\uff52.example/", "https://r.example\u3002/")),
        (UNPRINTABLE, ("https://b\u00fccher.example/", "https://r.example/\r\nX: y", "https://r.example/\t")),
        (UNPRINTABLE, ("https://r.ex\nample/", "https://r.example/ x", "https://r.example/#x")),
        (UNPRINTABLE, ("https://r.example/\x00", "https://r.example/\x7f", "https://r.example/\ud800")),
        ("invalid ipv6 url", ("https://[::1", "https://]")),
        ("'x' does not appear to be an ipv4 or ipv6 address", ("https://[x]/",)),
    ],
)
def test_what_parsers_could_disagree_about_is_refused(reason: str, addresses: Sequence[str]) -> None:
    for address in addresses:
        with pytest.raises(InvalidAddress, match=exactly(reason)):
            parse_origin(address)


@pytest.mark.parametrize(
    ("address", "whole"),
    [
        ("/v2/x", "https://r.example:5000/v2/x"),
        ("?n=2", "https://r.example:5000/v2/list?n=2"),
        ("//other.example/x", "https://other.example/x"),
        ("https://other.example/x", "https://other.example/x"),
    ],
)
def test_an_address_may_be_relative(address: str, whole: str) -> None:
    assert resolve_address("https://r.example:5000/v2/list", address) == whole


@pytest.mark.parametrize(
    ("reason", "addresses"),
    [
        ("it has no host name", ("https:///x", "https:x")),
        (UNPRINTABLE, ("htt\nps://evil.example/", "", "x y")),
        (NO_HOST, ("//a@b/",)),
        ("invalid ipv6 url", ("//[::1",)),
    ],
)
def test_a_relative_address_is_as_plain(reason: str, addresses: Sequence[str]) -> None:
    for address in addresses:
        with pytest.raises(InvalidAddress, match=exactly(reason)):
            resolve_address("https://r.example/v2/", address)


NO_TLS = "it points to a server without TLS"
THIS_MACHINE = "it points to this machine"


def _objection(check: Callable[[Origin, Origin], None], first: str, second: str) -> str | None:
    try:
        check(parse_origin(first), parse_origin(second))
    except InvalidAddress as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("registry", "realm", "objection"),
    [
        ("https://r.example", "https://r.example/token", None),
        ("https://r.example", "https://auth.example/token", None),
        ("https://r.example", "http://auth.example/token", NO_TLS),
        ("https://r.example", "http://r.example/token", NO_TLS),
        ("https://r.example", "https://127.0.0.1/token", THIS_MACHINE),
        ("https://r.example", "https://localhost/token", THIS_MACHINE),
        ("http://r.example:5000", "http://r.example:5000/token", None),
        ("http://r.example:5000", "http://r.example:5001/token", None),
        ("http://r.example:5000", "https://auth.example/token", None),
        ("http://r.example:5000", "http://auth.example/token", NO_TLS),
        ("http://r.example:5000", "http://127.0.0.1/token", THIS_MACHINE),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5001/token", None),
        ("http://127.0.0.1:5000", "http://localhost:5001/token", None),
        ("https://127.0.0.1:5000", "http://[::1]:5001/token", None),
        ("http://127.0.0.1:5000", "http://auth.example/token", NO_TLS),
        ("http://127.0.0.1:5000", "https://auth.example/token", None),
    ],
)
def test_a_password_goes_to_a_token_server_with_tls_or_to_the_same_host(
    registry: str, realm: str, objection: str | None
) -> None:
    assert _objection(check_realm, registry, realm) == objection


@pytest.mark.parametrize(
    ("registry", "following", "objection"),
    [
        ("https://r.example", "https://store.example", None),
        ("https://r.example", "http://store.example", NO_TLS),
        ("https://r.example", "http://r.example", NO_TLS),
        ("http://r.example", "http://store.example", None),
        ("http://r.example", "https://store.example", None),
        ("http://r.example", "http://localhost", THIS_MACHINE),
        ("https://r.example", "https://127.9.9.9", THIS_MACHINE),
        ("http://127.0.0.1:5000", "http://127.0.0.1:9000", None),
    ],
)
def test_a_client_is_sent_on_to_no_server_without_tls_and_to_none_on_this_machine(
    registry: str, following: str, objection: str | None
) -> None:
    assert _objection(check_redirect, registry, following) == objection


def test_loopback_is_what_docker_takes_for_it() -> None:
    hosts = ("localhost:5000", "127.0.0.1", "127.1.2.3:1", "[::1]:5000")
    assert [host for host in hosts if not is_loopback(host)] == []
    assert not is_loopback("r.example:5000")
    assert not is_loopback("localhost.r.example")
    assert is_loopback("[::1]")
