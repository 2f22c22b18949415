"""Errors of a registry: each response and each failure of the transport has one message with a next step."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import pytest
from requests import exceptions
from urllib3.exceptions import IncompleteRead, ProtocolError

from support.cases import cases
from tfimg.core.errors import NetworkError, TfimgError
from tfimg.core.retry import TransientError
from tfimg.index.network import LimitExceeded
from tfimg.registry.http import InvalidAddress, Response, address_error, map_response, map_transport_error

HOST = "r.example:5000"
REPEAT = "Run it again: completed uploads are not repeated."
UNREACHABLE = "Check its name and port, the network and the proxy (HTTPS_PROXY, NO_PROXY)."
TOO_SLOW = "did not answer within 60 s. Run it again later: completed uploads are not repeated."
UNTRUSTED = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)"


@cases("registry_errors", "a_response_becomes_an_error_with_a_next_step")
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


def test_only_refused_writes_and_failures_can_be_of_a_full_registry() -> None:
    full = f"The registry {HOST} is full: "
    found = {status for status in range(400, 600) if str(map_status(status, b"quota exceeded")).startswith(full)}
    assert found == {403, 412, 413, *range(500, 600)}


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (
            exceptions.SSLError(UNTRUSTED),
            f"The certificate of {HOST} is not trusted: self-signed certificate. For a private certificate authority, "
            "name its file with SSL_CERT_FILE, or put it into Docker's folder: "
            f"/etc/docker/certs.d/{HOST}/ca.crt.",
        ),
        (
            exceptions.SSLError("certificate verify failed: certificate has expired (_ssl.c:1006)"),
            f"The certificate of {HOST} is not trusted: certificate has expired. Check this machine's clock; if it is "
            "right, the registry's owner has to renew the certificate.",
        ),
        (
            exceptions.SSLError(
                "certificate verify failed: Hostname mismatch, certificate is not valid for 'r.example'. (_ssl.c:1006)"
            ),
            f"The certificate of {HOST} is not trusted: Hostname mismatch, certificate is not valid for 'r.example'. "
            "Use a name that the certificate has, or ask the registry's owner for a certificate with this name.",
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
            f"The proxy for {HOST} does not work: cannot connect to proxy. Check HTTPS_PROXY and NO_PROXY.",
        ),
        (exceptions.ReadTimeout("x"), f"The registry {HOST} is too slow: it {TOO_SLOW}"),
        (OSError("The read operation timed out"), f"The registry {HOST} is too slow: it {TOO_SLOW}"),
        (
            exceptions.ConnectionError(OSError("[Errno 111] Connection refused")),
            f"The registry {HOST} cannot be reached: connection refused. {UNREACHABLE}",
        ),
        (OSError(), f"The registry {HOST} cannot be reached: oserror. {UNREACHABLE}"),
        (
            exceptions.ConnectionError(ProtocolError("Connection aborted.", OSError(104, "Connection reset by peer"))),
            f"The connection to the registry {HOST} was cut: connection reset by peer. {REPEAT}",
        ),
        (
            exceptions.SSLError("EOF occurred"),
            f"The connection to the registry {HOST} was cut: eof occurred. {REPEAT}",
        ),
        (
            ProtocolError("x", IncompleteRead(3, 5)),
            f"The connection to the registry {HOST} was cut: 3 bytes arrived, 5 are missing. {REPEAT}",
        ),
        (
            exceptions.ChunkedEncodingError("odd"),
            f"The connection to the registry {HOST} was cut: odd. {REPEAT}",
        ),
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
