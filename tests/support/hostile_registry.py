"""One hostile server that plays every registry, token server and third party of an attack.

It is an HTTP proxy on loopback: clients that use it reach any host name, with and without TLS, and all of them are this
server. It records every request with the origin that the client meant. Clients that name its address
instead of a proxy reach it directly, as a registry on this machine.
"""

import gzip
import itertools
import json
import re
import socket
import socketserver
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import trustme

from support.loopback_registry import Loopback
from support.manifests import manifest
from tfimg.core.errors import NetworkError, RegistryError, TamperedError, TfimgError
from tfimg.registry.client import HttpRegistry
from tfimg.registry.documents import OCI_INDEX, OCI_MANIFEST, digest_of

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


HOST = "https://registry.test"
PASSWORD, IDENTITY, TOKEN = "s3cret-of-ann", "identity-of-ann", "token-of-ann"
PAIR = b64encode(f"ann:{PASSWORD}".encode()).decode()
SECRETS = tuple(one.encode() for one in (PASSWORD, PAIR, IDENTITY, TOKEN))
OWN = (HOST, "https://tokens.test")
"""Where secrets may go: the registry, and the token server that it names."""

BLOB = b"blob" * 1000
DIGEST = digest_of(BLOB)
OTHER = "sha256:" + "a" * 64
DIGITS = "9" * 5000
DEEP = b"[" * 200_000
GIB = gzip.compress(bytes(64 << 20))
BEARER = 'Bearer realm="https://tokens.test/token",service="registry.test"'

Act = Callable[[HttpRegistry], object]


def find(client: HttpRegistry) -> object:
    return client.find("1")


def tags(client: HttpRegistry) -> object:
    return client.list_tags()


def referrers(client: HttpRegistry) -> object:
    return client.list_referrers(OTHER)


def blob(client: HttpRegistry) -> object:
    return b"".join(client.get_blob(DIGEST))


def read_sized_blob(client: HttpRegistry) -> object:
    """Read a blob whose size a manifest has stated; one that is too long would show in the memory that it needs."""
    client.find("1")
    return blob(client)


def put_blob(client: HttpRegistry) -> object:
    return client.put_blob(b"new")


def put(client: HttpRegistry) -> object:
    return client.put("2", manifest("two"))


def log_in_and(act: Act) -> Act:
    """Do something after the client has learned its Authorization header."""

    def both(client: HttpRegistry) -> object:
        client.put_blob(b"{}")
        client.find("1")
        return act(client)

    return both


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """`plays` is what the server answers, by pattern of the request line; `act` what the client does.

    It must raise `error`, whose text matches `says`; without an error, it must succeed: such rows show what may not be
    refused. `requests` is how many it may send at most. `direct` names the registry by its address on this machine,
    with TLS where `tls` is set; `plain` is `--plain-http`.
    """

    name: str
    plays: Mapping[str, Play]
    act: Act = find
    error: type[TfimgError] | tuple[type[TfimgError], ...] | None = RegistryError
    says: str = ""
    challenge: str = 'Basic realm="registry"'
    identity: bool = False
    requests: int = 40
    direct: bool = False
    tls: bool = False
    plain: bool = False
    settings: Mapping[str, float] = field(default_factory=dict)


def redirect(to: str, status: int = 307) -> bytes:
    return reply(status, Location=to)


def challenge_of(challenge: str) -> bytes:
    return reply(401, WWW_Authenticate=challenge)


def realm(address: str) -> str:
    return f'Bearer realm="{address}",service="registry.test"'


def document(value: object) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def token(value: object) -> bytes:
    return reply(200, document(value), Content_Type="application/json")


def tag_list(value: object, **headers: str) -> bytes:
    return reply(200, document(value), Content_Type="application/json", **headers)


def tags_of(value: object, **headers: str) -> bytes:
    return reply(200, document(value), Content_Type=OCI_INDEX, **headers)


def of_manifests(content: bytes, **headers: str) -> bytes:
    return reply(200, content, Content_Type=OCI_MANIFEST, **headers)


def entry(digest: object = OTHER, size: object = 1, **more: object) -> dict[str, object]:
    return {"mediaType": OCI_MANIFEST, "digest": digest, "size": size, **more}


def new_tags(entries: int = 1) -> Callable[[Request], Answer]:
    """Pages of tags, each with new ones and a link to the next."""
    count = itertools.count()

    def page(_: Request) -> Answer:
        number = next(count)
        found = [f"t{number}.{one}" for one in range(entries)]
        return tag_list({"tags": found}, Link=f'</v2/team/tf/tags/list?n={number}>; rel="next"')

    return page


def large_pages() -> Callable[[Request], Answer]:
    """Pages of referrers whose annotations fill 4 MiB each."""
    count = itertools.count()

    def page(_: Request) -> Answer:
        digest = digest_of(str(next(count)).encode())
        return tags_of(
            {"manifests": [entry(digest, annotations={"a": "x" * (4 << 20)})]},
            Link=f'</v2/team/tf/referrers/{OTHER}?n={digest}>; rel="next"',
        )

    return page


def slow_page(request: Request) -> Answer:
    time.sleep(0.05)
    return tag_list({"tags": [f"t{len(request.path)}"]}, Link=f'<{request.path}x>; rel="next"')


def one_byte_at_a_time(request: Request) -> Iterator[bytes]:
    """A blob that is cut after each byte."""
    yield head(206, Content_Length="1000000") + b"x"


def upload_at(location: str) -> dict[str, Play]:
    return {f"POST {HOST}/v2/.*/blobs/uploads/": reply(202, Location=location)}


MANIFESTS = f"GET {HOST}/v2/team/tf/manifests/"
BLOBS = f"GET {HOST}/v2/team/tf/blobs/"
TAGS = f"GET {HOST}/v2/team/tf/tags/list"
REFERRERS = f"GET {HOST}/v2/team/tf/referrers/"
TOKENS = "(GET|POST) https://tokens.test/"
COLLECT: dict[str, Play] = {
    "GET https://evil.test": challenge_of(realm("https://collect.test/token")),
    "GET http://evil.test": challenge_of(realm("https://collect.test/token")),
    "GET https?://registry.test:": challenge_of(realm("https://collect.test/token")),
    "GET http://registry.test": challenge_of(realm("https://collect.test/token")),
    ".* https://collect.test": token({"token": "x"}),
}
"""A third party that asks for credentials, and collects them."""

JUNK_TOKENS: Mapping[str, object] = {
    "number": {"token": 7},
    "list": {"token": ["a"]},
    "null": {"token": None},
    "empty": {"token": ""},
    "object": {"token": {"a": 1}},
    "neither": {},
    "array": [],
    "text": b"hello",
    "deep": DEEP,
    "infinite": b'{"token": "a", "expires_in": 1e999}',
    "line break": {"token": "a\r\nX-Injected: b"},
    "not latin": {"token": "\u4e16\u754c"},
    "latin": {"token": "caf\u00e9"},
    "surrogate": b'{"token": "\\ud800"}',
    "megabytes": {"token": "a" * (2 << 20)},
}

JUNK_ADDRESSES = (
    "https://[::1", "https://[zz]/", "//[::1", "ftp://evil.test/", "file:///etc/passwd", "javascript:alert(1)",
    "https://", "https:///x", "https://registry.test@evil.test/", f"https://ann:{PASSWORD}@evil.test/",
    "https://evil.test\\@registry.test/", "https://registry.test:99999/", "https://registry.test:443:443/",
    f"https://registry.test:{DIGITS}/", "https://registry.test\u00e9/", "https://ev il.test/", "https://-/", "https://a..b/",
    "https://%72egistry.test/",
)  # fmt: skip

NEAR_HOSTS = (
    "127.0.0.1", "127.1", "0x7f000001", "2130706433", "0.0.0.0", "0", "[::1]", "[::]", "[::ffff:127.0.0.1]",
    "[64:ff9b::7f00:1]", "localhost", "a.localhost", "10.0.0.1", "10.1", "192.168.0.1", "[fd00::1]", "169.254.169.254",
    "[fe80::1]", "[fd00:ec2::254]", "168.63.129.16", "metadata", "metadata.google.internal", "printer", "a.internal",
)  # fmt: skip
"""Hosts of this machine, of its link and of private networks, in the spellings that the C library reads."""

JUNK_DIGESTS: tuple[object, ...] = (
    "sha256:../../../other/blobs/x", f"{OTHER}/../x", f"{OTHER}\n", "sha256:" + "A" * 64, "", None, 7, [], {},
    "x" * 5000,
)  # fmt: skip

LEAKS = [
    Attack(name="a redirect to a third party that asks for a password",
           plays={MANIFESTS: redirect("https://evil.test/x"), **COLLECT}),
    Attack(name="the same with known credentials", act=log_in_and(tags),
           plays={TAGS: redirect("https://evil.test/x"), **COLLECT}),
    Attack(name="a third party that asks for Basic",
           plays={MANIFESTS: redirect("https://evil.test/x"),
                  "GET https://evil.test": challenge_of('Basic realm="x"')}),
    Attack(name="a redirect to another port of the same host", act=log_in_and(tags),
           plays={TAGS: redirect("https://registry.test:8443/x"), **COLLECT}),
    Attack(name="a redirect to the same host without TLS", act=log_in_and(tags), says="without TLS",
           plays={TAGS: redirect("http://registry.test/v2/team/tf/tags/list"), **COLLECT}),
    Attack(name="a redirect to a third party without TLS", act=log_in_and(tags), says="without TLS",
           plays={TAGS: redirect("http://evil.test/x"), **COLLECT}),
    Attack(name="a redirect there and back",
           plays={MANIFESTS: redirect("https://evil.test/x"),
                  "GET https://evil.test/x": redirect(f"{HOST}/v2/back"),
                  f"GET {HOST}/v2/back": challenge_of(realm("https://collect.test/token")), **COLLECT}),
    Attack(name="a blob's redirect to a third party that asks", act=log_in_and(blob),
           plays={BLOBS: redirect("https://evil.test/x"), **COLLECT}),
    Attack(name="a next page at a third party", act=log_in_and(tags), says="another host",
           plays={TAGS: tag_list({"tags": ["a"]}, Link='<https://evil.test/x>; rel="next"'), **COLLECT}),
    Attack(name="a next page without TLS", act=log_in_and(tags),
           plays={TAGS: tag_list({"tags": ["a"]}, Link='<http://registry.test/x>; rel="next"'), **COLLECT}),
    Attack(name="an upload to a third party that asks", act=log_in_and(put_blob), error=RegistryError,
           plays={**upload_at("https://evil.test/up"), "PUT https://evil.test": challenge_of(BEARER)}),
    Attack(name="an upload to the same host without TLS", act=log_in_and(put_blob), says="without TLS",
           plays={**upload_at("http://registry.test/up"), "PUT http://": reply(201)}),
    Attack(name="an upload to another port", act=log_in_and(put_blob), error=None,
           plays={**upload_at("https://registry.test:8443/up"), "PUT https://registry.test:8443": reply(201)}),
    Attack(name="a redirect of an upload", act=log_in_and(put), says="307",
           plays={f"PUT {HOST}": redirect("https://evil.test/x"), "PUT https://evil.test": challenge_of(BEARER)}),
    Attack(name="a token server without TLS", challenge=realm("http://tokens.test/token"), says="without TLS",
           plays={"GET http://tokens.test": token({"token": "x"})}),
    Attack(name="a token server on the same host without TLS", challenge=realm("http://registry.test/token"),
           says="without TLS", plays={}),
    Attack(name="an identity token to a token server without TLS", identity=True, says="without TLS",
           challenge=realm("http://tokens.test/token"), plays={}),
    Attack(name="a token server that redirects", challenge=BEARER,
           plays={TOKENS: redirect("https://evil.test/token"), **COLLECT}),
    Attack(name="a token server that redirects an identity token", challenge=BEARER, identity=True,
           plays={TOKENS: redirect("https://evil.test/token", 308), **COLLECT}),
    Attack(name="plain HTTP, and a token server on another host", plain=True, says="without TLS",
           challenge=realm("http://collect.test/token"), plays={".* http://collect.test": token({"token": "x"})}),
    Attack(name="plain HTTP, and a redirect to another host that asks", plain=True,
           plays={"GET http://registry.test/v2/team/tf/manifests": redirect("http://evil.test/x"), **COLLECT}),
    Attack(name="cookies for a third party", act=log_in_and(tags), error=None,
           plays={TAGS: reply(307, Location="https://evil.registry.test/",
                              Set_Cookie=f"a={TOKEN}; Domain=registry.test; Path=/"),
                  MANIFESTS: reply(200, b"{}", Set_Cookie=f"a={TOKEN}; Domain=.test; Path=/")}),
    *(Attack(name=f"a redirect to {host}", says="points to",
             plays={MANIFESTS: redirect(f"https://{host}:9/x"), "GET https://[^r]": of_manifests(b"{}")})
      for host in NEAR_HOSTS),
    *(Attack(name=f"an upload to {host}", act=put_blob, says="points to",
             plays={**upload_at(f"https://{host}:9/x"), "PUT https://[^r]": reply(201)}) for host in NEAR_HOSTS),
    *(Attack(name=f"a token server at {host}", says="points to", challenge=realm(f"https://{host}/token"),
             plays={"GET https://[^r].*/token": token({"token": "x"})}) for host in NEAR_HOSTS),
    *(Attack(name=f"a realm at {address[:40]!r}", challenge=f'Bearer realm="{address}"', plays=COLLECT)
      for address in (*JUNK_ADDRESSES, "https://tokens.test/token#x", "/token", "token")),
    *(Attack(name=f"a redirect to {address[:40]!r}", plays={MANIFESTS: redirect(address), **COLLECT})
      for address in JUNK_ADDRESSES),
    *(Attack(name=f"a next page at {address[:40]!r}", act=tags,
             plays={TAGS: tag_list({"tags": ["a"]}, Link=f'<{address}>; rel="next"'), **COLLECT})
      for address in JUNK_ADDRESSES),
    *(Attack(name=f"an upload at {address[:40]!r}", act=put_blob, plays={**upload_at(address), **COLLECT})
      for address in JUNK_ADDRESSES),
]  # fmt: skip

DOCUMENTS = [
    *(Attack(name=f"a token that is {name}", challenge=BEARER, plays={TOKENS: token(value)}, says="token")
      for name, value in JUNK_TOKENS.items()),
    *(Attack(name=f"tags that are {name}", act=tags, plays={TAGS: tag_list(value)})
      for name, value in {
          "deep": DEEP, "a number": {"tags": 7}, "numbers": {"tags": [7]}, "nothing": b"",
          "infinite": b'{"tags": 1e999}',
          "paths": {"tags": ["../../other/manifests/1"]}, "too long": {"tags": ["a" * 129]}, "objects": {"tags": [{}]},
          "surrogates": b'{"tags": ["\\ud800"]}', "an array": [], "a list in a list": {"tags": [["a"]]},
      }.items()),
    *(Attack(name=f"a referrer's digest {str(digest)[:12]}…{str(digest)[-8:]!r}", act=referrers,
             plays={REFERRERS: tags_of({"manifests": [entry(digest)]})}) for digest in JUNK_DIGESTS),
    *(Attack(name=f"referrers that are {name}", act=referrers, plays={REFERRERS: tags_of(value)})
      for name, value in {
          "deep": DEEP, "a number": {"manifests": 7}, "numbers": {"manifests": [7]}, "an array": [], "nothing": b"",
          "of negative size": {"manifests": [entry(size=-1)]}, "of text for a size": {"manifests": [entry(size="x")]},
          "of infinite size": b'{"manifests": [{"size": 1e999}]}', "without fields": {"manifests": [{}]},
          "with annotations of a wrong type": {"manifests": [entry(annotations=[1])]},
          "with a kind of a wrong type": {"manifests": [entry(artifactType={})]},
      }.items()),
    *(Attack(name=f"a fallback list that is {name}", act=referrers,
             plays={REFERRERS: reply(404), MANIFESTS: tags_of(value)})
      for name, value in {
          "deep": DEEP, "a number": {"manifests": 7}, "of junk": {"manifests": [entry("x")]}, "an array": [],
          "of infinite size": b'{"manifests": [{"size": 1e999}]}', "text": b"hello",
      }.items()),
    *(Attack(name=f"errors that are {name}", plays={MANIFESTS: reply(400, document(value))}, says="refused a request")
      for name, value in {
          "deep": DEEP, "a number": {"errors": 7}, "numbers": {"errors": [7]}, "null": {"errors": None},
          "lists": {"errors": [{"code": [], "message": {}}]}, "infinite": b'{"errors": 1e999}', "an array": [],
          "long": {"errors": [{"code": "A", "message": "x" * 1_000_000}]},
          "many": {"errors": [{"code": "A"}] * 100_000},
      }.items()),
    Attack(name="a manifest that says it is nothing and is no JSON", error=None,
           plays={MANIFESTS: of_manifests(b"application/vnd.tfimg.nothing.v1 {")}),
    Attack(name="a manifest with the digest of another", error=TamperedError,
           plays={MANIFESTS: of_manifests(b"{}", Docker_Content_Digest="x" * 60_000)}),
    Attack(name="a manifest of an endless kind", plays={MANIFESTS: reply(200, b"{}", Content_Type="a" * 60_000)}),
    Attack(name="a tag that is a path", act=lambda client: client.find("../../other/manifests/1"), plays={}, requests=0,
           says="neither a tag nor a digest"),
    Attack(name="a digest that is a path", act=lambda client: b"".join(client.get_blob("sha256:../x")),
           plays={}, requests=0),
    Attack(name="a digest of referrers that is a path", act=lambda client: client.list_referrers("../x"),
           plays={}, requests=0),
    Attack(name="a digest with a query", act=lambda client: client.find(f"{OTHER}?x=1"), plays={}, requests=0),
    Attack(name="a manifest put to a path", act=lambda client: client.put("../x", manifest()), plays={}, requests=0),
    Attack(name="a path untagged", act=lambda client: client.delete_tag("../x"), plays={}, requests=0),
]  # fmt: skip

NUMBERS = [
    Attack(name="a Content-Length of 5,000 digits", act=blob, error=None,
           plays={BLOBS: lambda _: iter([head(200, Content_Length=DIGITS) + BLOB])}),
    Attack(name="a negative Content-Length", act=blob, error=None,
           plays={BLOBS: lambda _: iter([head(200, Content_Length="-5") + BLOB])}),
    Attack(name="two Content-Lengths", act=blob, error=(NetworkError, RegistryError), requests=200,
           plays={BLOBS: lambda _: iter([head(200, Content_Length="5", content_length="6") + BLOB])}),
    *(Attack(name=f"a Retry-After of {after[:24]}…{after[-6:]}", error=NetworkError,
             plays={MANIFESTS: reply(429, Retry_After=after)})
      for after in (DIGITS, f"-{DIGITS}", f"{DIGITS}.5", "Thu, 01 Jan 99999 00:00:00 GMT", "1e999", "\u00b2",
                    "Thu, 01 Jan 2026 00:00:00 +9999999999", "Thu, 99 Foo 2026 99:99:99 GMT",
                    "Thu, 01 Jan 0001 00:00:00 +1400", "Fri, 31 Dec 9999 23:59:59 GMT")),
    Attack(name="a status that is no number", error=NetworkError, requests=40,
           plays={MANIFESTS: lambda _: iter([b"HTTP/1.1 abc Test\r\n\r\n"])}),
    Attack(name="a status of 999", plays={MANIFESTS: reply(999)}),
    Attack(name="early hints", plays={MANIFESTS: lambda _: iter([head(103) + head(200)])}),
]  # fmt: skip

QUICK = {"response_seconds": 0.5, "read_seconds": 2.0, "connect_seconds": 2.0}
CHUNKED = head(200, Transfer_Encoding="chunked", Content_Type=OCI_MANIFEST)
BOTH = (RegistryError, NetworkError)

BOUNDS = [
    Attack(name="an endless manifest", plays={MANIFESTS: endless(head(200), bytes(1 << 16))}),
    Attack(name="an endless error", plays={MANIFESTS: endless(head(500), bytes(1 << 16))}),
    Attack(name="an endless token", challenge=BEARER, plays={TOKENS: endless(head(200), bytes(1 << 16))}),
    Attack(name="an endless refusal of a token", challenge=BEARER, plays={TOKENS: endless(head(403), bytes(1 << 16))}),
    Attack(name="an endless redirect",
           plays={MANIFESTS: endless(head(307, Location="https://other.test/x"), bytes(1 << 16)),
                  "GET https://other.test": of_manifests(b"{}")}),
    Attack(name="an endless redirect of a token", challenge=BEARER,
           plays={TOKENS: endless(head(307, Location="https://other.test/x"), bytes(1 << 16))}),
    Attack(name="an endless 401", plays={MANIFESTS: endless(head(401), bytes(1 << 16))}),
    Attack(name="100 Continue without end", error=BOTH, plays={MANIFESTS: endless(b"", head(100) * 100)}),
    Attack(name="100 Continue without end from a token server", error=BOTH, challenge=BEARER,
           plays={TOKENS: endless(b"", head(100) * 100)}),
    Attack(name="headers without end", error=BOTH,
           plays={MANIFESTS: endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100)}),
    Attack(name="one header without end", error=BOTH,
           plays={MANIFESTS: endless(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 4096)}),
    Attack(name="a status line without end", error=BOTH, plays={MANIFESTS: endless(b"HTTP/1.1 200 ", b"y" * 4096)}),
    Attack(name="a chunk size without end", error=BOTH, act=blob,
           plays={BLOBS: endless(CHUNKED + b"1;", b"x" * 65536)}),
    Attack(name="a chunk of negative size", error=(*BOTH, TamperedError), act=read_sized_blob,
           plays={BLOBS: endless(CHUNKED + b"-1\r\n", b"x" * 65536)}),
    Attack(name="a manifest in a chunk of negative size", error=BOTH,
           plays={MANIFESTS: endless(CHUNKED + b"-5\r\n", b"x" * 65536)}),
    Attack(name="trailers without end", error=BOTH,
           plays={MANIFESTS: endless(CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: y\r\n" * 1000)}),
    Attack(name="trailers of a blob without end", error=BOTH, act=blob,
           plays={BLOBS: endless(CHUNKED + b"fa0\r\n" + BLOB + b"\r\n0\r\n", b"X: y\r\n" * 1000)}),
    Attack(name="a blob without end", error=TamperedError, act=read_sized_blob,
           plays={BLOBS: endless(head(200), bytes(1 << 16))}),
    Attack(name="a blob without end, in small pieces", error=TamperedError, act=read_sized_blob,
           plays={BLOBS: endless(head(200), bytes(1000), 0.002)}),
    Attack(name="a blob that no manifest names, of 90 TiB", error=TamperedError, act=blob,
           plays={BLOBS: endless(head(200, Content_Length="99999999999999"), bytes(1 << 16))}),
    Attack(name="a blob that is longer than its descriptor says", error=TamperedError, act=read_sized_blob,
           plays={BLOBS: reply(200, BLOB + b"x")}),
    Attack(name="a blob that is shorter than its descriptor says", error=TamperedError, act=read_sized_blob,
           plays={BLOBS: reply(200, BLOB[:-1])}),
    Attack(name="a blob that is cut after each byte", error=(NetworkError, TamperedError), act=blob, requests=150,
           plays={BLOBS: one_byte_at_a_time}),
    Attack(name="a blob with a compression bomb", error=TamperedError, act=read_sized_blob,
           plays={BLOBS: reply(200, GIB, Content_Encoding="gzip")}),
    Attack(name="a manifest with a compression bomb", error=None,
           plays={MANIFESTS: reply(200, GIB, Content_Encoding="gzip")}),
    Attack(name="a token with a compression bomb", challenge=BEARER,
           plays={TOKENS: reply(200, GIB, Content_Encoding="gzip")}),
    Attack(name="redirects without end", says="more than 5 redirects in a row", plays={
        MANIFESTS: redirect(f"{HOST}/v2/team/tf/manifests/1")}),
    Attack(name="redirects to ever new places",
           plays={f"GET {HOST}": lambda request: redirect(f"{request.origin}{request.path}x")}),
    Attack(name="pages of tags that always bring a new one", act=tags, plays={TAGS: new_tags()}, requests=1100,
           says="more than 1000 pages"),
    Attack(name="pages of many tags", act=tags, plays={TAGS: new_tags(5000)}, says="more than 100000 tags"),
    Attack(name="large pages of referrers", act=referrers, plays={REFERRERS: large_pages()}, says="more than 16 MiB"),
    Attack(name="a registry that asks again and again",
           plays={f"GET {HOST}": challenge_of(BEARER), TOKENS: token({"token": "x"})},
           challenge=BEARER),
    Attack(name="a manifest that drips", error=BOTH, settings=QUICK,
           plays={MANIFESTS: endless(head(200, Content_Length="10000"), b"x", 0.02)}),
    Attack(name="headers that drip", error=BOTH, settings=QUICK,
           plays={MANIFESTS: endless(b"HTTP/1.1 200 OK\r\nX: ", b"y", 0.02)}),
    Attack(name="a status line that drips", error=BOTH, settings=QUICK,
           plays={MANIFESTS: endless(b"HTTP/1.1 200 ", b"y", 0.02)}),
    Attack(name="100 Continue that drips", error=BOTH, settings=QUICK,
           plays={MANIFESTS: endless(b"", head(100), 0.02)}),
    Attack(name="a chunk size that drips", error=BOTH, settings=QUICK,
           plays={MANIFESTS: endless(CHUNKED + b"1;", b"x", 0.02)}),
    Attack(name="a token that drips", error=BOTH, settings=QUICK, challenge=BEARER,
           plays={TOKENS: endless(head(200, Content_Length="10000"), b"x", 0.02)}),
    Attack(name="a blob that drips", error=BOTH, settings=QUICK, act=blob,
           plays={BLOBS: endless(head(200, Content_Length="10000"), b"x", 0.02)}),
    Attack(name="pages that drip", error=BOTH, settings=QUICK, act=tags,
           plays={TAGS: slow_page}),
    Attack(name="a probe for TLS that is redirected without end", direct=True, tls=True, error=None,
           plays={"GET https://127.0.0.1:[0-9]+/v2/$": endless(head(307, Location="/v2/"), bytes(1 << 16))}),
    Attack(name="a probe for TLS that is sent to a third party", direct=True, tls=True, error=None,
           plays={"GET https://127.0.0.1:[0-9]+/v2/$": redirect("https://127.0.0.2:9/")}),
    Attack(name="a probe for TLS that is redirected to junk", direct=True, tls=True, error=None,
           plays={"GET https://127.0.0.1:[0-9]+/v2/$": redirect("https://[::1")}),
    Attack(name="an endless 100 Continue of the probe", direct=True, tls=True, error=BOTH,
           plays={"GET https://127.0.0.1:[0-9]+/v2/$": endless(b"", head(100) * 100)}),
    Attack(name="an endless probe", direct=True, tls=True, error=None,
           plays={"GET https://127.0.0.1:[0-9]+/v2/$": endless(head(200), bytes(1 << 16))}),
]  # fmt: skip


ALLOWED = [
    Attack(name="blobs in a store of another host", act=log_in_and(blob), error=None,
           plays={BLOBS: redirect("https://store.test/x?signature=%2F"), "GET https://store.test": reply(200, BLOB)}),
    Attack(name="a token server of another host with TLS", challenge=BEARER, error=None,
           plays={TOKENS: token({"access_token": TOKEN, "expires_in": 60})}),
    Attack(name="an identity token at a token server of another host with TLS", challenge=BEARER, identity=True,
           error=None,
           plays={TOKENS: token({"token": TOKEN})}),
    Attack(name="a redirect to the registry in other letters", error=None, act=log_in_and(find), plays={
        MANIFESTS: redirect("https://REGISTRY.test:443/v2/elsewhere"),
        "GET https://(?i:registry).test(:443)?/v2/elsewhere": lambda request: (
            of_manifests(b"{}") if "authorization" in request.headers else reply(404))}),
    Attack(name="plain HTTP, and a token server on the same host", plain=True, error=None,
           challenge=realm("http://registry.test:5001/token"),
           plays={"GET http://registry.test:5001/token": token({"token": TOKEN})}),
    Attack(name="numbers in errors", plays={MANIFESTS: reply(404, b'{"errors": [{"code": 7}]}')}, error=None),
    Attack(name="a list of tags that is null", act=tags, plays={TAGS: tag_list({"tags": None})}, error=None),
]  # fmt: skip

ATTACKS = [*LEAKS, *DOCUMENTS, *NUMBERS, *BOUNDS, *ALLOWED]
