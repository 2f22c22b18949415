"""One hostile server that plays every registry, token server and third party of an attack.

It is an HTTP proxy on loopback: clients that use it reach any host name, with and without TLS, and all of them are this
server. It records every request with the origin that the client believed to speak to. Clients that name its address
instead of a proxy reach it directly, as a registry on this machine.
"""

from __future__ import annotations

import re
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import trustme

from support.loopback_registry import Loopback

MAX_SENT = 96 << 20
"""Bytes of one endless answer after which the server gives up: the client has read without bound."""

MAX_SECONDS = 15.0
"""Seconds of one endless answer, likewise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A request. `origin` is scheme, host and port; `raw` is all of it, as it was sent."""

    origin: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    raw: bytes

    @property
    def line(self) -> str:
        """`METHOD ORIGIN/PATH`."""
        return f"{self.method} {self.origin}{self.path}"


Answer = bytes | Iterator[bytes]
"""A whole answer, after which the connection stays open, or one without a known end, after which it is closed."""

Play = Answer | Callable[[Request], Answer | None]
"""An answer, or a function of the request; None is the answer of the honest registry."""


def reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A complete answer; `_` in a header's name is a dash."""
    fields = {"Content-Length": str(len(body)), **{name.replace("_", "-"): headers[name] for name in headers}}
    return head(status, **fields) + body


def head(status: int, **headers: str) -> bytes:
    """The head of an answer."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Test\r\n{lines}\r\n".encode("latin-1")


def endless(first: bytes, piece: bytes, delay: float = 0) -> Callable[[Request], Iterator[bytes]]:
    """An answer that never ends."""

    def answer(_: Request) -> Iterator[bytes]:
        yield first
        while True:
            yield piece
            time.sleep(delay)

    return answer


@dataclass(kw_only=True)
class HostileRegistry:
    """The server. `plays` are its answers by a pattern of the request line; the rest is answered honestly.

    The honest registry has the host registry.test, and answers this machine directly; `challenge` is how it asks for
    credentials. Honest third parties do not exist: they answer 404. `overrun` says that a client read without bound.
    """

    authority: trustme.CA
    plays: Mapping[str, Play] = field(default_factory=dict)
    challenge: str = 'Basic realm="registry"'
    direct_tls: bool = False
    address: str = ""
    honest: Loopback = field(default_factory=Loopback)
    seen: list[Request] = field(default_factory=list)
    overrun: str = ""
    _contexts: dict[str, ssl.SSLContext] = field(default_factory=dict)

    def context(self, host: str) -> ssl.SSLContext:
        if host not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.authority.issue_cert(host).configure_cert(context)
            self._contexts[host] = context
        return self._contexts[host]

    def answer(self, request: Request) -> Answer:
        self.seen.append(request)
        for pattern, play in self.plays.items():
            if re.match(pattern, request.line):
                answer = play(request) if callable(play) else play
                if answer is not None:
                    return answer
        own = request.origin.rpartition("/")[2].partition(":")[0] in ("registry.test", "127.0.0.1")
        return self._honest(request) if own else reply(404)

    def _honest(self, request: Request) -> bytes:
        if self.challenge and "authorization" not in request.headers:
            return reply(401, WWW_Authenticate=self.challenge)
        headers = _Headers(request.headers)
        status, fields, body = self.honest.answer(request.method, request.path, headers, request.body)
        content = b"" if request.method == "HEAD" else body
        return head(status, **{"Content-Length": str(len(body)), **fields}) + content


class _Headers(dict[str, str]):
    """Headers by names of any case."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())


@contextmanager
def serve_hostile_registry(authority: trustme.CA, **behaviour: Any) -> Iterator[HostileRegistry]:
    """The server for as long as the block lasts."""
    registry = HostileRegistry(authority=authority, **behaviour)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.subject = registry
    registry.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64
    subject: HostileRegistry

    def handle_error(self, *arguments: object) -> None:
        """A client that hangs up is what the tests are about."""


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self._registry = cast("_Server", self.server).subject
        sock: socket.socket = self.request
        sock.settimeout(10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError, ValueError):
            self._serve(sock, "http", self._registry.address)

    def _serve(self, sock: socket.socket, scheme: str, host: str) -> None:
        """Answer the requests of a connection; after CONNECT, those inside it."""
        if scheme == "http" and sock.recv(1, socket.MSG_PEEK) == b"\x16":
            if not self._registry.direct_tls:
                sock.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\nThis server has no TLS.\n")
                return
            with self._secured(sock, "127.0.0.1") as secured:
                self._serve(secured, "https", host)
            return
        with sock.makefile("rb") as stream:
            self._answer_all(sock, stream, scheme, host)

    def _answer_all(self, sock: socket.socket, stream: Any, scheme: str, host: str) -> None:
        while line := stream.readline(1 << 16):
            raw, headers = _read_head(line, stream)
            method, target, _ = line.decode("latin-1").split(" ", 2)
            if method == "CONNECT":
                sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                with self._secured(sock, target.rpartition(":")[0]) as secured:
                    self._serve(secured, "https", target)
                return
            body = stream.read(int(headers.get("content-length", 0)))
            origin, path = _origin(scheme, host, target)
            request = Request(origin=origin, method=method, path=path, headers=headers, body=body, raw=raw + body)
            if not self._send(sock, self._registry.answer(request), request):
                return

    def _secured(self, sock: socket.socket, host: str) -> ssl.SSLSocket:
        return self._registry.context(host).wrap_socket(sock, server_side=True)

    def _send(self, sock: socket.socket, answer: Answer, request: Request) -> bool:
        """Send an answer; return whether the connection stays open."""
        if isinstance(answer, bytes):
            sock.sendall(answer)
            return True
        sent, began = 0, time.monotonic()
        for piece in answer:
            sock.sendall(piece)
            sent += len(piece)
            if sent > MAX_SENT or time.monotonic() - began > MAX_SECONDS:
                seconds = time.monotonic() - began
                self._registry.overrun = f"{request.line} took {sent} bytes in {seconds:.1f} s"
                break
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        return False


def _read_head(line: bytes, stream: Any) -> tuple[bytes, dict[str, str]]:
    raw, headers = line, {}
    while (following := stream.readline(1 << 16)) not in (b"\r\n", b""):
        raw += following
        name, _, value = following.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return raw, headers


def _origin(scheme: str, host: str, target: str) -> tuple[str, str]:
    """Scheme with host, and path: of a proxy's request, the target has them all."""
    if not target.startswith("/"):
        scheme, _, rest = target.partition("://")
        host, slash, path = rest.partition("/")
        target = slash + path
    return f"{scheme}://{host.removesuffix(':443' if scheme == 'https' else ':80')}", target
