"""A package index that attacks: every attack ends in one error of ours, in bounded time and memory."""

import gzip
import io
import json
import resource
import ssl
import time
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.hostile_wheels import ATTACKS, write_hostile_wheel
from support.http_server import AnyMethod, Server, serving
from support.mutated_documents import cases
from support.wheels import lock_line
from tfimg.core.errors import InternalError, InvalidWheel, NetworkError, TfimgError
from tfimg.index.client import Index
from tfimg.layers.layers import LayerStore, WheelSource, make_layers

JSON = "application/vnd.pypi.simple.v1+json"
HTML = "text/html"
WHEEL = "thing-1.0-py3-none-any.whl"
METADATA = "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n"
BUILD_INFO = "tensorflow/python/platform/build_info.py"
MAX_SENT = 64 << 20
"""Bytes after which an endless response ends: the client has failed then."""

Reply = Callable[["Request"], None]


@dataclass
class HostileIndex:
    """Replies by the beginning of a path; the longest that fits counts. `requested` has path and Authorization."""

    url: str = ""
    replies: dict[str, Reply] = field(default_factory=dict)
    requested: list[tuple[str, str | None]] = field(default_factory=list)


class Request(AnyMethod):
    """A request, with the ways to answer it that attacks are made of."""

    def answer(self) -> None:
        subject: HostileIndex = cast("Server", self.server).subject
        subject.requested.append((self.path, self.headers.get("Authorization")))
        fitting = [path for path in subject.replies if self.path.startswith(path)]
        self.close_connection = True
        with suppress(OSError):  # the client has seen enough
            reply = subject.replies[max(fitting, key=len)] if fitting else reply_of(b"", status=404)
            reply(self)

    def head(self, status: int, **headers: str) -> None:
        """Send status and headers; `_` in a name stands for `-`."""
        lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        self.wfile.write("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))

    def whole(self, status: int, kind: str, content: bytes, **headers: str) -> None:
        """Send an honest response."""
        self.head(status, Content_Type=kind, Content_Length=str(len(content)), **headers)
        self.wfile.write(content)

    def endlessly(self, piece: bytes) -> None:
        """Send a piece until the client hangs up."""
        pieces = piece * max(1, 65536 // len(piece))
        for _ in range(MAX_SENT // len(pieces)):
            self.wfile.write(pieces)

    def slowly(self, piece: bytes) -> None:
        """Send a piece every 20 ms, for 10 seconds."""
        for _ in range(500):
            self.wfile.write(piece)
            self.wfile.flush()
            time.sleep(0.02)


@contextmanager
def hostile_index(replies: Mapping[str, Reply], tls: ssl.SSLContext | None = None) -> Iterator[HostileIndex]:
    """Serve an index with these replies."""
    index = HostileIndex(replies=dict(replies))
    with serving(Request, index, tls) as address:
        index.url = f"{'https' if tls else 'http'}://{address}"
        yield index


# Pages.


def page(files: Any = (), **document: Any) -> bytes:
    """Return a page in JSON."""
    return json.dumps({"meta": {"api-version": "1.1"}, "name": "thing", "files": files, **document}).encode()


def a_file(**changes: Any) -> dict[str, Any]:
    """Return a file of a page."""
    return {"filename": WHEEL, "url": f"/files/{WHEEL}", "hashes": {}, **changes}


def reply_of(content: bytes, kind: str = JSON, status: int = 200, **headers: str) -> Reply:
    """Return the reply that sends this."""
    return lambda request: request.whole(status, kind, content, **headers)


def file_page(**changes: Any) -> Reply:
    """Return the reply that is a page of one file with these fields."""
    return reply_of(page([a_file(**changes)]))


def no_end(start: bytes, piece: bytes, kind: str = JSON) -> Reply:
    """Return the reply that does not end."""

    def reply(request: Request) -> None:
        request.head(200, Content_Type=kind)
        request.wfile.write(start)
        request.endlessly(piece)

    return reply


def endless_chunks(start: bytes, piece: bytes) -> Reply:
    """Return the reply in chunks that does not end, or not where a chunk should."""

    def reply(request: Request) -> None:
        request.head(200, Content_Type=JSON, Transfer_Encoding="chunked")
        request.wfile.write(start)
        request.endlessly(piece)

    return reply


def endless_raw(start: bytes, piece: bytes) -> Reply:
    """Return the reply whose head does not end."""

    def reply(request: Request) -> None:
        request.wfile.write(start)
        request.endlessly(piece)

    return reply


def endless_status(status: int, **headers: str) -> Reply:
    """Return the reply of this status with an endless body."""

    def reply(request: Request) -> None:
        request.head(status, Content_Type=HTML, **headers)
        request.endlessly(b"<p>")

    return reply


def slow_reply(start: bytes, piece: bytes) -> Reply:
    """Return the reply that sends one byte after another."""

    def reply(request: Request) -> None:
        request.wfile.write(start)
        request.slowly(piece)

    return reply


def redirects(location: str) -> Reply:
    """Return the reply that redirects there."""
    return lambda request: request.whole(302, HTML, b"", Location=location)


@cache
def packed_spaces(times: int) -> bytes:
    """Return 100 MB of spaces, compressed so many times."""
    return gzip.compress(b" " * 100_000_000 if times == 1 else packed_spaces(times - 1), 9)


@pytest.fixture(scope="module", autouse=True)
def prepared() -> None:
    """Pack what takes longer than clients wait in these tests."""
    packed_spaces(2)


def bomb(times: int = 1, kind: str = JSON) -> Reply:
    """Return the reply with 100 MB that are compressed. `prepared` packs them."""
    encoding = ", ".join(["gzip"] * times)
    return lambda request: request.whole(200, kind, packed_spaces(times), Content_Encoding=encoding)


# Wheels in ranges.


def archive(members: Mapping[str, bytes | str]) -> bytes:
    """Return a zip archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as written:
        for name, text in members.items():
            written.writestr(name, text)
    return content.getvalue()


def ranged(content: bytes, change: Callable[[int, int, int], str] | None = None, extra: bytes = b"") -> Reply:
    """Return the reply with the requested range; `change` makes its Content-Range, `extra` follows it."""

    def reply(request: Request) -> None:
        first, _, last = request.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(content) - int(last))
        end = min(int(last), len(content) - 1) if first and last else len(content) - 1
        stated = (change or (lambda *span: "bytes {}-{}/{}".format(*span)))(start, end, len(content))
        body = content[start : end + 1] + extra
        request.whole(206, "application/octet-stream", body, Content_Range=stated)

    return reply


def wheel_with(build: str = "", metadata: str = METADATA) -> Reply:
    """Return the reply with ranges of a wheel of TensorFlow."""
    members = {"thing-1.0.dist-info/METADATA": metadata, **({BUILD_INFO: build} if build else {})}
    pack = cache(lambda: ranged(archive(members)))
    return lambda request: pack()(request)  # packed when it is served, not by each worker that collects


def wide_directory() -> bytes:
    """Return an archive that states a directory of 3 GB."""
    size = 3_000_000_000
    return b"PK\5\6" + bytes(4) + b"\1\0\1\0" + size.to_bytes(4, "little") + bytes(4) + bytes(2)


@dataclass(frozen=True)
class Attack:
    """Replies by path, and the pattern that the error's text has."""

    replies: Mapping[str, Reply]
    error: str


def of_page(reply: Reply, error: str) -> Attack:
    """Return an attack by the page of a project."""
    return Attack({"/simple/": reply}, error)


def of_file(reply: Reply, error: str, **changes: Any) -> Attack:
    """Return an attack by a wheel."""
    return Attack({"/simple/": file_page(**changes), "/files/": reply}, error)


def of_metadata(reply: Reply, error: str) -> Attack:
    """Return an attack by the metadata beside a wheel."""
    return Attack({"/simple/": file_page(**{"core-metadata": True}), f"/files/{WHEEL}.metadata": reply}, error)


UNREADABLE = "Cannot read the wheels of thing from the package index: "
NONE = r"The package index has no thing 1\.0 with sha256"
OK = b"HTTP/1.1 200 OK\r\n"
LONG = "a" * 100_000
LETTERS = ".".join("abcdefghijklmnopqrstuvwxyz")

PAGES: Mapping[str, Attack] = {
    # Without end.
    "endless page": of_page(no_end(b'{"files": [', b'{"filename": "x"},'), f"{UNREADABLE}.*more than 33554432 bytes"),
    "endless spaces": of_page(no_end(b"", b" "), f"{UNREADABLE}.*more than 33554432 bytes"),
    "endless page in HTML": of_page(no_end(b"", b"<a>", HTML), f"{UNREADABLE}.*more than 8388608 bytes"),
    "endless chunks": of_page(endless_chunks(b"", b"400\r\n" + b" " * 1024 + b"\r\n"), f"{UNREADABLE}.*more than"),
    "endless size of a chunk": of_page(endless_chunks(b"", b"0"), f"{UNREADABLE}.*"),
    "endless trailers": of_page(endless_chunks(b"1\r\n \r\n0\r\n", b"a: " + b"b" * 1000 + b"\r\n"), f"{UNREADABLE}.*"),
    "endless status line": of_page(endless_raw(b"HTTP/1.1 200 ", b"a"), f"{UNREADABLE}.*"),
    "endless headers": of_page(endless_raw(OK, b"a: b\r\n"), f"{UNREADABLE}.*"),
    "endless 100 Continue": of_page(
        endless_raw(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), f"{UNREADABLE}.*more than 1 MiB of headers"
    ),
    "endless body of a redirect": of_page(endless_status(302, Location="/simple/thing/"), f"{UNREADABLE}.*"),
    "endless body of an error": of_page(endless_status(403), f"{UNREADABLE}.* 403 Forbidden"),
    "endless body of what is asked again": of_page(endless_status(503), f"{UNREADABLE}.*"),
    "endless body of 404": of_page(endless_status(404), NONE),
    "endless redirects": of_page(redirects("/simple/thing/"), f"{UNREADABLE}it redirects more than 5 times"),
    "ask again in 30 years": of_page(reply_of(b"", status=503, Retry_After="999999999"), f"{UNREADABLE}.*503"),
    "bomb": of_page(bomb(), f"{UNREADABLE}.*more than 33554432 bytes"),
    "bomb in a bomb": of_page(bomb(times=2), f"{UNREADABLE}.*more than"),
    "torn gzip": of_page(reply_of(gzip.compress(b" " * 100)[:-9], Content_Encoding="gzip"), f"{UNREADABLE}.*"),
    "no gzip": of_page(reply_of(b"no gzip", Content_Encoding="gzip"), f"{UNREADABLE}.*"),
    "negative length": of_page(endless_raw(OK + b"Content-Length: -1\r\n\r\n", b" "), f"{UNREADABLE}.*"),
    "two lengths": of_page(
        lambda request: request.wfile.write(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}"), f"{UNREADABLE}.*"
    ),
    "less than its length": of_page(
        lambda request: request.wfile.write(OK + b"Content-Length: 100\r\n\r\n{}"), f"{UNREADABLE}.*"
    ),
    "no HTTP": of_page(lambda request: request.wfile.write(b"\x00\xff" * 100 + b"\r\n"), f"{UNREADABLE}.*"),
    "nothing": of_page(lambda _: None, f"{UNREADABLE}.*"),
    # Slow.
    "slow page": of_page(slow_reply(OK + b"Content-Type: application/json\r\n\r\n", b" "), f"{UNREADABLE}.*"),
    "silence": of_page(lambda _: time.sleep(5), f"{UNREADABLE}.* did not answer in time"),
    "slow headers": of_page(slow_reply(OK + b"X: ", b"a"), f"{UNREADABLE}.*"),
    "slow 100 Continue": of_page(slow_reply(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), f"{UNREADABLE}.*"),
    # Redirects elsewhere.
    "redirect to a file": of_page(redirects("file:///etc/passwd"), f"{UNREADABLE}.*is not reached by http"),
    "redirect to gopher": of_page(redirects("gopher://127.0.0.1/"), f"{UNREADABLE}.*is not reached by http"),
    "redirect to half an address": of_page(redirects("http://[::1"), f"{UNREADABLE}.*"),
    "redirect to no port": of_page(redirects("http://127.0.0.1:99999/"), f"{UNREADABLE}.*"),
    "redirect in Latin": of_page(redirects("/\xff\xfe"), NONE),
    "redirect to nowhere": of_page(redirects(""), f"{UNREADABLE}.*"),
    # Content.
    "deep JSON": of_page(reply_of(b"[" * 1_000_000), f"{UNREADABLE}it is not valid JSON"),
    "deep JSON in a field": of_page(
        reply_of(b'{"files": ' + b'{"a":' * 150 + b"1" + b"}" * 150 + b"}"), f"{UNREADABLE}it is nested more than 64"
    ),
    "1e999": of_page(reply_of(b'{"files": [], "x": 1e999}'), f"{UNREADABLE}.*"),
    "NaN": of_page(reply_of(b'{"files": [NaN]}'), f"{UNREADABLE}it is not valid JSON"),
    "not UTF-8": of_page(reply_of(b'{"files": "\xff"}'), f"{UNREADABLE}it is not valid JSON"),
    "lone surrogate": of_page(reply_of(b'{"files": "\\ud800"}'), f"{UNREADABLE}it is not valid JSON"),
    "a million values": of_page(reply_of(page([0] * 1_000_001)), f"{UNREADABLE}it has more than 1000000 values"),
    "no files": of_page(reply_of(b'{"meta": {"api-version": "1.0"}}'), f"{UNREADABLE}files: field required"),
    "files are a number": of_page(reply_of(page(7)), f"{UNREADABLE}files: "),
    "a file is null": of_page(reply_of(page([None])), rf"{UNREADABLE}files\.0: "),
    "name is null": of_page(file_page(filename=None), NONE),
    "address is a number": of_page(file_page(url=7), f"{UNREADABLE}a file is invalid: url: input should be"),
    "hashes are a list": of_page(file_page(hashes=[]), f"{UNREADABLE}a file is invalid: hashes: "),
    "withdrawn by an object": of_page(file_page(yanked={}), f"{UNREADABLE}a file is invalid: yanked"),
    "before the first year": of_page(file_page(**{"upload-time": "0001-01-01T00:00:00+23:59"}), f"{UNREADABLE}.*"),
    "after the last year": of_page(file_page(**{"upload-time": "9999-12-31T23:59:59-23:59"}), f"{UNREADABLE}.*"),
    "version 1e999": of_page(reply_of(page(meta={"api-version": "1e999"})), f"{UNREADABLE}meta.api-version: "),
    "type of an image": of_page(reply_of(page(), "image/png"), f"{UNREADABLE}its answer is image/png"),
    "no type": of_page(lambda request: request.wfile.write(OK + b"\r\n{}"), f"{UNREADABLE}its answer is of no type"),
    "type with an escape": of_page(reply_of(page(), "a\x1b[31m"), f"{UNREADABLE}its answer is a.x1b"),
    "reason with an escape": of_page(
        lambda request: request.wfile.write(b"HTTP/1.1 403 \x1b[31mred\r\nContent-Length: 0\r\n\r\n"),
        f"{UNREADABLE}.* 403 Forbidden",
    ),
    # File names and addresses.
    "name that leaves": of_page(file_page(filename=f"../../{WHEEL}"), NONE),
    "tag that leaves": of_page(file_page(filename="thing-1.0-py3-none-../../any.whl"), NONE),
    "build tag that leaves": of_page(file_page(filename="thing-1.0-1/../../x-py3-none-any.whl"), NONE),
    "name with an escape": of_page(file_page(filename="thing-1.0-py3-none-any\x1b[31m.whl"), NONE),
    "name with a NUL": of_page(file_page(filename="thing-1.0-py3-none-any\0.whl"), NONE),
    "name of another project": of_page(file_page(filename="other-1.0-py3-none-any.whl"), NONE),
    "name of 100,000 letters": of_page(file_page(filename=f"thing-1.0-py3-none-{LONG}.whl"), NONE),
    "name of dashes": of_page(file_page(filename=f"thing-1{'-' * 230}.whl"), NONE),
    "name of 50,000 dashes": of_page(file_page(filename=f"thing-1{'-' * 50_000}.whl"), NONE),
    "17,576 tags": of_page(file_page(filename=f"thing-1.0-{'-'.join([LETTERS] * 3)}.whl"), NONE),
    "address on the disk": of_page(
        file_page(url="file:///etc/passwd"), "the file .*: it names file:///etc/passwd, which is not reached by http"
    ),
    "address of an editor": of_page(file_page(url="javascript:alert(1)"), "the file .*which is not reached by http"),
    "half an address": of_page(file_page(url="http://[::1"), "the file .*: Invalid IPv6 URL"),
    "nested links": of_page(reply_of(b"<a href=x>x" * 50_000, HTML), NONE),
    "nested links to wheels": of_page(reply_of(b"<a href=other-1.0-py3-none-any.whl>" * 50_000, HTML), NONE),
    "nested elements": of_page(reply_of(b"<b>" * 50_000 + b"</i>" * 50_000, HTML), NONE),
    "open comments": of_page(reply_of(b"<!--" * 1_000_000, HTML), NONE),
    "marked sections": of_page(reply_of(b"<![" * 100_000, HTML), f"{UNREADABLE}its page is not HTML"),
    "number of 5,000 digits": of_page(
        reply_of(f'<a href="/&#{"9" * 5000};{WHEEL}"></a>'.encode(), HTML), f"{UNREADABLE}.*|{NONE}"
    ),
    "HTML with half a base": of_page(
        reply_of(f'<base href="http://[::1"><a href="x">{WHEEL}</a>'.encode(), HTML), f"{UNREADABLE}.*"
    ),
}  # fmt: skip
"""Attacks by the page of a project."""

NO_FILE = rf"Cannot read the file {WHEEL} from the package index: "
FILES: Mapping[str, Attack] = {
    "larger than stated": of_file(
        no_end(b"", b"x", "application/octet-stream"), f"{NO_FILE}.*more than 1000 bytes", size=1000
    ),
    "endless": of_file(no_end(b"", b"x", "application/octet-stream"), f"{NO_FILE}.*more than 10000000 bytes"),
    "endless, of a huge size": of_file(
        no_end(b"", b"x", "application/octet-stream"), f"{NO_FILE}.*more than 10000000 bytes", size=10**30
    ),
    "larger than nothing": of_file(reply_of(b"x"), f"{NO_FILE}.*more than -1 bytes", size=-1),
    "bomb": of_file(bomb(kind="application/octet-stream"), f"{NO_FILE}.*more than 1000 bytes", size=1000),
    "smaller than stated": of_file(reply_of(b"x"), f"{WHEEL} has sha256", size=1000),
    "other bytes": of_file(reply_of(b"x" * 1000), f"{WHEEL} has sha256"),
    "ends early": of_file(lambda request: request.wfile.write(OK + b"Content-Length: 99\r\n\r\nx"), f"{NO_FILE}.*"),
    "gone": of_file(reply_of(b"", status=404), f"{NO_FILE}.* 404 Not Found"),
    "slow": of_file(slow_reply(OK + b"\r\n", b"x"), f"{NO_FILE}.*"),
    "redirect to a file": of_file(redirects("file:///etc/passwd"), f"{NO_FILE}.*is not reached by http"),
    "endless redirects": of_file(redirects(f"/files/{WHEEL}"), f"{NO_FILE}it redirects more than 5 times"),
}  # fmt: skip
"""Attacks by the bytes of a wheel."""

NO_METADATA = rf"Cannot read the metadata of {WHEEL} from the package index: "
BESIDE: Mapping[str, Attack] = {
    "endless": of_metadata(no_end(METADATA.encode(), b"\nx"), f"{NO_METADATA}.*more than 4194304 bytes"),
    "not text": of_metadata(reply_of(METADATA.encode() + b"\xff"), f"{NO_METADATA}.*"),
    "a page": of_metadata(reply_of(b"<html>", HTML), f"{NO_METADATA}it is not a METADATA file"),
    "no requirement": of_metadata(reply_of(f"{METADATA}Requires-Dist: ===\n".encode()), f"{NO_METADATA}.*"),
    "nested requirement": of_metadata(
        reply_of(f"{METADATA}Requires-Dist: x; {'(' * 50_000}\n".encode()),
        # packaging 26.4 limits the depth itself.
        f"{NO_METADATA}(a requirement is|Marker expression is) nested"
    ),
    "undefined comparison": of_metadata(
        reply_of(f"{METADATA}Requires-Dist: x; os_name ~= 'a'\n".encode()), f"{NO_METADATA}a marker cannot be evaluated"
    ),
    "unknown variable": of_metadata(
        reply_of(f"{METADATA}Requires-Dist: x; extras == 'a'\n".encode()), f"{NO_METADATA}a marker cannot be evaluated"
    ),
}  # fmt: skip
"""Attacks by the metadata beside a wheel."""

INSIDE: Mapping[str, Attack] = {
    name: Attack({"/simple/": file_page(), "/files/": reply}, f"{NO_METADATA}{error}")
    for name, reply, error in (
        ("another range", ranged(archive({}), lambda *_: "bytes 0-0/1000000"), ".*"),
        ("range of a petabyte", ranged(archive({}), lambda *_: f"bytes 0-{10**15}/{10**15 + 1}"), ".*"),
        ("endless range of a petabyte", endless_raw(
            OK.replace(b"200", b"206") + b"Content-Range: bytes 0-%d/%d\r\n\r\n" % (10**15, 10**15 + 1), b"x"
        ), "it has more than 16777216 bytes"),
        ("backward range", ranged(archive({}), lambda *_: "bytes 9-2/22"), ".*"),
        ("range without a size", ranged(archive({}), lambda *_: "bytes 0-21/*"), ".*"),
        ("range in words", ranged(archive({}), lambda *_: "all of it"), "Malformed Content-Range"),
        ("range of 5,000 digits", ranged(archive({}), lambda *_: f"bytes 0-{'9' * 5000}/9"), ".*"),
        ("endless range", endless_raw(
            OK.replace(b"200", b"206") + b"Content-Range: bytes 0-21/22\r\n\r\n", b"PK\5\6" + bytes(18)
        ), ".*"),
        ("empty range", ranged(b"", lambda *_: "bytes 0-21/22"), ".*"),
        ("no archive", ranged(b"x" * 1000), "File is not a zip file"),
        ("no METADATA", ranged(archive({"x": "y"})), "it holds no METADATA"),
        ("directory of 3 GB", ranged(wide_directory()), ".*"),
        # The flag of encryption, in the directory's entry (APPNOTE.TXT 4.3.12).
        ("encrypted", ranged(archive({"thing-1.0.dist-info/METADATA": METADATA}).replace(
            b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0\1\0"
        )), "File 'thing-1.0.dist-info/METADATA' is encrypted"),
        ("bomb", wheel_with(metadata=METADATA + "\n" + " " * 5_000_000), ".*more than 4194304 bytes"),
        ("bomb of build information", wheel_with("#" * 5_000_000), ".*more than 65536 bytes"),
        ("deep build information", wheel_with("build_info = " + "[" * 30_000), ".*assigns no build_info"),
        ("long sum", wheel_with("build_info = " + "1+" * 20_000 + "1"), ".*assigns no build_info"),
        ("1e999 in Python", wheel_with("build_info = {'cuda_version': 1e999}"), ".*"),
        ("wrong types", wheel_with("build_info = {'cuda_version': {'a': 1}}"), ".*"),
        ("keys are numbers", wheel_with("build_info = {1: '2'}"), ".*"),
        ("NUL in Python", wheel_with("build_info = \0"), ".*"),
    )
}  # fmt: skip
"""Attacks by ranges of a wheel."""


MAX_KILOBYTES = 300_000
LINKED = "linked-1.0-py3-none-any.whl"
SECRET = "aGFuczpodW50ZXIy"
"""`hans:hunter2` in a header."""

pytestmark = pytest.mark.timeout(20)


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Wait for less, and let no attack take more memory than this."""
    monkeypatch.setattr("tfimg.index.client.GRACE_SECONDS", 1)
    monkeypatch.setattr("tfimg.index.client.TIMEOUT_SECONDS", 1)
    monkeypatch.setattr("tfimg.index.client.MAX_WHEEL", 10_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_KILOBYTES


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return write_hostile_wheel(tmp_path)


def build(url: str, wheel: Path) -> None:
    """Make the layer of a lock that pins a wheel."""
    store = LayerStore(folder=wheel.parent / "store")
    source = WheelSource(indexes=[Index(url, attempts=1)])
    make_layers({"packages": lock_line(wheel)}, store, source=source, compression="fast", on_event=lambda *_: None)


def assert_refused(error: str, act: Callable[[], object]) -> None:
    with pytest.raises(TfimgError, match=error) as caught:
        act()
    message = str(caught.value)
    assert not isinstance(caught.value, InternalError)
    assert message.isprintable(), "nothing of the index reaches the terminal that could change it"
    assert len(message) < 1500


def rows(attacks: Mapping[str, Attack]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("attack", attacks.values(), ids=list(attacks))


@rows(
    {**{f"page: {name}": one for name, one in PAGES.items()}, **{f"file: {name}": one for name, one in FILES.items()}}
)
def test_a_build_refuses_it(attack: Attack, wheel: Path) -> None:
    with hostile_index(attack.replies) as served:
        assert_refused(attack.error, lambda: build(f"{served.url}/simple", wheel))
    assert [file.name for file in wheel.parent.rglob("*.whl")] == [wheel.name], "nothing is kept or escapes"


@rows(
    {
        **{f"beside: {name}": one for name, one in BESIDE.items()},
        **{f"inside: {name}": one for name, one in INSIDE.items()},
    }
)
def test_a_survey_refuses_it(attack: Attack) -> None:
    with hostile_index(attack.replies) as served:
        index = Index(f"{served.url}/simple", attempts=1)
        (wheel,) = index.wheels("thing")
        assert_refused(attack.error, lambda: index.read_metadata(wheel, build=not wheel.has_metadata))


@pytest.mark.parametrize("attack", ["parent", "more than declared", "no RECORD", "script above", "data is a file"])
def test_a_wheel_of_the_locked_hash_is_still_checked(attack: str, tmp_path: Path) -> None:
    wheel = ATTACKS[attack](tmp_path)
    replies = {"/simple/": file_page(), "/files/": reply_of(wheel.read_bytes(), "application/octet-stream")}
    with hostile_index(replies) as served, pytest.raises(InvalidWheel, match=f"^{WHEEL} is not a valid wheel: "):
        build(f"{served.url}/simple", wheel)
    assert not list((tmp_path / "store").rglob("*.whl"))


def test_an_honest_index_is_built_from(wheel: Path) -> None:
    replies = {"/simple/": file_page(size=wheel.stat().st_size), "/files/": reply_of(wheel.read_bytes(), "binary")}
    with hostile_index(replies) as served:
        build(f"{served.url}/simple", wheel)


# Credentials.


@pytest.mark.parametrize("source", ["address", "netrc"])
@pytest.mark.parametrize("way", ["redirect of the page", "redirect of a file", "address of a file", "base of a page"])
def test_credentials_stay_at_the_origin_of_the_index(
    way: str, source: str, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = reply_of(wheel.read_bytes(), "application/octet-stream")
    if source == "netrc":
        (wheel.parent / "netrc").write_text("machine 127.0.0.1 login hans password hunter2\n")
        monkeypatch.setenv("NETRC", str(wheel.parent / "netrc"))
    with hostile_index({"/simple/": file_page(), "/files/": content}) as other:
        there = f"{other.url}/files/{WHEEL}"
        replies = {
            "redirect of the page": {"/simple/": redirects(f"{other.url}/simple/thing/")},
            "redirect of a file": {"/simple/": file_page(), "/files/": redirects(there)},
            "address of a file": {"/simple/": file_page(url=there)},
            "base of a page": {
                "/simple/": reply_of(
                    f'<base href="{other.url}"><a href="/files/{WHEEL}">{WHEEL}</a>'.encode(), "text/html"
                )
            },
        }[way]
        with hostile_index(replies) as served:
            url = served.url.replace("//", "//hans:hunter2@") if source == "address" else served.url
            build(f"{url}/simple", wheel)
    assert {authorization for _, authorization in served.requested} == {f"Basic {SECRET}"}
    assert other.requested
    assert {authorization for _, authorization in other.requested} == {None}


def test_credentials_are_sent_for_absolute_addresses_of_the_index_itself(wheel: Path) -> None:
    content = reply_of(wheel.read_bytes(), "application/octet-stream")
    with hostile_index({"/files/": content}) as served:
        served.replies["/simple/"] = file_page(url=f"{served.url}/files/{WHEEL}")
        build(f"{served.url.replace('//', '//hans:hunter2@')}/simple", wheel)
    assert [authorization for _, authorization in served.requested] == [f"Basic {SECRET}"] * 2


@pytest.mark.parametrize("named", ["hans", "hans:", "hans:p%40ss"])
def test_credentials_of_an_address_are_sent_as_they_are_meant(named: str) -> None:
    with hostile_index({"/simple/": reply_of(page())}) as served:
        Index(f"{served.url.replace('//', f'//{named}@')}/simple", attempts=1).wheels("thing")
    sent = f"{named if ':' in named else f'{named}:'}".replace("%40", "@")
    assert served.requested == [("/simple/thing/", f"Basic {b64encode(sent.encode()).decode()}")]


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[HostileIndex, str]]:
    """An index with TLS, and the file of its certificate authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with hostile_index({"/simple/": reply_of(page([a_file()]))}, context) as index:
        yield index, str(tmp_path / "ca.pem")


def test_a_certificate_is_verified_with_the_authority_that_is_named(secure: tuple[HostileIndex, str]) -> None:
    served, ca = secure
    assert len(Index(f"{served.url}/simple", ca=ca, attempts=1).wheels("thing")) == 1
    with pytest.raises(NetworkError, match="unable to get local issuer certificate"):
        Index(f"{served.url}/simple", attempts=1).wheels("thing")


def test_an_index_with_tls_leads_to_no_address_without(secure: tuple[HostileIndex, str]) -> None:
    served, ca = secure
    with hostile_index({"/": reply_of(page([a_file()]))}) as other:
        served.replies["/simple/"] = redirects(f"{other.url}/simple/thing/")
        served.replies["/simple/linked/"] = reply_of(page([a_file(url=f"{other.url}/{WHEEL}", filename=LINKED)]))
        index = Index(f"{served.url}/simple", ca=ca, attempts=1)
        with pytest.raises(NetworkError, match="which is not reached by https"):
            index.wheels("thing")
        (wheel,) = index.wheels("linked")
        with pytest.raises(NetworkError, match="which is not reached by https"):
            list(index.download(wheel))
        assert other.requested == []


def test_the_port_of_a_scheme_is_the_same_origin() -> None:
    with hostile_index({"http://index.test:80/files/": reply_of(b"")}) as proxy:
        proxy.replies["http://index.test/simple/"] = file_page(url=f"http://index.test:80/files/{WHEEL}")
        index = Index("http://hans:hunter2@index.test/simple", proxies={"http": proxy.url}, attempts=1)
        assert list(index.download(*index.wheels("thing"))) == []
    assert [authorization for _, authorization in proxy.requested] == [f"Basic {SECRET}"] * 2


def test_an_error_shows_no_credentials_of_a_page(wheel: Path) -> None:
    replies = {"/simple/": file_page(url="ftp://hans:hunter2@127.0.0.1/x")}
    with hostile_index(replies) as served, pytest.raises(NetworkError) as caught:
        build(f"{served.url}/simple", wheel)
    assert "hunter2" not in str(caught.value)


# Whatever else an index sends.


def altered(content: bytes, data: st.DataObject) -> bytes:
    """Return content with a few bytes changed, added or taken out."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(changed)))
        changed[position : position + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    return bytes(changed)


HONEST = {
    "JSON": (JSON, page([a_file(**{"upload-time": "2024-03-08T23:59:59Z", "core-metadata": True, "size": 7})])),
    "HTML": (HTML, f'<base href="/x/"><a href="{WHEEL}#sha256=0" data-yanked="">{WHEEL}</a>'.encode()),
}


@pytest.fixture
def hostile_server() -> Iterator[HostileIndex]:
    with hostile_index({}) as index:
        yield index


ALTERED = settings(max_examples=cases(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("form", HONEST)
@ALTERED
@given(data=st.data())
def test_an_altered_page_is_read_or_refused(form: str, hostile_server: HostileIndex, data: st.DataObject) -> None:
    kind, content = HONEST[form]
    hostile_server.replies["/simple/"] = reply_of(altered(content, data), kind)
    with suppress(NetworkError):
        Index(f"{hostile_server.url}/simple", attempts=1).wheels("thing")


@ALTERED
@given(data=st.data())
def test_an_altered_wheel_is_read_in_ranges_or_refused(hostile_server: HostileIndex, data: st.DataObject) -> None:
    members = {BUILD_INFO: "build_info = {'cuda_version': '12'}", "thing-1.0.dist-info/METADATA": METADATA}
    hostile_server.replies.update({"/simple/": file_page(), "/files/": ranged(altered(archive(members), data))})
    index = Index(f"{hostile_server.url}/simple", attempts=1)
    with suppress(NetworkError):
        index.read_metadata(index.wheels("thing")[0], build=True)
