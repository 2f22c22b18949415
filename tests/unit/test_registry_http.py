"""HTTP to a registry: which addresses are followed, where credentials go, and each error with its next step."""

import json
import ssl
from collections.abc import Callable, Mapping, Sequence

import pytest
from requests import exceptions
from urllib3.exceptions import IncompleteRead, ProtocolError

from support.cases import cases
from support.messages import exactly
from tfimg.core.errors import NetworkError, TfimgError
from tfimg.core.retry import TransientError
from tfimg.index.network import LimitExceeded
from tfimg.registry.http import (
    InvalidAddress,
    Origin,
    Response,
    address_error,
    check_realm,
    is_loopback,
    map_response,
    map_transport_error,
    parse_origin,
    parse_size,
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
    base = "https://r.example:5000/v2/list"
    assert resolve_address(parse_origin(base), base, address) == whole


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
    base = "https://r.example/v2/"
    for address in addresses:
        with pytest.raises(InvalidAddress, match=exactly(reason)):
            resolve_address(parse_origin(base), base, address)


NO_TLS = "it points to a server without TLS"


def _objection(check: Callable[[Origin, str], object], registry: str, address: str) -> str | None:
    try:
        check(parse_origin(registry), address)
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
        ("http://r.example:5000", "http://r.example:5000/token", None),
        ("http://r.example:5000", "http://r.example:5001/token", None),
        ("http://r.example:5000", "https://auth.example/token", None),
        ("http://r.example:5000", "http://auth.example/token", NO_TLS),
        ("http://r.example:5000", "http://127.0.0.1/token", NO_TLS),
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
    assert _objection(lambda origin, address: check_realm(origin, parse_origin(address)), registry, realm) == objection


@pytest.mark.parametrize(
    ("registry", "following", "objection"),
    [
        ("https://r.example", "https://store.example", None),
        ("https://r.example", "http://store.example", NO_TLS),
        ("https://r.example", "http://r.example", NO_TLS),
        ("http://r.example", "http://store.example", None),
        ("http://r.example", "https://store.example", None),
        ("http://127.0.0.1:5000", "http://127.0.0.1:9000", None),
    ],
)
def test_a_client_with_tls_is_sent_on_to_no_server_without_tls(
    registry: str, following: str, objection: str | None
) -> None:
    assert _objection(lambda origin, there: resolve_address(origin, registry, there), registry, following) == objection


def test_loopback_is_what_docker_takes_for_it() -> None:
    hosts = ("localhost:5000", "127.0.0.1", "127.1.2.3:1", "[::1]:5000")
    assert [host for host in hosts if not is_loopback(host)] == []
    assert not is_loopback("r.example:5000")
    assert not is_loopback("localhost.r.example")
    assert is_loopback("[::1]")


HOST = "r.example:5000"
REPEAT = "Run it again: completed uploads are not repeated."
UNREACHABLE = "Check its name and port, and whether this network needs a proxy (HTTPS_PROXY, NO_PROXY)."
TOO_SLOW = "did not answer within 60 s. Run it again later: completed uploads are not repeated."
UNTRUSTED = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)"


@cases("registry_http", "a_response_becomes_an_error_with_a_next_step")
def test_a_response_becomes_an_error_with_a_next_step(
    status: int, headers: Mapping[str, str], body: str, is_write: bool, has_credentials: bool, is_transient: bool,
    error: type[TfimgError], message: str,
) -> None:  # fmt: skip
    response = Response(status=status, headers=headers, content=body.encode(), url="")
    mapped = map_response(response, HOST, f"{HOST}/team/tf", is_write=is_write, has_credentials=has_credentials)
    assert isinstance(mapped, TransientError) is is_transient
    mapped = mapped.error if isinstance(mapped, TransientError) else mapped
    assert (type(mapped), str(mapped)) == (error, message)


def map_status(status: int, body: bytes = b"") -> Exception:
    response = Response(status=status, headers={}, content=body, url="")
    return map_response(response, HOST, f"{HOST}/team/tf", is_write=True, has_credentials=True)


def test_only_statuses_that_may_pass_are_transient() -> None:
    transient = {status for status in range(400, 600) if isinstance(map_status(status), TransientError)}
    assert transient == {408, 425, 429, *range(500, 600)} - {501, 505, 507, 511}


@pytest.mark.parametrize(
    "says",
    [
        *("No space left on device", "insufficient storage", "over quota", "Storage limit"),
        *("disk full", "disk is full", '"Err": 28', "Err:28"),
    ],
)
def test_a_full_registry_is_known_by_its_words(says: str) -> None:
    assert str(map_status(500, says.encode())).startswith(f"The registry {HOST} is full: ")
    assert str(map_status(500, b'{"Err": 280}')).startswith(f"The registry {HOST} failed: ")


def test_only_refused_writes_and_failures_can_be_of_a_full_registry() -> None:
    full = f"The registry {HOST} is full: "
    found = {status for status in range(400, 600) if str(map_status(status, b"quota exceeded")).startswith(full)}
    assert found == {403, 412, 413, *range(500, 600)}


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (
            exceptions.SSLError(UNTRUSTED),
            f"The TLS certificate of {HOST} is not trusted: self-signed certificate. For a private certificate "
            "authority, name its file with SSL_CERT_FILE, or put it into Docker's folder: "
            f"/etc/docker/certs.d/{HOST}/ca.crt.",
        ),
        (
            exceptions.SSLError("certificate verify failed: certificate has expired (_ssl.c:1006)"),
            f"The TLS certificate of {HOST} is not trusted: certificate has expired. Check this machine's clock; if it "
            "is right, the server's owner has to renew the certificate.",
        ),
        (
            exceptions.SSLError(
                "certificate verify failed: Hostname mismatch, certificate is not valid for 'r.example'. (_ssl.c:1006)"
            ),
            f"The TLS certificate of {HOST} is not trusted: hostname mismatch, certificate is not valid for "
            "'r.example'. Use a name that the certificate has, or ask the server's owner for a certificate "
            "with this name.",
        ),
        (
            exceptions.SSLError(ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")),
            f"The TLS handshake with {HOST} failed: wrong version number. Use --plain-http for a registry without TLS; "
            "otherwise check the name and the port.",
        ),
    ],
)
def test_a_failure_of_tls_is_final(failure: Exception, message: str) -> None:
    mapped = map_transport_error(failure, HOST, 60)
    assert (type(mapped), str(mapped)) == (NetworkError, message)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (
            exceptions.ProxyError("Cannot connect to proxy."),
            f"The proxy for the registry {HOST} does not work: cannot connect to proxy. Check HTTPS_PROXY, HTTP_PROXY "
            "and NO_PROXY, and proxy in pip's configuration.",
        ),
        (exceptions.ReadTimeout("x"), f"The registry {HOST} is too slow: it {TOO_SLOW}"),
        (OSError("The read operation timed out"), f"The registry {HOST} is too slow: it {TOO_SLOW}"),
        (
            exceptions.ConnectionError(OSError("[Errno 111] Connection refused")),
            f"The registry {HOST} cannot be reached: connection refused. {UNREACHABLE}",
        ),
        (OSError(), f"The registry {HOST} cannot be reached. {UNREACHABLE}"),
        (
            exceptions.ConnectionError(ProtocolError("Connection aborted.", OSError(104, "Connection reset by peer"))),
            f"The connection to the registry {HOST} was cut: connection reset by peer. {REPEAT}",
        ),
        (exceptions.SSLError("EOF occurred"), f"The connection to the registry {HOST} was cut: EOF occurred. {REPEAT}"),
        (
            ProtocolError("x", IncompleteRead(3, 5)),
            f"The connection to the registry {HOST} was cut: 3 bytes arrived, 5 are missing. {REPEAT}",
        ),
        (exceptions.ChunkedEncodingError("odd"), f"The connection to the registry {HOST} was cut: odd. {REPEAT}"),
        (BrokenPipeError(32, "Broken pipe"), f"The connection to the registry {HOST} was cut: broken pipe. {REPEAT}"),
    ],
)
def test_any_other_failure_of_the_transport_is_transient(failure: Exception, message: str) -> None:
    mapped = map_transport_error(failure, HOST, 60)
    assert isinstance(mapped, TransientError)
    assert (type(mapped.error), str(mapped.error)) == (NetworkError, message)


def test_a_limit_of_the_transport_keeps_its_own_message() -> None:
    slow = map_transport_error(OSError(LimitExceeded("x", seconds=7)), HOST, 60)
    assert str(slow) == f"The registry {HOST} is too slow: it {TOO_SLOW.replace('60', '7')}"
    large = map_transport_error(OSError(LimitExceeded("99 headers")), HOST, 60)
    assert str(large) == f"The registry {HOST} sent 99 headers. Check that it is a registry."


def test_an_address_that_is_not_followed_is_quoted_in_part() -> None:
    error = address_error(HOST, "the next page", "x" * 5000, InvalidAddress("it is bad"))
    assert str(error) == (
        f"The registry {HOST} names '{'x' * 300}…' as the next page: it is bad. Nothing was sent there. Check that it "
        "is the right registry, and ask its owner."
    )


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("9" * 15, 10**15 - 1),
        ("9" * 16, 0),
        ("", 0),
        (None, 0),
        ("-1", 0),
        ("1.5", 0),
        ("\u0663", 0),
    ],
)
def test_an_implausible_size_counts_as_none(header: str | None, size: int) -> None:
    assert parse_size(header) == size


def answered(content: bytes, kind: str = "application/json") -> Response:
    return Response(status=400, headers={"Content-Type": kind}, content=content, url="")


def test_errors_of_a_registry_are_read_up_to_a_thousand() -> None:
    one = {"code": "DENIED", "message": None}
    assert answered(json.dumps({"errors": [one] * 1000}).encode()).errors == (("DENIED", ""),) * 1000
    assert answered(json.dumps({"errors": [one] * 1001}).encode()).errors == ()
    assert answered(b'{"errors": [{"code": 7, "message": 8}, {}]}').errors == (("7", "8"), ("", ""))


@pytest.mark.parametrize(
    ("content", "page"),
    [
        (b"<html><title>Front</title>", "Front"),
        (b"<HTML><TITLE a=b>\n Front\tdoor </TITLE>", "Front door"),
        (b"<!doctype html><title>%b</title>" % (b"x" * 400), "x" * 400),
        (b"<!doctype html><title>%b</title>" % (b"x" * 401), ""),
        (b"<!doctype html><title%b>Front</title>" % (b" " * 100), "Front"),
        (b"<!doctype html><title%b>Front</title>" % (b" " * 101), ""),
        (b"<!doctype html>" + b"<title>Front</title>".rjust((16 << 10) - 15), "Front"),
        (b"<!doctype html>" + b"<title>Front</title>".rjust((16 << 10) - 14), ""),
        (b"<htmlx><title>Front</title>", None),
        (b"{}<html>", None),
    ],
)
def test_the_title_of_a_page_is_near_its_beginning(content: bytes, page: str | None) -> None:
    assert answered(content).page == page
