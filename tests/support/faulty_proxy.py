"""A proxy in front of a registry that does to requests what networks and servers do: cut, refuse, delay.

    with faulty("127.0.0.1:5000") as proxy:
        proxy.faults.append(Fault(method="PUT", path="/manifests/", status=503, times=2))
        …  # speak to proxy.address as if it were the registry

It speaks HTTP to the registry, also where it has TLS on its own side, and passes on the Host of the request:
what the registry says of itself leads back through it. A container engine on this machine can push and pull through it.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import cast

from support.http_server import AnyMethod, Server, serving

PIECE = 1 << 14


Headers = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request before its body is read. `upstream` is HOST:PORT of the registry."""

    method: str
    path: str
    headers: Mapping[str, str]
    upstream: str


@dataclass(kw_only=True)
class Fault:
    """What happens to the requests whose method and path match: to the first `times` of them, after the first `skip`.

    `before` is called first, in the proxy's thread: a publisher moves a tag, a process is killed. `delay` is seconds
    of silence; `rate` bytes per second of an answer. With a `status`, the registry gets no request. `cut_request` and
    `cut_answer` are how many bytes of a body pass before the connection is reset; `drop_answer` lets the registry have
    all of the request, and the client nothing of the answer. `when` is a further condition; `rewrite` returns the
    path that the registry gets, `edit` the headers of its answer that the client gets.
    """

    method: str = ".*"
    path: str = ""
    times: int = 1
    skip: int = 0
    when: Callable[[Request], bool] = lambda _: True
    before: Callable[[], object] = lambda: None
    delay: float = 0
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut_request: int | None = None
    drop_answer: bool = False
    cut_answer: int | None = None
    rate: float | None = None
    rewrite: Callable[[str], str] = lambda path: path
    edit: Callable[[Headers], Headers] = lambda headers: headers

    def matches(self, request: Request) -> bool:
        method, path = re.fullmatch(self.method, request.method), re.search(self.path, request.path)
        return method is not None and path is not None and self.when(request)


@dataclass(kw_only=True)
class Faulty:
    """The proxy: its HOST:PORT, what is to go wrong, and every request that it got, as `METHOD PATH`."""

    upstream: str
    address: str = ""
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, pattern: str) -> int:
        """How many requests there were of a kind."""
        return sum(re.search(pattern, one) is not None for one in self.requests)

    def take(self, request: Request) -> Fault:
        """The fault of a request; one that does nothing where none is planned."""
        with self._lock:
            self.requests.append(f"{request.method} {request.path}")
            for fault in self.faults:
                if fault.times and fault.matches(request):
                    if fault.skip:
                        fault.skip -= 1
                    else:
                        fault.times -= 1
                        return fault
        return Fault()


class _Cut(Exception):
    """The connection is to end."""


@contextmanager
def faulty(upstream: str, *, tls: ssl.SSLContext | None = None) -> Iterator[Faulty]:
    """A proxy before HOST:PORT for as long as the block lasts."""
    proxy = Faulty(upstream=upstream)
    with serving(_Relay, proxy, tls) as proxy.address:
        yield proxy


class _Relay(AnyMethod):
    @property
    def _proxy(self) -> Faulty:
        found: Faulty = cast("Server", self.server).subject
        return found

    def answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(method=self.command, path=self.path, headers=headers, upstream=self._proxy.upstream)
        fault = self._proxy.take(request)
        try:
            fault.before()
            time.sleep(fault.delay)
            if fault.status is not None:
                for _ in self._body():  # a client that still sends would see a reset connection, and no answer
                    pass
                self.close_connection = True
                self.reply(fault.status, {**fault.headers, "Connection": "close"}, fault.body)
            else:
                self._pass_on(fault)
        except (_Cut, OSError, HTTPException):
            self.close_connection = True
            with suppress(OSError):
                # Reset, as a lost network looks like, rather than ended in order.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()

    def _pass_on(self, fault: Fault) -> None:
        there = HTTPConnection(self._proxy.upstream, timeout=60)
        try:
            self._request(there, fault)
            answer = there.getresponse()
            if fault.drop_answer:
                raise _Cut
            self._hand_back(answer, fault)
        finally:
            there.close()

    def _request(self, there: HTTPConnection, fault: Fault) -> None:
        there.putrequest(self.command, fault.rewrite(self.path), skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("connection", "expect"):
                there.putheader(name, value)
        there.putheader("Connection", "close")
        there.endheaders()
        chunked, passed = self._is_chunked, 0
        for piece in self._body():
            if fault.cut_request is not None and passed + len(piece) > fault.cut_request:
                there.send(_framed(piece[: fault.cut_request - passed], chunked=chunked))
                _hang_up(there)
                raise _Cut
            passed += len(piece)
            try:
                there.send(_framed(piece, chunked=chunked))
            except OSError:
                return  # the registry has said what it thinks of it
        if chunked:
            there.send(b"0\r\n\r\n")

    @property
    def _is_chunked(self) -> bool:
        return "chunked" in self.headers.get("Transfer-Encoding", "").lower()

    def _body(self) -> Iterator[bytes]:
        if not self._is_chunked:
            yield from self._exactly(int(self.headers.get("Content-Length", 0)))
            return
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            yield from self._exactly(size)
            self.rfile.readline()
        self.rfile.readline()

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self.rfile.read(min(size, PIECE))
            if not piece:
                raise _Cut
            size -= len(piece)
            yield piece

    def _hand_back(self, answer: HTTPResponse, fault: Fault) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in fault.edit(answer.getheaders()):
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        whole = answer.headers.get("Content-Length") is not None or self.command == "HEAD"
        if not whole:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        passed = 0
        at_once = max(1, int(fault.rate / 20)) if fault.rate else PIECE
        while self.command != "HEAD" and (piece := answer.read(at_once)):
            if fault.cut_answer is not None and passed + len(piece) > fault.cut_answer:
                self.wfile.write(piece[: fault.cut_answer - passed])
                self.wfile.flush()
                raise _Cut
            passed += len(piece)
            self.wfile.write(piece)
            if fault.rate:
                time.sleep(len(piece) / fault.rate)


def _hang_up(there: HTTPConnection) -> None:
    """End a request in the middle, and wait until the registry has noticed: it is done with what it got of it."""
    there.sock.shutdown(socket.SHUT_WR)
    while there.sock.recv(PIECE):
        pass


def _framed(piece: bytes, *, chunked: bool) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece) if chunked and piece else piece
