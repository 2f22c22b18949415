"""Client of a package index: its project pages, metadata of wheels and files."""

import ast
import io
import math
import re
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from email.parser import HeaderParser
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

import requests
from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import (
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from pydantic import AliasPath, Field, ValidationError
from pypi_simple import ACCEPT_JSON_PREFERRED, DistributionPackage, Link
from remotezip import RangeNotSupported, RemoteZip, RemoteZipError
from requests.utils import get_netrc_auth
from urllib3.connection import port_by_scheme
from urllib3.exceptions import HTTPError

from tfimg.core import documents, errors, retry
from tfimg.core.failures import network_error, read_failure
from tfimg.core.text import escape_unprintable, parse_time, quote_value, remove_credentials, truncate
from tfimg.index.network import DirectSession, read_chunks, retry_request

GRACE_SECONDS = 60
MIN_RATE = 10_000
"""Bytes per second on average after the grace seconds: eight downloads over a line of 1 Mbit/s have 15,000 each."""

MAX_RANGE = 16 << 20  # bytes of one range of a wheel. The directory of TensorFlow 2.21.0 has 2.9 MB

UNREADABLE = (
    *(HTTPError, RemoteZipError, zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, RuntimeError, OverflowError, ValueError, OSError),
)
"""Exceptions of requests, its transport, pages and archives for an invalid response."""


def read_stream(response: requests.Response, limit: int) -> Iterator[bytes]:
    """Yield the body of a response. Raises `ValueError` if it is larger than `limit` bytes, `OSError` if too slow."""
    received = 0
    with response:
        for chunk in read_chunks(response, GRACE_SECONDS, MIN_RATE, decode=True):
            received += len(chunk)
            if received > limit:
                raise ValueError(f"it has more than {limit} bytes")
            yield chunk


def read_body(response: requests.Response, limit: int) -> bytes:
    """Return the body of a response. Raises as `read_stream`."""
    return b"".join(read_stream(response, limit))


def make_network_error(what: str, error: Exception, *, source: str = "the package index") -> errors.NetworkError:
    """Return the error for something that could not be read from an index, or from another server."""
    return network_error(f"Cannot read {what} from {source}", read_failure(error))


MAX_PAGE = 32 << 20  # bytes of a page in JSON. Those of NumPy and grpcio, the largest that locks ask for, have 5 MB
MAX_HTML = 8 << 20  # bytes of a page in HTML, which Python's parser reads at 1 MB/s (measured)
MAX_WHEEL = 4 << 30  # bytes of a wheel whose size the index does not state. The largest in locks, of cuDNN, has 0.8 GB
MAX_TAGS = 256  # tags of one file name, which lists them as a product. NVIDIA's and TensorFlow's have two

MAX_SOURCE = 1 << 30  # bytes of a source archive. That of TensorFlow Addons has 1 MB, of OpenCV 95 MB
MAX_SOURCE_NAME = 200  # characters of the name of a source archive

_WHEEL_NAME = re.compile(r"[A-Za-z0-9._+!]{1,128}(?:-[A-Za-z0-9._+!]{1,128}){4,5}\.whl")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceArchive:
    """A source archive in an index; `uploaded`, `requires_python` and `sha256` are None if the index states none.

    `max_size` is its size in bytes, or the largest allowed one.
    """

    name: str
    version: Version
    filename: str
    url: str
    sha256: str | None
    max_size: int
    uploaded: date | None
    requires_python: str | None


class _Page(documents.Document):
    api_version: Annotated[str, Field(validation_alias=AliasPath("meta", "api-version"), pattern=r"^1\.[0-9]+$")]
    files: list[dict[str, Any]]


def read_page(response: requests.Response) -> tuple[list[DistributionPackage], list[SourceArchive]]:
    """Return the wheels and source archives on a page (PEP 503, 691, 700).

    Only names of wheels reach pypi-simple, whose patterns take long for others. Raises `ValueError`, and as
    `read_stream`.
    """
    kind = response.headers.get("content-type", "").lower()
    if "json" in kind:
        page = documents.parse_document(_Page, read_body(response, MAX_PAGE), max_bytes=MAX_PAGE)
        sources = [found for file in page.files if (found := _parse_source(file.get("filename"), file, response.url))]
        read_file = DistributionPackage.from_json_data
        try:
            wheels = [
                # Joining takes half of the time, and most addresses are whole.
                read_file(file, base_url=None if "://" in str(file.get("url")) else response.url)
                for file in page.files
                if _is_wheel(file.get("filename"))
            ]
        except ValidationError as error:
            raise ValueError(f"a file is invalid: {documents.describe_problem(error)}") from None
        return wheels, sources
    if "html" not in kind:
        response.close()
        raise ValueError(f"its answer is {kind or 'of no type'}")
    parser = _Links(response.url)
    try:
        # Without `close`, which takes quadratic time for unclosed elements.
        parser.feed(read_body(response, MAX_HTML).decode(errors="replace"))
    except AssertionError as error:  # of Python's parser, for `<![`
        raise ValueError(f"its page is not HTML: {error}") from None
    return [DistributionPackage.from_link(link) for link in parser.links], parser.sources


def _is_wheel(name: object) -> bool:
    if not isinstance(name, str) or not _WHEEL_NAME.fullmatch(name):
        return False
    return count_tags(name.removesuffix(".whl")) <= MAX_TAGS


def _parse_source(name: object, file: Mapping[str, Any], base: str) -> SourceArchive | None:
    """Return a source archive of a page; None for another file, and a yanked one."""
    address = file.get("url")
    if not isinstance(name, str) or not isinstance(address, str) or len(name) > MAX_SOURCE_NAME or file.get("yanked"):
        return None
    try:
        project, version = parse_sdist_filename(name)
        url = urljoin(base, address)
    except ValueError:
        return None
    moment = parse_time(str(file.get("upload-time")))
    python, hashes, size = file.get("requires-python"), file.get("hashes"), file.get("size")
    sha256 = str(hashes.get("sha256") if isinstance(hashes, dict) else None)
    return SourceArchive(
        name=project,
        version=version,
        filename=name,
        url=_without_credentials(url),
        sha256=sha256 if re.fullmatch("[0-9a-f]{64}", sha256) else None,
        max_size=min(size, MAX_SOURCE) if isinstance(size, int) and size > 0 else MAX_SOURCE,
        uploaded=moment.date() if moment else None,
        requires_python=python if isinstance(python, str) else None,
    )


def count_tags(text: str) -> int:
    """Return how many tags a text such as `cp310.cp311-abi3-linux_x86_64`, or the end of a file name, stands for."""
    return math.prod(part.count(".") + 1 for part in text.split("-")[-3:])


class _Links(HTMLParser):
    """Collects links: the last part of an address is the file's name, its fragment may be the hash (PEP 503).

    In linear time: Beautiful Soup, with which pypi-simple reads pages, takes quadratic time for nested links.
    """

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.links: list[Link] = []
        self.sources: list[SourceArchive] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes: dict[str, str | list[str]] = {name: value or "" for name, value in attrs}
        if tag not in ("a", "base") or "href" not in attributes:
            return
        address = str(attributes["href"])
        url = urljoin(self.base, address)
        parts = urlsplit(url)
        name = unquote(parts.path.rpartition("/")[2])
        if tag == "base":
            self.base = url
        elif _is_wheel(name):
            self.links.append(Link(name, url, attributes))
        else:
            algorithm, _, digest = parts.fragment.partition("=")
            file = {
                "url": address,
                "hashes": {algorithm: digest},
                "yanked": "data-yanked" in attributes,
                "requires-python": attributes.get("data-requires-python"),
            }
            if source := _parse_source(name, file, self.base):
                self.sources.append(source)


BUILD_INFO = "tensorflow/python/platform/build_info.py"
"""The module whose literal `tf.sysconfig.get_build_info()` returns."""

MAX_METADATA = 4 << 20
"""Bytes of METADATA. That of TensorFlow 2.21.0 has 9 kB, that of the longest README in locks 61 kB."""

MAX_BUILD_INFO = 64 << 10  # bytes of `BUILD_INFO`: 2 kB in TensorFlow 2.21.0

BuildInfo = dict[str, str | bool | int | list[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelMetadata:
    """Requirements of a wheel, and its build information if it has one."""

    requires: tuple[str, ...]
    build: Mapping[str, Any] | None


def _find_metadata(archive: zipfile.ZipFile) -> str:
    """Return the name of METADATA in a wheel. Raises `ValueError` without one."""
    for name in archive.namelist():
        if name.endswith(".dist-info/METADATA"):
            return name
    raise ValueError("it holds no METADATA")


def _read_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """Return a file of an archive. Raises `ValueError` if it has more than `limit` bytes, whatever it declares."""
    with archive.open(name) as member:
        content = member.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"{name} has more than {limit} bytes")
    return content


_STAR = re.compile(r"([<>]=?\s*\d+(?:\.\d+)*)\.\*")
"""A bound such as >=1.0.*, which wheels of before 2023 have, and PEP 440 does not allow; uv reads >=1.0."""


def parse_requires(metadata: bytes) -> tuple[str, ...]:
    """Return the requirements in a METADATA file. Raises `ValueError`, also for a marker that cannot be evaluated."""
    headers = HeaderParser().parsestr(metadata.decode())
    if "Metadata-Version" not in headers:
        raise ValueError("it is not a METADATA file")
    requires = tuple(_STAR.sub(r"\1", one) for one in headers.get_all("Requires-Dist") or ())
    try:
        for requirement in map(Requirement, requires):
            if requirement.marker:
                requirement.marker.evaluate()
    except (UndefinedComparison, UndefinedEnvironmentName) as error:
        raise ValueError(f"a marker cannot be evaluated: {error}") from None
    except RecursionError:
        raise ValueError("a requirement is nested too deeply") from None
    return requires


def read_file_requires(wheel: Path) -> tuple[str, ...]:
    """Return the requirements of a wheel on disk. Raises `InvalidWheel`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return parse_requires(_read_member(archive, _find_metadata(archive), MAX_METADATA))
    except UNREADABLE as error:
        raise errors.InvalidWheel(
            f"{wheel.name} has no metadata that can be read: {escape_unprintable(truncate(str(error)))}",
            next_step="Copy, download or build it again.",
        ) from None


def make_environment(python: str, processor: str, *, extra: str = "") -> dict[str, str]:
    """Return the values of environment markers on a Python of Linux on a processor, with one extra (PEP 508)."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": processor,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": extra,
    }


def select_requirements(requires: Iterable[str], environment: Mapping[str, str]) -> dict[str, SpecifierSet]:
    """Return the versions of each package that requirements ask for in an environment."""
    found: dict[str, SpecifierSet] = {}
    for requirement in map(Requirement, requires):
        if requirement.marker is None or requirement.marker.evaluate(dict(environment)):
            name = canonicalize_name(requirement.name)
            found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    return found


def parse_build_info(text: str) -> Mapping[str, Any]:
    """Return the literal that a build_info module assigns. Raises `ValueError`."""
    try:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "build_info":
                value = node.value
                literal = value.args[0] if isinstance(value, ast.Call) and value.args else value
                return documents.validate_model(BuildInfo, dict(ast.literal_eval(literal)))
    except (SyntaxError, TypeError, RecursionError, MemoryError):
        pass  # not Python, not a dictionary, or nested too deeply
    raise ValueError(f"{BUILD_INFO} assigns no build_info")


SYSTEMS = {"macosx": "macOS", "win": "Windows", "win32": "Windows"}
"""Beginnings of the tags of platforms other than Linux."""

TIMEOUT_SECONDS = 60  # longest silence of an index
MAX_REDIRECTS = 5  # redirects of one request. Mirrors and their storage need two


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedWheel:
    """A wheel in an index; `uploaded` and `sha256` are None if the index does not state them.

    `max_size` is its size in bytes, or the largest allowed one.
    """

    name: str
    version: Version
    tags: frozenset[Tag]
    filename: str
    url: str
    sha256: str | None
    max_size: int
    uploaded: date | None
    is_yanked: bool
    has_metadata: bool
    requires_python: str | None = None

    @property
    def pythons(self) -> tuple[str, ...]:
        """CPython minors that it supports, e.g. `3.11`; none for a wheel without compiled code."""
        names = sorted({tag.interpreter for tag in self.tags})
        return tuple(f"3.{name[3:]}" for name in names if name.startswith("cp3") and name[3:].isdecimal())

    @property
    def processors(self) -> frozenset[str]:
        """Linux processors that it supports (`x86_64`, `aarch64`); none for other systems."""
        linux = [tag.platform for tag in self.tags if "linux" in tag.platform]
        return frozenset(name for name in ("x86_64", "aarch64") for platform in linux if platform.endswith(name))


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectPage:
    """The files of a project in an index, of all releases; `exists`: the index has the project."""

    exists: bool = False
    wheels: tuple[IndexedWheel, ...] = ()
    sources: tuple[SourceArchive, ...] = ()


class Index:
    """The package index at `url`, without its credentials.

    Every method raises `NetworkError` if it cannot be reached or read.

    Threads may share it; in one whose work was cancelled, requests raise `Interrupted`.

    `proxies` are by scheme; `no_proxy` among them lists hosts to reach directly.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: str | None = None,
        proxies: Mapping[str, str] | None = None,
        attempts: int = retry.ATTEMPTS,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        try:
            self._origin = _origin(url)
        except ValueError:  # its text quotes what stands where the port would, such as half a password
            raise errors.NetworkError(
                f"The address of the package index is malformed: {quote_value(url.rpartition('@')[2])}.",
                next_step="Write https://HOST/PATH, or https://NAME:PASSWORD@HOST/PATH with %40 for an @ in the "
                "password and %2F for a /.",
            ) from None
        parts = urlsplit(url)
        named = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        login = named or get_netrc_auth(url)
        self._auth = (login[0].encode(), login[1].encode()) if login else None  # requests takes Latin-1 alone
        self.url = _without_credentials(url).rstrip("/")
        self._retries = retry.RetryPolicy(attempts=attempts)
        self._timeout = timeout
        self._pages: dict[str, ProjectPage] = {}
        self._metadata: dict[str, WheelMetadata] = {}
        self._page_locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._session = DirectSession(step_seconds=TIMEOUT_SECONDS)
        self._session.proxies.update(proxies or {})
        if ca:
            self._session.verify = ca

    def wheels(self, project: str) -> tuple[IndexedWheel, ...]:
        """Return the wheels of a project that are not yanked; none if the index does not have the project."""
        return tuple(wheel for wheel in self.read_project(project).wheels if not wheel.is_yanked)

    def find_wheels(self, project: str, version: str, sha256: str) -> Sequence[IndexedWheel]:
        """Return the wheel with a hash, also if it is yanked, else all wheels of the version without a stated hash.

        `version` is normalized (PEP 440), as in locks.
        """
        page = self.read_project(project).wheels
        # Of thousands of versions, few are written out.
        listed = [wheel for wheel in page if wheel.sha256 in (sha256, None) and str(wheel.version) == version]
        return [wheel for wheel in listed if wheel.sha256] or listed

    def list_systems(self, project: str, version: Version | None, *, with_source: bool = False) -> str:
        """Return the systems that a version, or each, is for, such as `Windows`; an empty text if it may be for Linux.

        A version that the index has as source may be, except `with_source`.
        """
        page = self.read_project(project)
        wheels = [wheel for wheel in page.wheels if version in (None, wheel.version)]
        platforms = {tag.platform.partition("_")[0] for wheel in wheels for tag in wheel.tags}
        is_source = any(version in (None, source.version) for source in page.sources)
        if not platforms or not platforms <= SYSTEMS.keys() or (is_source and not with_source):
            return ""
        return " and ".join(sorted({SYSTEMS[platform] for platform in platforms}))

    def states_no_times(self, project: str) -> bool:
        """Return whether an index has wheels of a project, and no upload time of any (PEP 700)."""
        wheels = self.read_project(project).wheels
        return bool(wheels) and all(wheel.uploaded is None for wheel in wheels)

    def download(self, file: IndexedWheel | SourceArchive) -> Iterator[bytes]:
        """Yield the content of a file, up to its largest allowed size."""
        try:
            yield from read_stream(self.get(file.url), file.max_size)
        except UNREADABLE as error:
            raise make_network_error(f"the file {file.filename}", error) from None

    def read_metadata(self, wheel: IndexedWheel, *, build: bool) -> WheelMetadata:
        """Return the metadata of a wheel and, with `build`, its build information.

        Reads the metadata file beside the wheel (PEP 658), else the few kilobytes of the archive that contain it.
        Without `build`, it is read once.
        """
        if build:
            return self._read_metadata(wheel, build=build)
        if wheel.url not in self._metadata:
            self._metadata[wheel.url] = self._read_metadata(wheel, build=build)
        return self._metadata[wheel.url]

    def _read_metadata(self, wheel: IndexedWheel, *, build: bool) -> WheelMetadata:
        try:
            if wheel.has_metadata and not build:
                content = read_body(self.get(f"{wheel.url}.metadata"), MAX_METADATA)
                return WheelMetadata(requires=parse_requires(content), build=None)
            with RemoteZip(wheel.url, session=SimpleNamespace(get=self._get_range)) as archive:
                requires = parse_requires(_read_member(archive, _find_metadata(archive), MAX_METADATA))
                has_info = build and BUILD_INFO in archive.namelist()
                text = _read_member(archive, BUILD_INFO, MAX_BUILD_INFO).decode() if has_info else ""
                return WheelMetadata(requires=requires, build=parse_build_info(text) if text else None)
        except RangeNotSupported:
            raise errors.NetworkError(
                f"The package index does not support range requests, which reading {wheel.filename} needs.",
                next_step="Name an index that answers range requests: UV_DEFAULT_INDEX, or index-url of pip.",
            ) from None
        except UNREADABLE as error:
            raise make_network_error(f"the metadata of {wheel.filename}", error) from None

    def _get_range(self, url: str, *, headers: Mapping[str, str], **_: object) -> requests.Response:
        """Return a response with its body in memory: RemoteZip would read as much as a server states."""
        response = self.get(url, headers)
        if "Content-Range" in response.headers:
            response.raw = io.BytesIO(read_body(response, MAX_RANGE))
        else:
            response.close()  # a whole file, or a login page
        return response

    def read_project(self, project: str) -> ProjectPage:
        """Return the files on the page of a project, which is read once."""
        name = canonicalize_name(project)
        with self._lock:
            page_lock = self._page_locks.setdefault(name, threading.Lock())
        with page_lock:
            if name not in self._pages:
                try:
                    wheels, sources = read_page(self.get(f"{self.url}/{name}/", {"Accept": ACCEPT_JSON_PREFERRED}))
                    found = (wheel for file in wheels if (wheel := _parse_wheel(file)))
                    self._pages[name] = ProjectPage(
                        exists=True,
                        wheels=tuple(wheel for wheel in found if wheel.name == name),
                        sources=tuple(source for source in sources if source.name == name),
                    )
                except UNREADABLE as error:
                    status = error.response.status_code if isinstance(error, requests.HTTPError) else None
                    if status != requests.codes.not_found:
                        raise make_network_error(f"the wheels of {name}", error) from None
                    self._pages[name] = ProjectPage()
            return self._pages[name]

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> requests.Response:
        """Return a streamed response, after redirects. Raises the exceptions in `UNREADABLE`.

        Credentials go to the index's own origin only.
        """
        for _ in range(MAX_REDIRECTS + 1):
            url = _without_credentials(url)
            scheme = urlsplit(url).scheme
            if scheme not in ("http", "https") or (scheme == "http" and self.url.startswith("https:")):
                raise ValueError(f"it names {url}, which is not reached by {urlsplit(self.url).scheme}")
            auth = self._auth if _origin(url) == self._origin else None
            response = retry_request(
                self._session, "GET", url, self._retries, headers=headers, timeout=self._timeout, auth=auth
            )
            if response.ok and not response.is_redirect:
                return response
            response.close()
            response.raise_for_status()
            url = urljoin(url, response.headers["location"])
        raise ValueError(f"it redirects more than {MAX_REDIRECTS} times")


def probe(url: str, *, ca: str | None, proxies: Mapping[str, str], seconds: float) -> None:
    """Ask a server for the head of one page. Raises `NetworkError` unless it answers, if only to ask for a login."""
    index = Index(url, ca=ca, proxies=proxies, attempts=1, timeout=seconds)
    shown = remove_credentials(url)  # also of what is no address, such as one with a name before it
    try:
        index.get(url).close()
    except requests.HTTPError as error:
        if error.response.status_code not in (requests.codes.unauthorized, requests.codes.not_found):
            raise network_error(f"{shown} refused a request", read_failure(error)) from None
    except UNREADABLE as error:
        raise network_error(f"{shown} does not answer", read_failure(error)) from None


def _parse_wheel(file: DistributionPackage) -> IndexedWheel | None:
    """Return a wheel; None if its name is not valid."""
    stem, *ends = file.filename.removesuffix(".whl").rsplit("-", 3)
    try:
        # Reading tags takes most of the time, and thousands of names on a page end alike.
        name, version, *_ = parse_wheel_filename(f"{stem}-py3-none-any.whl")
        tags = _parse_tags("-".join(ends))
    except ValueError:
        return None
    return IndexedWheel(
        name=name,
        version=version,
        tags=tags,
        filename=file.filename,
        url=_without_credentials(file.url),
        sha256=file.digests.get("sha256"),
        max_size=MAX_WHEEL if file.size is None else min(file.size, MAX_WHEEL),
        uploaded=file.upload_time.astimezone(UTC).date() if file.upload_time else None,
        is_yanked=file.is_yanked,
        has_metadata=bool(file.has_metadata),
        requires_python=file.requires_python,
    )


@lru_cache(maxsize=10_000)
def _parse_tags(text: str) -> frozenset[Tag]:
    """Return the tags in the end of a wheel's name. Raises `InvalidWheelFilename`."""
    return parse_wheel_filename(f"x-0-{text}.whl")[-1]


def _without_credentials(url: str) -> str:
    if "@" not in url and "#" not in url:  # one of thousands on a page
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or port_by_scheme.get(parts.scheme)
