"""Responses of a registry, read within limits on bytes and time, and the errors that they become."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

import requests
from pydantic import ConfigDict, Field
from urllib3 import Retry
from urllib3.exceptions import HTTPError, IncompleteRead, InvalidHeader, ProtocolError

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import FileError, NetworkError, NotInRegistry, RegistryError, TfimgError
from tfimg.core.retry import TransientError
from tfimg.core.text import truncate
from tfimg.index.network import LimitExceeded, read_chunks

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

EXPECTS_TLS = re.compile(r"HTTP request (?:was sent )?to (?:an )?HTTPS|plain HTTP to an SSL", re.IGNORECASE)
"""Responses of Go, nginx and Apache to a request without TLS on a port with TLS."""

MAX_RETRY_HEADER = 64
"""Characters of a Retry-After that are read; a date has 29."""

UNTRUSTED = re.compile(r"certificate verify failed: (.*?)\.?(?: \(_ssl|$)")
UNREADABLE_AUTHORITY = re.compile(r"\[X509\b")
CUT = re.compile(r"RemoteDisconnected|Connection aborted|Connection reset|Broken pipe|EOF")

TRANSPORT_ERRORS = (requests.RequestException, HTTPError, OSError)
"""Exceptions of requests and its transport."""


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
    def message(self) -> str:
        """Return the registry's explanation in at most `MAX_QUOTED` characters."""
        if errors := self.errors:
            return truncate("; ".join(f"{code}: {message}" if message else code for code, message in errors))
        plain = "text/plain" in self.headers.get("Content-Type", "")
        text = self.content.decode(errors="replace").strip() if plain else ""
        return truncate(text) or next((status.phrase for status in HTTPStatus if status == self.status), "")


def read_response(response: requests.Response, host: str, seconds: float) -> Response:
    """Read an open response to its end, without decompressing it.

    Raises `RegistryError` for too many bytes and `LimitExceeded` after `seconds`.
    """
    content = bytearray()
    for chunk in read_chunks(response, seconds, math.inf):
        content += chunk
        if len(content) > MAX_RESPONSE_BYTES:
            raise limit_error(host, f"more than {MAX_RESPONSE_BYTES >> 20} MiB in one document")
    return Response(
        status=response.status_code, headers=response.headers, content=bytes(content), url=response.url or ""
    )


def map_response(
    response: Response, host: str, repository: str, *, is_write: bool, has_credentials: bool
) -> TransientError | TfimgError:
    """Return the error for a response with an unexpected status. `has_credentials`: the request had an account."""
    status, reply = response.status, join_lines(f"{response.status} {response.message}")
    login = f"Log in with `docker login {host}`"
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
            f"The registry {host} requires a login for {repository}: {reply}.",
            next_step=f"{login}, and run it again.",
        )
    if status == 401 and "insufficient_scope" not in response.headers.get("WWW-Authenticate", ""):
        return credentials_error(host, reply)
    if status in (401, 403):
        action = "write to" if is_write else "read"
        return RegistryError(
            f"The registry {host} denies permission to {action} {repository}: {reply}.",
            next_step=f"{login} as a user with that permission, or check the repository's name.",
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


def credentials_error(host: str, reply: str) -> RegistryError:
    """Return the error for an unknown user, a wrong password or an expired token."""
    return RegistryError(
        f"The registry {host} rejected the credentials: {join_lines(reply)}.",
        next_step=f"Log in again with `docker login {host}`; a token may have expired.",
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
        return _certificate_error(host, found[1])
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


def _certificate_error(host: str, reason: str) -> NetworkError:
    if "expired" in reason or "not yet valid" in reason:
        next_step = "Check this machine's clock; if it is right, the registry's owner has to renew the certificate."
    elif "mismatch" in reason:
        next_step = "Use a name that the certificate has, or ask the registry's owner for a certificate with this name."
    else:
        next_step = (
            "For a private certificate authority, name its file with SSL_CERT_FILE, or put it into Docker's folder: "
            f"/etc/docker/certs.d/{host}/ca.crt."
        )
    return NetworkError(f"The certificate of {host} is not trusted: {reason}.", next_step=next_step)


def authority_error(file: str, host: str) -> FileError:
    """Return the error for a file of certificate authorities that cannot be used."""
    return FileError(
        f"{file} has no certificate that can be read, so the certificate of {host} cannot be verified.",
        next_step="Replace it with the certificate of the registry's authority, in PEM: -----BEGIN CERTIFICATE-----.",
    )


def address_error(host: str, name: str, address: str, reason: Exception) -> RegistryError:
    """Return the error for an address in a header that is not followed."""
    return RegistryError(
        f"The registry {host} names {truncate(address)!r} as {name}: {reason}.",
        next_step="Nothing was sent there. Check that it is the right registry, and ask its owner.",
    )


def limit_error(host: str, excess: str) -> RegistryError:
    """Return the error for a registry that sends more than any registry does."""
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


def join_lines(text: str) -> str:
    """Return text on one line, so that a registry cannot write lines that look like tfimg's."""
    return " ".join(text.split())


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
