"""Addresses that a registry names: which of them are followed, and where credentials may go."""

from __future__ import annotations

import pytest

from tfimg.registry.address import (
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


@pytest.mark.parametrize(
    "address",
    [
        *("", "r.example", "//r.example", "/x", "https:", "https://", "https:///x", "https:r.example"),
        *("ftp://r.example", "file:///etc/passwd", "javascript:alert(1)", "data:,x"),
        *("https://[::1", "https://]", "https://[x]/", "https://[::1%25eth0]/"),
        *("https://a@r.example/", "https://a:b@r.example/", "https://@r.example/", "https://r.example@/"),
        *("https://r.example\\@evil.example/", "https:\\\\r.example", "https://r.example\\/x"),
        *("https://r.example./", "https://.r.example/", "https://a..b/", "https://-a/", "https://a-/"),
        *(
            "https://r.example:/",
            "https://r.example:0/",
            "https://r.example:65536/",
            "https://r.example:1:2/",
        ),
        *("https://r.example:+80/", "https://r.example:\uff180/", f"https://r.example:{'9' * 5000}/"),
        *(
            "https://\uff52.example/",
            "https://r%2eexample/",
            "https://r.example\u3002/",
            "https://b\u00fccher.example/",
        ),
        *(
            "https://r.example/\r\nX: y",
            "https://r.example/\t",
            "https://r.ex\nample/",
            "https://r.example/ x",
        ),
        *(
            "https://r.example/#x",
            "https://r.example/\x00",
            "https://r.example/\x7f",
            "https://r.example/\ud800",
        ),
    ],
)
def test_what_parsers_could_disagree_about_is_refused(address: str) -> None:
    with pytest.raises(InvalidAddress):
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


@pytest.mark.parametrize("address", ["https:///x", "https:x", "htt\nps://evil.example/", "//[::1", "//a@b/", "", "x y"])
def test_a_relative_address_is_as_plain(address: str) -> None:
    with pytest.raises(InvalidAddress):
        resolve_address("https://r.example/v2/", address)


def _may(check: object, first: str, second: str) -> bool:
    try:
        check(parse_origin(first), parse_origin(second))  # type: ignore[operator]
    except InvalidAddress:
        return False
    return True


@pytest.mark.parametrize(
    ("registry", "realm", "allowed"),
    [
        ("https://r.example", "https://r.example/token", True),
        ("https://r.example", "https://auth.example/token", True),
        ("https://r.example", "http://auth.example/token", False),
        ("https://r.example", "http://r.example/token", False),
        ("https://r.example", "https://127.0.0.1/token", False),
        ("https://r.example", "https://localhost/token", False),
        ("http://r.example:5000", "http://r.example:5000/token", True),
        ("http://r.example:5000", "http://r.example:5001/token", True),
        ("http://r.example:5000", "https://auth.example/token", True),
        ("http://r.example:5000", "http://auth.example/token", False),
        ("http://r.example:5000", "http://127.0.0.1/token", False),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5001/token", True),
        ("http://127.0.0.1:5000", "http://localhost:5001/token", True),
        ("https://127.0.0.1:5000", "http://[::1]:5001/token", True),
        ("http://127.0.0.1:5000", "http://auth.example/token", False),
        ("http://127.0.0.1:5000", "https://auth.example/token", True),
    ],
)
def test_a_password_goes_to_a_token_server_with_tls_or_to_the_same_host(
    registry: str, realm: str, allowed: bool
) -> None:
    assert _may(check_realm, registry, realm) is allowed


@pytest.mark.parametrize(
    ("registry", "following", "allowed"),
    [
        ("https://r.example", "https://store.example", True),
        ("https://r.example", "http://store.example", False),
        ("https://r.example", "http://r.example", False),
        ("http://r.example", "http://store.example", True),
        ("http://r.example", "https://store.example", True),
        ("http://r.example", "http://localhost", False),
        ("https://r.example", "https://127.9.9.9", False),
        ("http://127.0.0.1:5000", "http://127.0.0.1:9000", True),
    ],
)
def test_a_client_is_sent_on_to_no_server_without_tls_and_to_none_on_this_machine(
    registry: str, following: str, allowed: bool
) -> None:
    assert _may(check_redirect, registry, following) is allowed


def test_loopback_is_what_docker_takes_for_it() -> None:
    hosts = ("localhost:5000", "127.0.0.1", "127.1.2.3:1", "[::1]:5000")
    assert [host for host in hosts if not is_loopback(host)] == []
    assert not is_loopback("r.example:5000")
    assert not is_loopback("localhost.r.example")
    assert Origin(scheme="http", host="[::1]", port=1).is_loopback
