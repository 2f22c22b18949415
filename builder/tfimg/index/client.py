"""A package index: which wheels it has, and what a wheel says of itself, read without downloading the wheel."""

from __future__ import annotations

import ast
import io
import math
import re
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from email.parser import HeaderParser
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

import requests
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from remotezip import RangeNotSupported, RemoteZip, RemoteZipError
from requests.auth import HTTPBasicAuth
from requests.utils import get_auth_from_url, get_netrc_auth
from urllib3.exceptions import HTTPError

from tfimg.core.documents import validate
from tfimg.core.errors import NetworkError
from tfimg.core.text import escape_unprintable
from tfimg.index.project_page import MAX_HTML, MAX_PAGE, MAX_WHEEL, File, read_html, read_json
from tfimg.index.transport import DirectSession

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
"""Media types of the simple repository API, JSON first: it tells upload times (PEP 700)."""

BUILD_INFO = "tensorflow/python/platform/build_info.py"
"""What `tf.sysconfig.get_build_info()` returns, as a literal inside the wheel."""

SECONDS = 60
"""An index that is silent for so long does not answer."""

ATTEMPTS = 5
"""For one who asks hundreds of times, an answer that fails once is to be expected."""

PASSING = frozenset({500, 502, 503, 504})
"""Statuses that are asked again."""

GRACE_SECONDS = 60
MIN_RATE = 10_000
"""Seconds of waiting for a body, after which it must have so many bytes per second on average: eight downloads share a
line of 1 Mbit/s at 15,000."""

MAX_REDIRECTS = 5
"""Redirects of one request. Mirrors and their storage need two."""

MAX_METADATA = 4 << 20
"""Bytes of METADATA. That of TensorFlow 2.21.0 has 9 kB, that of the longest README in locks 61 kB."""

MAX_BUILD_INFO = 64 << 10
"""Bytes of `BUILD_INFO`: 2 kB in TensorFlow 2.21.0."""

MAX_RANGE = 16 << 20
"""Bytes of one range of a wheel. The directory of TensorFlow 2.21.0 has 2.9 MB."""

MAX_TAGS = 256
"""Tags of one file name, which lists them as a product. NVIDIA's and TensorFlow's have two."""

MAX_SHOWN = 300
"""Characters of what an index is quoted with."""

UNREADABLE = (
    requests.RequestException,
    HTTPError,
    RemoteZipError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    ValueError,
    OSError,
)
"""What requests, its transport, pages and archives raise when a response is not what it should be."""

_FILENAME = re.compile(r"[A-Za-z0-9._+!-]{1,250}\.whl")


_BuildInfo = dict[str, str | bool | int | list[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedFile:
    """A wheel that may be the locked one; `size` is the most that it may have."""

    name: str
    url: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedWheel:
    """A wheel that an index lists; `uploaded` is None where the index does not say."""

    name: str
    version: Version
    tags: frozenset[Tag]
    filename: str
    url: str
    uploaded: date | None
    has_metadata: bool

    @property
    def pythons(self) -> tuple[str, ...]:
        """CPython minors that it is for, e.g. `3.11`; none for a wheel without compiled code."""
        found = {tag.interpreter for tag in self.tags if tag.interpreter.startswith("cp3")}
        return tuple(f"3.{interpreter[3:]}" for interpreter in sorted(found))

    @property
    def processors(self) -> frozenset[str]:
        """`x86_64`, `aarch64`: Linux processors that it is for; none for other systems."""
        linux = [tag.platform for tag in self.tags if "linux" in tag.platform]
        return frozenset(word for word in ("x86_64", "aarch64") for platform in linux if platform.endswith(word))


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelMetadata:
    """What a wheel says of itself; `build` is None where it holds no build information."""

    requires: tuple[str, ...]
    build: Mapping[str, Any] | None


class Index:
    """The package index at `url`. Every method raises `NetworkError` when it cannot be reached or read.

    `proxies` are by scheme; beside them `no_proxy` may name hosts that are reached without one.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: str | None = None,
        proxies: Mapping[str, str] | None = None,
        attempts: int = ATTEMPTS,
    ) -> None:
        # Credentials are kept apart: they are sent to this origin only.
        try:
            _origin(url)
        except ValueError as error:
            raise _unreadable("anything: its address is not valid", error) from None
        found = get_auth_from_url(url) if "@" in urlsplit(url).netloc else get_netrc_auth(url)
        self._auth = HTTPBasicAuth(*found) if found else None
        self._url = _without_credentials(url).rstrip("/")
        self._attempts = attempts
        self._session = DirectSession(step_seconds=SECONDS)
        self._session.proxies.update(proxies or {})
        if ca:
            self._session.verify = ca

    def wheels(self, project: str) -> tuple[IndexedWheel, ...]:
        """Every wheel of a project that was not withdrawn; none where the index does not know the project."""
        return tuple(wheel for file, wheel in self._listed(project) if not file.is_yanked)

    def find_files(self, project: str, version: str, sha256: str) -> tuple[IndexedFile, ...]:
        """Return the files that may be the wheel with a hash, also those that were withdrawn.

        One, where the index states hashes; else all wheels of that version whose hash it does not state.
        """
        listed = [(file, wheel) for file, wheel in self._listed(project) if _is_version(wheel.version, version)]
        found = [one for one in listed if one[0].hashes.get("sha256") == sha256]
        silent = [one for one in listed if "sha256" not in one[0].hashes]
        return tuple(
            IndexedFile(name=wheel.filename, url=wheel.url, size=MAX_WHEEL if file.size is None else file.size)
            for file, wheel in found or silent
        )

    def download(self, file: IndexedFile, piece: int) -> Iterator[bytes]:
        """Yield a file's content in pieces of `piece` bytes, and stop where it is larger than it may be."""
        try:
            yield from _read_pieces(self._get(file.url), piece, file.size)
        except UNREADABLE as error:
            raise _unreadable(f"a file ({file.name})", error) from None

    def read_metadata(self, wheel: IndexedWheel, *, build: bool) -> WheelMetadata:
        """Metadata of a wheel and, with `build`, its build information.

        Takes the metadata file beside the wheel (PEP 658), else the few kilobytes of the archive that hold it.
        """
        try:
            if wheel.has_metadata and not build:
                content = _read_body(self._get(f"{wheel.url}.metadata"), MAX_METADATA)
                return WheelMetadata(requires=_requires(content), build=None)
            with RemoteZip(wheel.url, session=_Ranges(self)) as archive:
                return _inside(archive, build=build)
        except RangeNotSupported:
            raise NetworkError(
                f"The package index gives {wheel.filename} only as a whole, and not the few kilobytes that are needed.",
                next_step="Name an index that answers range requests: UV_DEFAULT_INDEX, or index-url of pip.",
            ) from None
        except UNREADABLE as error:
            raise _unreadable(f"the metadata of {wheel.filename}", error) from None

    def _listed(self, project: str) -> Sequence[tuple[File, IndexedWheel]]:
        """Return the wheels on the page of a project."""
        try:
            response = self._get(f"{self._url}/{canonicalize_name(project)}/", headers={"Accept": ACCEPT})
            return tuple(_wheels(_read_page(response), project, response.url))
        except requests.HTTPError as error:
            if error.response.status_code == requests.codes.not_found:
                return ()
            raise _unreadable(f"what it has of {project}", error) from None
        except UNREADABLE as error:
            raise _unreadable(f"what it has of {project}", error) from None

    def _get(self, url: str, headers: Mapping[str, str] | None = None) -> requests.Response:
        """Return a streamed response, after redirects. Credentials go to the index's own origin only.

        Raises what is in `UNREADABLE`.
        """
        for _ in range(MAX_REDIRECTS + 1):
            url = _without_credentials(url)
            scheme = urlsplit(url).scheme
            if scheme not in ("http", "https") or (scheme == "http" and self._url.startswith("https:")):
                raise ValueError(f"it names {url}, which is not reached by {urlsplit(self._url).scheme}")
            response = self._ask(url, headers, self._auth if _origin(url) == _origin(self._url) else None)
            if response.ok and not response.is_redirect:
                return response
            response.close()
            response.raise_for_status()
            url = urljoin(url, response.headers["location"])
        raise ValueError(f"it redirects more than {MAX_REDIRECTS} times")

    def _ask(self, url: str, headers: Mapping[str, str] | None, auth: HTTPBasicAuth | None) -> requests.Response:
        """Return a streamed response; ask again where one is missing or says that it may be another the next time."""
        for attempt in range(1, self._attempts + 1):
            try:
                response = self._session.get(url, headers=headers, stream=True, timeout=SECONDS, auth=auth)
                if response.status_code not in PASSING or attempt == self._attempts:
                    return response
                response.close()
            except (requests.ConnectionError, requests.Timeout):
                if attempt == self._attempts:
                    raise
            time.sleep(2 ** (attempt - 2))
        raise AssertionError("no attempt was made")


class _Ranges:
    """The session that `RemoteZip` asks for ranges of a wheel: what it gets is the range that it asked for."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def get(self, url: str, *, headers: Mapping[str, str], **_: object) -> requests.Response:
        """Return a response with part of a file. Raises `ValueError` for another part."""
        response = self._index._get(url, headers)
        given = response.headers.get("Content-Range")
        if given is None:
            response.close()  # a whole file, or a page to log in
            return response
        with response:
            size = _range_size(headers["Range"], given)
            content = _read_body(response, size)
        if len(content) < size:
            raise ValueError(f"its range ends after {len(content)} of {size} bytes")
        response.raw = io.BytesIO(content)
        return response


def _read_pieces(response: requests.Response, piece: int, limit: int) -> Iterator[bytes]:
    """Yield the body of a response in pieces of at most `piece` bytes.

    Raises `ValueError` where it has more than `limit` bytes or comes too slowly.
    """
    received, waited = 0, 0.0
    with response:
        while True:
            start = time.monotonic()
            # What is there, and not as much as was asked for: that may be a byte a minute.
            content = response.raw.read1(piece, decode_content=True)
            waited += time.monotonic() - start
            received += len(content)
            if not content:
                return
            if received > limit:
                raise ValueError(f"it has more than {limit} bytes")
            if waited > GRACE_SECONDS + received / MIN_RATE:
                raise ValueError(f"it has sent {received} bytes in {waited:.0f} seconds")
            yield content


def _read_body(response: requests.Response, limit: int) -> bytes:
    return b"".join(_read_pieces(response, 1 << 16, limit))


def _range_size(asked: str, given: str) -> int:
    """Return the size of a Content-Range. Raises `ValueError` if it is too large, or not the one asked for."""
    match = re.fullmatch(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})", given)
    first, last, size = map(int, match.groups()) if match else (0, 0, 0)
    start, _, end = asked.removeprefix("bytes=").rpartition("-")
    expected = (int(start), min(int(end), size - 1)) if start else (max(0, size - int(end or 0)), size - 1)
    if not 0 <= first <= last < size or (first, last) != expected:
        raise ValueError(f"it answers a request for {asked} with {given[:50]}")
    if last - first >= MAX_RANGE:
        raise ValueError(f"its directory or metadata has more than {MAX_RANGE} bytes")
    return last - first + 1


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _is_version(version: Version, text: str) -> bool:
    try:
        return version == Version(text)
    except InvalidVersion:
        return False


def _unreadable(what: str, error: Exception) -> NetworkError:
    # Below a connection that failed lies the sentence of the operating system.
    reason = getattr(error.args[0], "reason", None) if error.args else None
    told = str(reason).rpartition(": ")[2] if reason else str(error)
    # What an index sends may hold characters that change a terminal.
    line = escape_unprintable(" ".join(told[:MAX_SHOWN].split()))
    # The address of an index may hold a password.
    why = re.sub(r"//[^/@\s]*@", "//", line) or type(error).__name__
    return NetworkError(
        f"The package index did not tell {what}: {why}",
        next_step="Check the proxy, the CA bundle (SSL_CERT_FILE) and the index settings of pip or uv.",
    )


def _inside(archive: zipfile.ZipFile, *, build: bool) -> WheelMetadata:
    names = archive.namelist()
    metadata = next((name for name in names if name.endswith(".dist-info/METADATA")), None)
    if metadata is None:
        raise ValueError("it holds no METADATA")
    text = _read_member(archive, BUILD_INFO, MAX_BUILD_INFO) if build and BUILD_INFO in names else None
    requires = _requires(_read_member(archive, metadata, MAX_METADATA))
    return WheelMetadata(requires=requires, build=_build(text.decode()) if text else None)


def _read_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return a file of an archive. Raises `ValueError` if it has more than `limit` bytes, whatever it declares."""
    with archive.open(name) as member:
        content = member.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{name} has more than {limit} bytes")
    return content


def _read_page(response: requests.Response) -> Sequence[File]:
    kind = response.headers.get("content-type", "").lower()
    if "json" in kind:
        return read_json(_read_body(response, MAX_PAGE))
    if "html" not in kind:
        response.close()
        raise ValueError(f"its answer is {kind or 'of no type'}")
    return read_html(_read_body(response, MAX_HTML))


def _wheels(files: Sequence[File], project: str, page: str) -> Iterator[tuple[File, IndexedWheel]]:
    """Yield the wheels of a project among the files of its page; `page` is the page's address."""
    for file in files:
        wheel = _wheel(file, page)
        if wheel and wheel.name == canonicalize_name(project):
            yield file, wheel


def _wheel(file: File, page: str) -> IndexedWheel | None:
    # What is neither is no wheel, or one that would take long to understand.
    if (
        not _FILENAME.fullmatch(file.filename)
        or math.prod(part.count(".") + 1 for part in file.filename.split("-")[-3:]) > MAX_TAGS
    ):
        return None
    try:
        name, version, _, tags = parse_wheel_filename(file.filename)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    return IndexedWheel(
        name=name,
        version=version,
        tags=tags,
        filename=file.filename,
        url=_without_credentials(urljoin(page, file.url)),
        uploaded=file.upload_time.astimezone(UTC).date() if file.upload_time else None,
        has_metadata=file.core_metadata not in (None, False),
    )


def _requires(metadata: bytes) -> tuple[str, ...]:
    headers = HeaderParser().parsestr(metadata.decode())
    if "Metadata-Version" not in headers:
        raise ValueError("what stands there is no metadata")
    requires = tuple(headers.get_all("Requires-Dist") or ())
    try:
        for one in requires:
            Requirement(one)
    except RecursionError:
        raise ValueError("a requirement is nested too deeply") from None
    return requires


def _build(text: str) -> Mapping[str, Any]:
    """The literal that a build_info module assigns; raises `ValueError` when there is none."""
    try:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "build_info":
                value = node.value
                literal = value.args[0] if isinstance(value, ast.Call) and value.args else value
                return validate(_BuildInfo, dict(ast.literal_eval(literal)))
    except (SyntaxError, TypeError, RecursionError, MemoryError):
        pass  # not Python, not a dictionary, or nested too deeply
    raise ValueError(f"{BUILD_INFO} assigns no build_info")
