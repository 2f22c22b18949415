"""What a registry answered, or that it did not → our error, in a sentence; or that it may pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

import requests
from pydantic import ConfigDict, Field
from urllib3.exceptions import HTTPError, IncompleteRead, ProtocolError

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import NetworkError, NotInRegistry, RegistryError, TfimgError
from tfimg.index.transport import LimitExceeded
from tfimg.registry.retry import RetryPolicy, TransientError

PASSING_STATUSES = frozenset({408, 425, 429, *range(500, 600)}) - {501, 505, 507, 511}
"""What another try may mend (RFC 9110, 6585, 8470). The four taken out say what no wait changes."""

UNREADY = "MANIFEST_BLOB_UNKNOWN"
"""Of a manifest whose blobs were all sent, it passes: while somebody else sends one of them, distribution's own note of
that blob is empty for a moment, and the manifest is refused (`registry/storage/linkedblobstore.go`)."""

FULL = re.compile(
    r"no space left|insufficient storage|quota|storage limit|\"?Err\"?: ?28\b|disk (?:is )?full",
    re.IGNORECASE,
)
"""How registries say that they are full: distribution prints the number of ENOSPC, Harbor speaks of a quota."""

UNTRUSTED = re.compile(r"certificate verify failed: (.*?)(?: \(_ssl|$)")

TRANSPORT_ERRORS = (requests.RequestException, HTTPError, OSError)
"""What requests and its transport raise."""


MAX_WORDS = 300
"""Characters of what a registry says that a message quotes."""


class RegistryProblem(Document):
    """One entry of a registry's error document (OCI distribution specification 1.1, "Error Codes")."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    code: str | None = None
    message: str | None = None


class RegistryProblems(Document):
    """A registry's error document."""

    errors: Annotated[tuple[RegistryProblem, ...], Field(max_length=1000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """A registry's answer. Header names are in whatever case one asks for them."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str

    @property
    def errors(self) -> tuple[tuple[str, str], ...]:
        """Return codes and messages, where the registry sends a well-formed error document."""
        try:
            problems = parse_document(RegistryProblems, self.content).errors
        except InvalidDocument:
            return ()
        return tuple((problem.code or "", problem.message or "") for problem in problems)

    @property
    def words(self) -> str:
        """Return what the registry says, for people, in at most `MAX_WORDS` characters."""
        if errors := self.errors:
            text = "; ".join(f"{code}: {message}" if message else code for code, message in errors)
            return truncate(text)
        plain = "text/plain" in self.headers.get("Content-Type", "")
        text = self.content[:MAX_WORDS].decode(errors="replace").strip() if plain else ""
        return text or next((one.phrase for one in HTTPStatus if one == self.status), "")


def truncate(text: str) -> str:
    """Return a text from outside as a message has it: cut after `MAX_WORDS` characters."""
    return text if len(text) <= MAX_WORDS else f"{text[:MAX_WORDS]}…"


def parse_size(header: str | None) -> int:
    """Return the number in a header; 0 where there is none, or one that no size and no time has."""
    return int(header) if header and re.fullmatch(r"[0-9]{1,15}", header) else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestContext:
    """What was asked for, for sentences. `known` says that credentials went with it."""

    host: str
    repository: str
    writing: bool
    known: bool


def map_response(answer: Response, asked: RequestContext, retry_policy: RetryPolicy) -> TransientError | TfimgError:
    """An answer that is none of those that were expected."""
    told = join_lines(f"{answer.status} {answer.words}")
    if answer.status == requests.codes.insufficient_storage or _says_full(answer):
        return RegistryError(
            f"The registry {asked.host} is full: {told}.",
            next_step="Let its owner make room or raise the quota, and run it again: what it has is not sent twice.",
        )
    if answer.status in PASSING_STATUSES:
        return TransientError(
            _failing(answer, asked, told), after=retry_policy.retry_after(answer.headers.get("Retry-After"))
        )
    if answer.status == 400 and UNREADY in (code for code, _ in answer.errors):
        return TransientError(_refused(answer, asked, told))
    if answer.status in (401, 403):
        return _no_entry(answer, asked, told)
    if answer.status == 407:
        return NetworkError(
            f"The proxy on the way to {asked.host} wants to know who asks: {told}.",
            next_step="Put a name and password into HTTPS_PROXY: http://NAME:PASSWORD@PROXY:PORT.",
        )
    return _refused(answer, asked, told)


def join_lines(text: str) -> str:
    """Return a text on one line: a registry must not write lines that look like ours."""
    return " ".join(text.split())


def _says_full(answer: Response) -> bool:
    failed = answer.status >= 500 or answer.status in (403, 412, 413)
    return failed and FULL.search(answer.content.decode(errors="replace")) is not None


def _failing(answer: Response, asked: RequestContext, told: str) -> NetworkError:
    if answer.status == 429:
        wait = parse_size(answer.headers.get("Retry-After"))
        again = f" and to wait {wait} s" if wait else ""
        return NetworkError(
            f"The registry {asked.host} asks for fewer requests{again}: {told}.",
            next_step="Run it again later, or log in: registries let those do more whom they know.",
        )
    return NetworkError(
        f"The registry {asked.host} fails: {told}.",
        next_step="Run it again later; its own log says why.",
    )


def _no_entry(answer: Response, asked: RequestContext, told: str) -> RegistryError:
    login = f"Log in with `docker login {asked.host}`"
    deed = "write to" if asked.writing else "read"
    if answer.status == 401 and not asked.known:
        return RegistryError(
            f"The registry {asked.host} wants to know who asks for {asked.repository}: {told}.",
            next_step=f"{login}, and run it again.",
        )
    if answer.status == 401 and "insufficient_scope" not in answer.headers.get("WWW-Authenticate", ""):
        return credentials_error(asked.host, told)
    return RegistryError(
        f"The registry {asked.host} does not let us {deed} {asked.repository}: {told}.",
        next_step=f"{login} as somebody who may, or check the repository's name.",
    )


def credentials_error(host: str, told: str) -> RegistryError:
    """The registry knows no such name, or the password is another."""
    return RegistryError(
        f"The registry {host} does not take our credentials: {join_lines(told)}.",
        next_step=f"Log in again with `docker login {host}`; a token may have run out.",
    )


def _refused(answer: Response, asked: RequestContext, told: str) -> TfimgError:
    if asked.writing and answer.status == 405:
        return RegistryError(
            f"The registry {asked.host} is read-only: {told}.",
            next_step="Wait until its owner opens it again; or check the name: a web server that is no registry "
            "answers so too.",
        )
    if answer.status == 404 and not asked.writing:
        return NotInRegistry(
            f"The registry {asked.host} does not have what {asked.repository} was asked for: {told}.",
            next_step="Check the name, and that what refers to it was not removed.",
        )
    if answer.status == 404:
        return RegistryError(
            f"The registry {asked.host} has no repository {asked.repository}: {told}.",
            next_step="Check the name; some registries want a repository to be made before it is written to.",
        )
    if answer.status < 400:
        return RegistryError(
            f"What answers at {asked.host} is no registry: {told}.",
            next_step="Check the name and the port; a login page of the network may answer in its place.",
        )
    return RegistryError(
        f"The registry {asked.host} refused a request about {asked.repository}: {told}.",
        next_step="Check the name; the registry's own log may say more.",
    )


def map_transport_error(error: Exception, host: str, seconds: float) -> TransientError | TfimgError:
    """No answer, or half of one. `seconds` is how long was waited."""
    if isinstance(limit := _innermost(error), LimitExceeded):
        return timeout_error(host, limit.seconds) if limit.seconds else limit_error(host, str(limit))
    text = str(error)
    if found := UNTRUSTED.search(text):
        return NetworkError(
            f"The certificate of {host} is not to be trusted: {found[1]}.",
            next_step="If it is from an authority of your own, name that one's file with SSL_CERT_FILE, or put it "
            f"where docker looks: /etc/docker/certs.d/{host}/ca.crt.",
        )
    if isinstance(error, requests.exceptions.SSLError) and not _cut(error):
        return NetworkError(
            f"{host} does not speak TLS as it should: {_reason(error)}.",
            next_step="If it has none, say so with --plain-http; else check the name and the port.",
        )
    if isinstance(error, requests.exceptions.ProxyError):
        return TransientError(
            NetworkError(
                f"The proxy on the way to {host} does not work: {_reason(error)}.",
                next_step="Check HTTPS_PROXY and NO_PROXY.",
            )
        )
    if isinstance(error, requests.exceptions.Timeout) or "timed out" in text:
        return TransientError(timeout_error(host, seconds))
    if _cut(error):
        return TransientError(
            NetworkError(
                f"The connection to the registry {host} was cut: {_reason(error)}.",
                next_step="Run it again: what the registry has is not sent twice.",
            )
        )
    return TransientError(
        NetworkError(
            f"The registry {host} cannot be reached: {_reason(error)}.",
            next_step="Check its name and port, the network and the proxy (HTTPS_PROXY, NO_PROXY).",
        )
    )


def limit_error(host: str, what: str) -> RegistryError:
    """Return the error for a registry that sends more than any answer has."""
    return RegistryError(f"The registry {host} sends {what}.", next_step="Check that it is a registry.")


def address_error(host: str, name: str, address: str, why: Exception) -> RegistryError:
    """Return the error for an address in a header that is not followed."""
    return RegistryError(
        f"The registry {host} names {truncate(address)!r} as {name}: {why}.",
        next_step="Nothing was sent there. Check that it is the right registry, and ask its owner.",
    )


def timeout_error(host: str, seconds: float) -> NetworkError:
    """It said nothing, or never came to an end."""
    return NetworkError(
        f"The registry {host} is too slow: it did not answer within {seconds:g} s.",
        next_step="Run it again later: what it has is not sent twice.",
    )


def _cut(error: Exception) -> bool:
    """Whether there was a connection, and it ended before its time."""
    if isinstance(error, requests.exceptions.ChunkedEncodingError | IncompleteRead | ProtocolError):
        return True
    return re.search(r"RemoteDisconnected|Connection aborted|Connection reset|Broken pipe|EOF", str(error)) is not None


def _reason(error: Exception) -> str:
    """The sentence of whoever noticed, below those of the libraries above it."""
    inner = _innermost(error)
    if isinstance(inner, IncompleteRead):
        return f"{inner.partial} bytes came, and {inner.expected} were to follow"
    # `<connection>: Failed to establish a new connection: [Errno 111] Connection refused`; WRONG_VERSION_NUMBER.
    text = re.sub(r"^-?\d+\] ", "", str(inner).rpartition("Errno ")[2])
    return (text.rstrip(".)").replace("_", " ") or type(error).__name__).lower()


def _innermost(error: Any) -> Any:
    while (below := getattr(error, "reason", None) or _first(error)) is not None:
        error = below
    return error


def _first(error: Any) -> Any:
    return next((one for one in getattr(error, "args", ()) if isinstance(one, BaseException)), None)
