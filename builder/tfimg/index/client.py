"""Client of a package index: its wheels, and their metadata without downloading them."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from types import SimpleNamespace
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

import requests
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pypi_simple import ACCEPT_JSON_PREFERRED, DistributionPackage
from remotezip import RangeNotSupported, RemoteZip
from requests.auth import HTTPBasicAuth
from requests.utils import get_netrc_auth

from tfimg.core.errors import NetworkError
from tfimg.core.retry import ATTEMPTS, RetryPolicy
from tfimg.index.project_page import MAX_WHEEL, read_page
from tfimg.index.responses import MAX_RANGE, UNREADABLE, make_network_error, read_body, read_limited
from tfimg.index.transport import DirectSession, retry_request
from tfimg.index.wheel_metadata import MAX_METADATA, WheelMetadata, parse_requires, read_wheel

TIMEOUT_SECONDS = 60
"""Longest silence of an index."""

MAX_REDIRECTS = 5
"""Redirects of one request. Mirrors and their storage need two."""

MAX_SPECIFIER = 200
"""Characters of the versions of Python that a file supports; longer ones count as not stated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedWheel:
    """A wheel in an index; `uploaded`, `sha256` and `requires_python` are None if the index does not state them.

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
    requires_python: SpecifierSet | None = None

    @property
    def pythons(self) -> tuple[str, ...]:
        """CPython minors that it supports, e.g. `3.11`; none for a wheel without compiled code."""
        found = {tag.interpreter for tag in self.tags if tag.interpreter.startswith("cp3")}
        return tuple(f"3.{interpreter[3:]}" for interpreter in sorted(found))

    def supports(self, python: str) -> bool:
        """Return whether the first release of a minor of Python may install it, which is what uv resolves for."""
        return self.requires_python is None or self.requires_python.contains(f"{python}.0", prereleases=True)

    @property
    def processors(self) -> frozenset[str]:
        """Linux processors that it supports (`x86_64`, `aarch64`); none for other systems."""
        linux = [tag.platform for tag in self.tags if "linux" in tag.platform]
        return frozenset(name for name in ("x86_64", "aarch64") for platform in linux if platform.endswith(name))


class Index:
    """The package index at `url`. Every method raises `NetworkError` if it cannot be reached or read.

    Threads may share it; in one whose work was cancelled, requests raise `Interrupted`.

    `proxies` are by scheme; `no_proxy` among them lists hosts to reach directly.
    """

    def __init__(
        self, url: str, *, ca: str | None = None, proxies: Mapping[str, str] | None = None, attempts: int = ATTEMPTS
    ) -> None:
        try:
            self._origin = _origin(url)
        except ValueError as error:
            raise make_network_error("anything", error) from None
        parts = urlsplit(url)
        named = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        credentials = named or get_netrc_auth(url)
        self._auth = HTTPBasicAuth(*credentials) if credentials else None
        self._url = _without_credentials(url).rstrip("/")
        self._retries = RetryPolicy(attempts=attempts)
        self._pages: dict[str, Sequence[IndexedWheel]] = {}
        self._page_locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._session = DirectSession(step_seconds=TIMEOUT_SECONDS)
        self._session.proxies.update(proxies or {})
        if ca:
            self._session.verify = ca

    def wheels(self, project: str) -> tuple[IndexedWheel, ...]:
        """Return the wheels of a project that are not yanked; none if the index does not have the project."""
        return tuple(wheel for wheel in self._list(project) if not wheel.is_yanked)

    def find_wheels(self, project: str, version: str, sha256: str) -> Sequence[IndexedWheel]:
        """Return the wheel with a hash, also if it is yanked, else all wheels of the version without a stated hash.

        `version` is normalized (PEP 440), as in locks.
        """
        listed = [wheel for wheel in self._list(project) if str(wheel.version) == version]
        found = [wheel for wheel in listed if wheel.sha256 == sha256]
        return found or [wheel for wheel in listed if wheel.sha256 is None]

    def download(self, wheel: IndexedWheel) -> Iterator[bytes]:
        """Yield the content of a wheel, up to its largest allowed size."""
        try:
            yield from read_limited(self.get(wheel.url), wheel.max_size)
        except UNREADABLE as error:
            raise make_network_error(f"the file {wheel.filename}", error) from None

    def read_metadata(self, wheel: IndexedWheel, *, build: bool) -> WheelMetadata:
        """Return the metadata of a wheel and, with `build`, its build information.

        Reads the metadata file beside the wheel (PEP 658), else the few kilobytes of the archive that contain it.
        """
        try:
            if wheel.has_metadata and not build:
                content = read_body(self.get(f"{wheel.url}.metadata"), MAX_METADATA)
                return WheelMetadata(requires=parse_requires(content), build=None)
            with RemoteZip(wheel.url, session=SimpleNamespace(get=self._get_range)) as archive:
                return read_wheel(archive, build=build)
        except RangeNotSupported:
            raise NetworkError(
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

    def _list(self, project: str) -> Sequence[IndexedWheel]:
        """Return the wheels on the page of a project, which is read once."""
        name = canonicalize_name(project)
        with self._lock:
            page_lock = self._page_locks.setdefault(name, threading.Lock())
        with page_lock:
            if name not in self._pages:
                self._pages[name] = self._read_wheels(name)
            return self._pages[name]

    def _read_wheels(self, name: str) -> Sequence[IndexedWheel]:
        try:
            page = read_page(self.get(f"{self._url}/{name}/", {"Accept": ACCEPT_JSON_PREFERRED}))
            return tuple(wheel for file in page if (wheel := _parse_wheel(file)) and wheel.name == name)
        except UNREADABLE as error:
            if isinstance(error, requests.HTTPError) and error.response.status_code == requests.codes.not_found:
                return ()
            raise make_network_error(f"the wheels of {name}", error) from None

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> requests.Response:
        """Return a streamed response, after redirects. Raises the exceptions in `UNREADABLE`.

        Credentials go to the index's own origin only.
        """
        for _ in range(MAX_REDIRECTS + 1):
            url = _without_credentials(url)
            scheme = urlsplit(url).scheme
            if scheme not in ("http", "https") or (scheme == "http" and self._url.startswith("https:")):
                raise ValueError(f"it names {url}, which is not reached by {urlsplit(self._url).scheme}")
            auth = self._auth if _origin(url) == self._origin else None
            response = retry_request(
                self._session, "GET", url, self._retries, headers=headers, timeout=TIMEOUT_SECONDS, auth=auth
            )
            if response.ok and not response.is_redirect:
                return response
            response.close()
            response.raise_for_status()
            url = urljoin(url, response.headers["location"])
        raise ValueError(f"it redirects more than {MAX_REDIRECTS} times")


def _parse_wheel(file: DistributionPackage) -> IndexedWheel | None:
    """Return a wheel; None if its name is not valid."""
    try:
        name, version, _, tags = parse_wheel_filename(file.filename)
    except (InvalidWheelFilename, InvalidVersion):
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
        requires_python=_parse_specifier(file.requires_python or ""),
    )


def _parse_specifier(text: str) -> SpecifierSet | None:
    """Return the versions of Python that a file supports; None if they are not stated or cannot be read."""
    try:
        return SpecifierSet(text) if text and len(text) <= MAX_SPECIFIER else None
    except InvalidSpecifier:
        return None


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
