"""Map responses of a registry and failures of the transport to errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import requests
from urllib3.exceptions import HTTPError, IncompleteRead, ProtocolError

from tfimg.core.errors import NetworkError, NotInRegistry, RegistryError, TfimgError
from tfimg.index.transport import LimitExceeded
from tfimg.registry.responses import Response, limit_error, parse_size, timeout_error, truncate
from tfimg.registry.retry import RetryPolicy, TransientError

TRANSIENT_STATUSES = frozenset({408, 425, 429, *range(500, 600)}) - {501, 505, 507, 511}
"""Statuses after which a retry may succeed (RFC 9110, 6585, 8470)."""

BLOB_UNKNOWN = "MANIFEST_BLOB_UNKNOWN"
"""Transient for a manifest whose blobs were all sent: while another client sends one of them, distribution's link to
that blob is empty for a moment (`registry/storage/linkedblobstore.go`)."""

FULL = re.compile(
    r"no space left|insufficient storage|quota|storage limit|\"?Err\"?: ?28\b|disk (?:is )?full", re.IGNORECASE
)
"""Messages of full registries: distribution prints the number of ENOSPC, Harbor mentions a quota."""

UNTRUSTED = re.compile(r"certificate verify failed: (.*?)(?: \(_ssl|$)")
CUT = re.compile(r"RemoteDisconnected|Connection aborted|Connection reset|Broken pipe|EOF")

TRANSPORT_ERRORS = (requests.RequestException, HTTPError, OSError)
"""Exceptions of requests and its transport."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestContext:
    """What was requested, for messages. `has_credentials`: the request had an account."""

    host: str
    repository: str
    is_write: bool
    has_credentials: bool


def map_response(response: Response, context: RequestContext, policy: RetryPolicy) -> TransientError | TfimgError:
    """Return the error for a response with an unexpected status."""
    host, reply = context.host, join_lines(f"{response.status} {response.message}")
    if response.status == requests.codes.insufficient_storage or _is_full(response):
        return RegistryError(
            f"The registry {host} is full: {reply}.",
            next_step="Ask its owner for space or a larger quota, then run it again: uploads are not repeated.",
        )
    if response.status in TRANSIENT_STATUSES:
        after = policy.parse_retry_after(response.headers.get("Retry-After"))
        return TransientError(_server_error(response, host, reply), after=after)
    if response.status == 400 and BLOB_UNKNOWN in (code for code, _ in response.errors):
        return TransientError(_refusal(response.status, context, reply))
    if response.status in (401, 403):
        return _access_error(response, context, reply)
    if response.status == 407:
        return NetworkError(
            f"The proxy for {host} requires authentication: {reply}.",
            next_step="Put a name and password into HTTPS_PROXY: http://NAME:PASSWORD@PROXY:PORT.",
        )
    return _refusal(response.status, context, reply)


def join_lines(text: str) -> str:
    """Return text on one line, so that a registry cannot write lines that look like tfimg's."""
    return " ".join(text.split())


def _is_full(response: Response) -> bool:
    has_failed = response.status >= 500 or response.status in (403, 412, 413)
    return has_failed and FULL.search(response.content.decode(errors="replace")) is not None


def _server_error(response: Response, host: str, reply: str) -> NetworkError:
    if response.status == 429:
        seconds = parse_size(response.headers.get("Retry-After"))
        wait = f" and to wait {seconds} s" if seconds else ""
        return NetworkError(
            f"The registry {host} asks for fewer requests{wait}: {reply}.",
            next_step="Run it again later, or log in: registries allow accounts more requests.",
        )
    return NetworkError(
        f"The registry {host} failed: {reply}.", next_step="Run it again later; the registry's log has the cause."
    )


def _access_error(response: Response, context: RequestContext, reply: str) -> RegistryError:
    login = f"Log in with `docker login {context.host}`"
    if response.status == 401 and not context.has_credentials:
        return RegistryError(
            f"The registry {context.host} requires a login for {context.repository}: {reply}.",
            next_step=f"{login}, and run it again.",
        )
    if response.status == 401 and "insufficient_scope" not in response.headers.get("WWW-Authenticate", ""):
        return credentials_error(context.host, reply)
    action = "write to" if context.is_write else "read"
    return RegistryError(
        f"The registry {context.host} denies permission to {action} {context.repository}: {reply}.",
        next_step=f"{login} as a user with that permission, or check the repository's name.",
    )


def credentials_error(host: str, reply: str) -> RegistryError:
    """Return the error for an unknown user, a wrong password or an expired token."""
    return RegistryError(
        f"The registry {host} rejected the credentials: {join_lines(reply)}.",
        next_step=f"Log in again with `docker login {host}`; a token may have expired.",
    )


def _refusal(status: int, context: RequestContext, reply: str) -> TfimgError:
    host, repository = context.host, context.repository
    if context.is_write and status == 405:
        return RegistryError(
            f"The registry {host} is read-only: {reply}.",
            next_step="Wait until its owner allows writing; or check the name: other web servers answer the same.",
        )
    if status == 404 and not context.is_write:
        return NotInRegistry(
            f"The registry {host} does not have the requested part of {repository}: {reply}.",
            next_step="Check the name, and that it was not deleted.",
        )
    if status == 404:
        return RegistryError(
            f"The registry {host} has no repository {repository}: {reply}.",
            next_step="Check the name; some registries require that a repository is created first.",
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


def map_transport_error(error: Exception, host: str, seconds: float) -> TransientError | TfimgError:
    """Return the error for a missing or incomplete response. `seconds` is the timeout."""
    if isinstance(limit := _innermost(error), LimitExceeded):
        return timeout_error(host, limit.seconds) if limit.seconds else limit_error(host, str(limit))
    text, reason = str(error), _reason(error)
    is_cut = isinstance(error, requests.exceptions.ChunkedEncodingError | IncompleteRead | ProtocolError) or (
        CUT.search(text) is not None
    )
    if found := UNTRUSTED.search(text):
        return NetworkError(
            f"The certificate of {host} is not trusted: {found[1]}.",
            next_step="For a private certificate authority, name its file with SSL_CERT_FILE, or put it into Docker's "
            f"folder: /etc/docker/certs.d/{host}/ca.crt.",
        )
    if isinstance(error, requests.exceptions.SSLError) and not is_cut:
        return NetworkError(
            f"The TLS handshake with {host} failed: {reason}.",
            next_step="Use --plain-http for a registry without TLS; otherwise check the name and the port.",
        )
    if isinstance(error, requests.exceptions.ProxyError):
        problem, next_step = f"The proxy for {host} does not work", "Check HTTPS_PROXY and NO_PROXY."
    elif isinstance(error, requests.exceptions.Timeout) or "timed out" in text:
        return TransientError(timeout_error(host, seconds))
    elif is_cut:
        problem = f"The connection to the registry {host} was cut"
        next_step = "Run it again: completed uploads are not repeated."
    else:
        problem = f"The registry {host} cannot be reached"
        next_step = "Check its name and port, the network and the proxy (HTTPS_PROXY, NO_PROXY)."
    return TransientError(NetworkError(f"{problem}: {reason}.", next_step=next_step))


def address_error(host: str, name: str, address: str, reason: Exception) -> RegistryError:
    """Return the error for an address in a header that is not followed."""
    return RegistryError(
        f"The registry {host} names {truncate(address)!r} as {name}: {reason}.",
        next_step="Nothing was sent there. Check that it is the right registry, and ask its owner.",
    )


def _reason(error: Exception) -> str:
    """Return the message of the innermost exception, without the prefixes of the libraries around it."""
    inner = _innermost(error)
    if isinstance(inner, IncompleteRead):
        return f"{inner.partial} bytes arrived, {inner.expected} are missing"
    # `<connection>: Failed to establish a new connection: [Errno 111] Connection refused`; WRONG_VERSION_NUMBER.
    text = re.sub(r"^-?\d+\] |^\[SSL: \w+\] | \(_ssl\.c:\d+\)$", "", str(inner).rpartition("Errno ")[2])
    return (text.rstrip(".)").replace("_", " ") or type(error).__name__).lower()


def _innermost(error: Any) -> Any:
    while True:
        causes = (cause for cause in getattr(error, "args", ()) if isinstance(cause, BaseException))
        cause = getattr(error, "reason", None) or next(causes, None)
        if cause is None:
            return error
        error = cause
