"""A package index: which wheels it has, and what a wheel says of itself, read without downloading the wheel."""

from __future__ import annotations

import ast
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from email.parser import HeaderParser
from typing import Any

import requests
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pypi_simple import DistributionPackage, ProjectPage, RepositoryPage, UnsupportedRepoVersionError
from remotezip import RangeNotSupported, RemoteZip, RemoteZipError
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from tfimg.errors import NetworkError
from tfimg.transport import ProxyAdapter

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
"""Media types of the simple repository API, JSON first: it tells upload times (PEP 700)."""

BUILD_INFO = "tensorflow/python/platform/build_info.py"
"""What `tf.sysconfig.get_build_info()` returns, as a literal inside the wheel."""

SECONDS = 60
"""An index that is silent for so long does not answer."""

ATTEMPTS = 5
"""For one who asks hundreds of times, an answer that fails once is to be expected."""

UNREADABLE = (
    requests.RequestException, HTTPError, RemoteZipError, UnsupportedRepoVersionError,
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError,
)  # fmt: skip
"""What requests, its transport, its pages and archives raise when an answer is not what it should be."""


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
        return frozenset(
            word for word in ("x86_64", "aarch64") for platform in linux if platform.endswith(word)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelFacts:
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
        self._url = url.rstrip("/")
        self._session = requests.Session()
        self._session.hooks["response"].append(_let_go)
        retry = Retry(total=attempts - 1, backoff_factor=0.5, status_forcelist=[500, 502, 503, 504])
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, ProxyAdapter(max_retries=retry))
        self._session.proxies.update(proxies or {})
        if ca:
            self._session.verify = ca

    def wheels(self, project: str) -> tuple[IndexedWheel, ...]:
        """Every wheel of a project that was not withdrawn; none where the index does not know the project."""
        listed = self._packages(project)
        return tuple(
            wheel for package, uploaded in listed if (wheel := _wheel(package, uploaded)) is not None
        )

    def _packages(self, project: str) -> Sequence[tuple[DistributionPackage, datetime | None]]:
        try:
            response = self._session.get(
                f"{self._url}/{canonicalize_name(project)}/", headers={"Accept": ACCEPT}, timeout=SECONDS
            )
            if response.status_code == requests.codes.not_found:
                return ()
            response.raise_for_status()
            return _listed(response, project)
        except UNREADABLE as error:
            raise _unreadable(f"what it has of {project}", error) from None

    def locate(self, project: str, version: str, sha256: str) -> tuple[tuple[str, str], ...]:
        """Names and addresses of files that may be the one with a hash, also of those that were withdrawn.

        One, where the index tells hashes; else all wheels of that version whose hash it does not tell.
        """
        listed = [package for package, _ in self._packages(project)]
        found = [package for package in listed if package.digests.get("sha256") == sha256]
        silent = [
            package
            for package in listed
            if package.version == version
            and package.package_type == "wheel"
            and "sha256" not in package.digests
        ]
        return tuple((package.filename, package.url) for package in found or silent)

    def download(self, url: str, piece: int) -> Iterator[bytes]:
        """A file's content in pieces of `piece` bytes."""
        try:
            with self._session.get(url, stream=True, timeout=SECONDS) as response:
                response.raise_for_status()
                yield from response.iter_content(piece)
        except UNREADABLE as error:
            raise _unreadable(f"a file ({url.rpartition('/')[2].partition('#')[0]})", error) from None

    def facts(self, wheel: IndexedWheel, *, build: bool) -> WheelFacts:
        """Metadata of a wheel and, with `build`, its build information.

        Takes the metadata file beside the wheel (PEP 658), else the few kilobytes of the archive that hold it.
        """
        try:
            if wheel.has_metadata and not build:
                response = self._session.get(f"{wheel.url}.metadata", timeout=SECONDS)
                response.raise_for_status()
                return WheelFacts(requires=_requires(response.content), build=None)
            with RemoteZip(wheel.url, session=self._session, timeout=SECONDS) as archive:
                return _inside(archive, build=build)
        except RangeNotSupported:
            raise NetworkError(
                f"The package index gives {wheel.filename} only as a whole, and not the few kilobytes that are needed.",
                next_step="Name an index that answers range requests: UV_DEFAULT_INDEX, or index-url of pip.",
            ) from None
        except UNREADABLE as error:
            raise _unreadable(f"the metadata of {wheel.filename}", error) from None


def _let_go(response: requests.Response, **_: object) -> None:
    """Hang up on who sends a whole file, or a page about an error, where a part of a file was asked for."""
    asked, given = response.request.headers, response.headers
    if "Range" in asked and "Content-Range" not in given and not response.is_redirect:
        response.close()


def _unreadable(what: str, error: Exception) -> NetworkError:
    # Below a connection that failed lies the sentence of the operating system.
    reason = getattr(error.args[0], "reason", None) if error.args else None
    told = str(reason).rpartition(": ")[2] if reason else str(error)
    # The address of an index may hold a password.
    why = re.sub(r"//[^/@\s]*@", "//", told) or type(error).__name__
    return NetworkError(
        f"The package index did not tell {what}: {why}",
        next_step="Check the proxy, the CA bundle (SSL_CERT_FILE) and the index settings of pip or uv.",
    )


def _inside(archive: zipfile.ZipFile, *, build: bool) -> WheelFacts:
    names = archive.namelist()
    metadata = next((name for name in names if name.endswith(".dist-info/METADATA")), None)
    if metadata is None:
        raise ValueError("it holds no METADATA")
    text = archive.read(BUILD_INFO).decode() if build and BUILD_INFO in names else None
    return WheelFacts(requires=_requires(archive.read(metadata)), build=_build(text) if text else None)


def _listed(
    response: requests.Response, project: str
) -> Sequence[tuple[DistributionPackage, datetime | None]]:
    kind = response.headers.get("content-type", "")
    if "json" in kind:
        page = ProjectPage.from_response(response, project)
        return [(package, package.upload_time) for package in page.packages]
    if "html" not in kind:
        raise ValueError(f"its answer is {kind or 'of no type'}")
    # Upload times are no part of the HTML form, but some indexes give them there as well.
    links = RepositoryPage.from_html(response.content, response.url).links
    return [
        (DistributionPackage.from_link(link, project), _time(link.get_str_attrib("data-upload-time")))
        for link in links
    ]


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _wheel(package: DistributionPackage, uploaded: datetime | None) -> IndexedWheel | None:
    try:
        name, version, _, tags = parse_wheel_filename(package.filename)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    if package.is_yanked:
        return None
    return IndexedWheel(
        name=name,
        version=version,
        tags=tags,
        filename=package.filename,
        url=package.url,
        uploaded=uploaded.astimezone(UTC).date() if uploaded else None,
        has_metadata=bool(package.has_metadata),
    )


def _requires(metadata: bytes) -> tuple[str, ...]:
    headers = HeaderParser().parsestr(metadata.decode())
    if "Metadata-Version" not in headers:
        raise ValueError("what stands there is no metadata")
    return tuple(headers.get_all("Requires-Dist") or ())


def _build(text: str) -> Mapping[str, Any]:
    """The literal that a build_info module assigns; raises `ValueError` when there is none."""
    try:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "build_info":
                value = node.value
                literal = value.args[0] if isinstance(value, ast.Call) and value.args else value
                return dict(ast.literal_eval(literal))
    except (SyntaxError, TypeError):
        pass  # not Python, or not a dictionary
    raise ValueError(f"{BUILD_INFO} assigns no build_info")
