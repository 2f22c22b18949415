"""Turn what the network, the disk and Python report into errors that users read.

HTTP libraries wrap a cause into representations of their objects, and programs print it among other lines. The classes
of `requests`, `urllib3` and `ssl` are known by name, so that core imports none of them.
"""

import errno
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

from tfimg.core.errors import DiskSpaceError, FileError, InternalError, NetworkError, TfimgError, WrongClock
from tfimg.core.files import find_free_bytes
from tfimg.core.text import escape_unprintable, format_size, read_clock, remove_credentials, truncate

Stage = Literal["DNS", "proxy", "connection", "certificate", "TLS", "time", "cut", "status", "other"]
"""What of a request failed; `cut` is a connection that ended early, `other` what the server sent."""

_SIGNS: tuple[tuple[Stage, str], ...] = (
    (
        "proxy",
        r"tunnel connection failed: (\d{3} [\w -]+)|tunnel error: (unsuccessful)"
        r"|received HTTP code (\d{3}) from proxy|(proxy authentication required)"
        r"|proxyconnect|tunnel error|Unable to connect to proxy|Cannot connect to proxy|SOCKS",
    ),
    (
        "DNS",
        r"(temporary failure in name resolution|name or service not known|no such host"
        r"|no address associated with hostname|server misbehaving|temporary failure resolving)"
        r"|could(?:n't| not) resolve|getaddrinfo|failed to resolve|dns error|name ?resolution",
    ),
    (
        "certificate",
        r"certificate verify failed: (.+?)\.?(?: \(_ssl|\n|$)"
        r"|x509: ([^\n\"]+)|invalid peer certificate: (\w+\b)(?!\()"
        r"|SSL certificate problem: ([^\n]+)|invalid peer certificate|UnknownIssuer"
        r"|certificate verif(?:y|ication) failed",
    ),
    ("time", r"timed? ?out|deadline exceeded|Client\.Timeout|no answer within"),
    (
        "cut",
        r"(connection reset by peer|remote end closed connection without response|broken pipe"
        r"|unexpected EOF|EOF occurred[\w ]*|connection closed before message completed)"
        r"|connection aborted|incompleteread|RemoteDisconnected|ChunkedEncodingError|ProtocolError|SSLEOFError",
    ),
    (
        "TLS",
        r"\[SSL: \w+\] ([\w ]+?)(?: \(_ssl|[\n')]|$)|tls: ([^\n\"]+)"
        r"|(server gave HTTP response to HTTPS client|received corrupt message of type \w+)"
        r"|SSL routines|SSL_ERROR|TLS handshake",
    ),
    (
        "connection",
        r"(connection refused|network is unreachable|no route to host|host is unreachable)"
        r"|could(?:n't| not) connect|failed to connect|tcp connect error|failed to establish a new connection",
    ),
    ("status", r"HTTP status (?:client|server) error \((\d{3}[\w ]*)\)|HTTP Error (\d{3})"),
    ("connection", r"error sending request|dial tcp|Max retries exceeded|NewConnectionError|Failed to fetch"),
)
"""Stage and its signs in the messages of OpenSSL, the C library, uv, pip, APT, git, Go and Java; the first counts.

A proxy comes first: what it could not reach is quoted behind it."""

NETWORK_FAILURE = re.compile(
    "Failed to fetch|error sending request|dns error|Temporary failure (?:in name resolution|resolving)|"
    "Could ?n[o']t (?:connect|resolve)|Network is unreachable|certificate verif(?:y|ication) failed|UnknownIssuer|"
    "SSL certificate problem|Max retries exceeded|NewConnectionError|dial tcp|proxyconnect|Read timed out|TimeoutError|"
    "network timeout|no such host|x509: ",
    re.IGNORECASE,
)
"""Parts of messages with which uv, pip, APT, git and BuildKit report a failure of the network, not of a program."""

_HOSTS = re.compile(
    r"\b\w+://(?:[^/\s]*@)?(\[[\da-f:]+\](?::\d+)?|[\w.-]+(?::\d+)?)"
    r"|(?:resolve host:?|resolve|resolving|lookup|connect to) ['\"]?([\w.-]*\w(?::\d+)?)"
    r"|host='([\w.-]+)'"
)
_PROXY_CONNECTION = re.compile(r"proxyconnect tcp: dial tcp:? (?P<address>[\w.:\[\]-]+?):? ")

RESOLVER = Path("/etc/resolv.conf")


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionFailure:
    """The stage at which a request to `host` failed, and why, in one line that is safe to print.

    `proxy` is HOST:PORT of the proxy that the request went through; an empty text for none.
    """

    stage: Stage
    reason: str = ""
    host: str = ""
    proxy: str = ""

    def describe(self, server: str = "") -> str:
        """Return a clause that says what failed. `server` names the host, for example `the registry r.test`."""
        host = self.host or server or "the server"
        server, because = server or host, f": {self.reason}" if self.reason else ""
        through = f" through the proxy {self.proxy}" if self.proxy else ""
        match self.stage:
            case "DNS":
                return f"DNS does not resolve the name {re.sub(r':[0-9]+$', '', host)}{because}"
            case "proxy":
                return f"the proxy{f' {self.proxy}' * bool(self.proxy)} for {server} does not work{because}"
            case "connection":
                return f"{server} cannot be reached{through}{because}"
            case "certificate":
                return f"the TLS certificate of {host} is not trusted{because}"
            case "TLS":
                return f"the TLS handshake with {host} failed{because}"
            case "time":
                return f"{server} did not answer in time{through}{because}"
            case "cut":
                return f"the connection to {server} was cut{because}"
            case "status":
                return f"{server} answered with HTTP status {self.reason}"
        return self.reason or "no reason was given"

    @property
    def next_step(self) -> str:
        """Return what the user of a package index, or of another server, does about it."""
        if "407" in self.reason or "authentication required" in self.reason:
            return "Put a name and password into HTTPS_PROXY: http://NAME:PASSWORD@PROXY:PORT."
        match self.stage:
            case "DNS":
                return f"Check the name, and the DNS of this machine: {describe_resolver()}."
            case "proxy":
                return "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY, and proxy in pip's configuration."
            case "connection" | "time":
                return "Check its name and port, and whether this network needs a proxy (HTTPS_PROXY, NO_PROXY)."
            case "certificate":
                return certificate_step(self.reason) or (
                    "For a private certificate authority, or a proxy that replaces certificates, name the file of its "
                    "certificate with SSL_CERT_FILE."
                )
            case "TLS":
                return "Check name and port; the address of a server without TLS begins with http://."
            case "cut":
                return "Run it again; if it stays so, a proxy or firewall may end the connection."
            case "status" if self.reason[:3] in ("401", "403"):
                return "Check the credentials in the index settings of pip or uv, or in .netrc."
            case "status" if self.reason[:3] == "429" or self.reason[:1] == "5":
                return "Run it again later; the server's log has the cause."
        return "Check the index settings of pip or uv: another server, or a login page, may answer."


def certificate_step(reason: str) -> str:
    """Return the next step for a certificate that no other authority makes valid; an empty text for any other."""
    if re.search("expired|not yet valid", reason, re.IGNORECASE):
        return "Check this machine's clock; if it is right, the server's owner has to renew the certificate."
    if re.search("mismatch|not valid for|NotValidForName|doesn't match", reason, re.IGNORECASE):
        return "Use a name that the certificate has, or ask the server's owner for a certificate with this name."
    return ""


def describe_resolver(file: Path | None = None) -> str:
    """Return which name servers the C library asks (resolv.conf(5))."""
    file = file or RESOLVER
    try:
        servers = re.findall(r"^nameserver\s+([\da-fA-F.:%\w]+)", file.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        servers = []
    return f"{file} names {' and '.join(servers[:3])}" if servers else f"{file} names no server"


def network_error(what: str, failure: ConnectionFailure, *, server: str = "", next_step: str = "") -> NetworkError:
    """Return the error for what was not done: a clause such as `Cannot read the wheels of numpy`, or an empty text.

    `server` is as in `describe`; `next_step` replaces that of the failure.
    """
    clause = failure.describe(server)
    sentence = f"{what}: {clause}" if what else f"{clause[:1].upper()}{clause[1:]}"
    return NetworkError(f"{sentence}.", next_step=next_step or failure.next_step)


def read_failure(error: Exception) -> ConnectionFailure:
    """Return why a request failed, of an exception of an HTTP library, or of a reader of what the server sent."""
    if (response := getattr(error, "response", None)) is not None:
        status = int(response.status_code)
        phrase = next((known.phrase for known in HTTPStatus if known == status), "")
        return ConnectionFailure(
            stage="status", reason=f"{status} {phrase}".strip(), host=_find_host(response.url or "")
        )
    pool = getattr(error.args[0] if error.args else None, "pool", None)
    proxy = getattr(pool, "proxy", None)
    request = getattr(error, "request", None)
    text, inner = str(error), innermost(error)
    stage: Stage = "other"
    reason = ""
    if isinstance(error, OSError) or type(error).__module__.startswith("urllib3"):
        stage, reason = _find_stage(f"{type(error).__name__}: {text}")
        if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
            stage, reason = "time", "" if stage == "time" else reason
    return ConnectionFailure(
        stage=stage,
        reason=reason or ("" if stage == "time" else _clean(_describe_exception(inner), keep_case=stage == "other")),
        host=_find_host(str(request.url) if request is not None else text),
        proxy=f"{proxy.host}:{proxy.port}" if proxy else "",
    )


def read_output(text: str, proxy: str = "") -> ConnectionFailure | None:
    """Return why a program that reported a failure of the network failed; None if it reported none.

    `proxy` is the address of the proxy that the program used, if any.
    """
    if not (sign := NETWORK_FAILURE.search(text)):
        return None
    text = text[text.rfind("\n", 0, sign.start()) + 1 :]
    stage, reason = _find_stage(text)
    if found := _PROXY_CONNECTION.search(text):
        proxy = found["address"]
    return ConnectionFailure(stage=stage, reason=reason, host=_find_host(text), proxy=_find_host(proxy) or proxy)


def _find_stage(text: str) -> tuple[Stage, str]:
    """Return the stage that a message is about, and its reason; an empty text for none that people read."""
    for stage, pattern in _SIGNS:
        if re.search(pattern, text, re.IGNORECASE):
            # A proxy's sign may come without the reason: that it was not resolved, or refused the connection.
            causes = [known for name, known in _SIGNS if name in ("DNS", "connection", "certificate", "TLS", "cut")]
            patterns = (pattern, *causes) if stage == "proxy" else (pattern,)
            signs = (sign for one in patterns for sign in re.finditer(one, text, re.IGNORECASE))
            return stage, _clean(next((reason for sign in signs for reason in sign.groups() if reason), ""))
    return "other", ""


def _find_host(text: str) -> str:
    found = _HOSTS.search(text)
    return next(filter(None, found.groups()), "") if found else ""


def _describe_exception(error: BaseException) -> str:
    """Return the message of an exception without its number, and the prefixes of the libraries around it."""
    if isinstance(error, OSError) and error.strerror:
        return re.sub(r"^\[SSL: \w+\] | \(_ssl\.c:\d+\)$", "", error.strerror)
    if (partial := getattr(error, "partial", None)) is not None and (expected := getattr(error, "expected", None)):
        return f"{partial if isinstance(partial, int) else len(partial)} bytes arrived, {expected} are missing"
    text = re.sub(r"\[Errno -?\d+\] ", "", str(error))
    return re.sub(r"^(?:<[^>]*>|HTTPS?Connection\([^)]*\)): ", "", text)


def innermost(error: BaseException) -> BaseException:
    """Return the exception that the others wrap, which HTTP libraries keep among their arguments."""
    while True:
        arguments = (argument for argument in error.args if isinstance(argument, BaseException))
        reason: Any = getattr(error, "reason", None)
        cause = reason if isinstance(reason, BaseException) else next(arguments, None)
        if cause is None:
            return error
        error = cause


def _clean(text: str, *, keep_case: bool = False) -> str:
    """Return a message from outside on one line, without credentials, escaped and cut."""
    line = escape_unprintable(truncate(remove_credentials(" ".join(text.split())))).rstrip(".")
    if keep_case:
        return line
    if re.fullmatch(r"(?:[A-Z][a-z]+)+", line):  # the name of an error of rustls, which uv prints
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", line).lower()
    return line[:1].lower() + line[1:] if line[1:2].islower() else line


IMMUTABLE_TAG = re.compile(
    r"immutab|can(?: ?not|'t) be overwrit|not allow updating assets|operation is disallowed", re.IGNORECASE
)
"""Parts of the answers of six registries that do not let a tag move (the known issue `tag-immutable` has more)."""

EXEMPT_TAGS = (
    "Ask its owner to exempt the tags that tfimg moves from the rule that tags are immutable, or publish to a "
    "repository without it."
)
CREATE_FIRST = "Create it there, or ask its owner to: this registry makes none at a push. Check the name too."
RAISE_LIMIT = (
    "Ask its owner to raise the largest size of a request in the registry and in each proxy before it, where it is "
    "often 1 MB: a layer may have 2 GB."
)

FULL_DISK = re.compile(r"no space left|disk quota exceeded|disk is full|os error 28\b", re.IGNORECASE)
"""Parts of messages of programs, engines and the C library about a full disk or quota."""


def disk_error(
    what: str, folder: Path, *, needed: int | None = None, free: int | None = None, next_step: str = ""
) -> DiskSpaceError:
    """Return the error for what does not fit on a disk.

    `what` is a noun if `needed`, the bytes that it takes, are known, else a clause. `free` are the bytes on the disk of
    `folder`; None: as this machine's disk has now.
    """
    free = find_free_bytes(folder) if free is None else free
    space = f"the disk of {folder} has {format_size(free)} free"
    if needed is None:
        try:
            disk = os.statvfs(folder)
            space += " and no free inode" if disk.f_files and not disk.f_favail else ""
        except OSError:
            pass  # a folder of another machine, or one that is gone
    return DiskSpaceError(
        f"{what} needs {format_size(needed)}, and {space}." if needed else f"{what}: {space}.",
        next_step=next_step or "Free some space there and run it again.",
    )


def is_full_disk(error: BaseException) -> bool:
    """Return whether a write failed for want of space, or of the user's quota."""
    if isinstance(error, shutil.Error):  # of a copied folder: a list of sources, targets and messages
        return FULL_DISK.search(str(error)) is not None
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


def to_tfimg_error(error: Exception, folders: Sequence[Path] = ()) -> TfimgError:
    """Convert an exception to the error that users see.

    `folders` are where tfimg writes, the state folder first: where a full disk is reported without a file, the fullest
    of them is named.
    """
    if isinstance(error, TfimgError):
        return error
    if isinstance(error, UnicodeDecodeError):
        before = error.object[max(0, error.start - 20) : error.start].decode(error.encoding, errors="replace")
        return FileError(
            f"A file is not UTF-8 at byte {error.start}, after {before!r}.", next_step="Write it as UTF-8."
        )
    if type(error).__module__.partition(".")[0] in ("requests", "urllib3", "ssl", "socket"):
        return network_error("A request failed", read_failure(error))
    if not isinstance(error, OSError):
        try:
            read_clock()  # without which modules of Python fail, such as `logging` when it is imported
        except WrongClock as wrong:
            return wrong
        return InternalError(
            f"Internal error: {type(error).__name__}: {error}.",
            next_step="Please report it with the output of the same command under TFIMG_DEBUG=1.",
        )
    named, reason = error.filename2 or error.filename, error.strerror or str(error)
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        _, named, reason = error.args[0][0]
        reason = re.sub(r"^\[Errno \d+\] ([^:]*).*", r"\1", str(reason))
    if "No usable temporary directory" in reason:  # a list of folders as Python writes it; they may be full
        step = "Name a folder in TMPDIR that you may write to, on a disk with space."
        return FileError("No folder for temporary files can be written to, not even /tmp.", next_step=step)
    if is_full_disk(error):
        path = Path(os.fsdecode(named)) if named else None
        folder = path.parent if path else min(folders, key=find_free_bytes, default=Path("/tmp"))  # noqa: S108
        return disk_error(f"{path or 'A file'} cannot be written", folder)
    if named and folders and _closes(error, Path(os.fsdecode(named)), folders[0]):
        step = "Make it this user's, or name another folder in TFIMG_STATE."
        return FileError(f"The state folder {folders[0]} cannot be used: {named}: {reason.lower()}.", next_step=step)
    return FileError(
        f"{named or 'A file'}: {reason.lower()}.", next_step="Check the path and its permissions, and try again."
    )


def _closes(error: OSError, path: Path, state: Path) -> bool:
    """Return whether an error of a path means that the state folder cannot be made or written to."""
    if path == state or path in state.parents[:-1]:
        return error.errno in (*DENIED, errno.ENOENT)
    return path.is_relative_to(state) and error.errno in DENIED
