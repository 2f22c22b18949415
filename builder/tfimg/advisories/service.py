"""Ask a service that speaks OSV's API (https://google.github.io/osv.dev/api/) about packages."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import requests
from pydantic import BeforeValidator, Field

from tfimg.advisories.match import AdvisoryIndex
from tfimg.advisories.packages import AuditedPackage
from tfimg.advisories.schema import MAX_BYTES, Advisory, Identifier
from tfimg.advisories.versions import DEBIAN, PYPI
from tfimg.core.cancellation import map_in_threads, raise_if_cancelled
from tfimg.core.documents import Document, InvalidDocument, Model, parse_document
from tfimg.core.errors import NetworkError, UsageError
from tfimg.index.responses import UNREADABLE, make_network_error, read_body
from tfimg.index.transport import DirectSession

PUBLIC_SERVICE = "https://api.osv.dev"
"""The service of the project that made the schema; it has the databases of PyPI, GitHub and Debian."""

MAX_QUERIES = 1000
"""Queries of one request, as the service allows."""

MAX_PAGES = 100
"""Pages of the answer to one batch."""

MAX_ADVISORIES = 20_000
"""Advisories that are fetched. TensorFlow 2.10 has 500."""

MAX_ANSWER = 32 << 20
"""Bytes of the answer to one batch: identifiers only."""

CONNECTIONS = 8
TIMEOUT_SECONDS = 60
ATTEMPTS = 4
TRANSIENT_STATUSES = frozenset({429, 500, 502, 503, 504})

OnProgress = Callable[[int, int], None]


class _Hit(Document):
    id: Identifier


class _Result(Document):
    vulns: Annotated[
        tuple[_Hit, ...], Field(max_length=MAX_ADVISORIES), BeforeValidator(lambda value: value or ())
    ] = ()
    next_page_token: Annotated[str, Field(max_length=10_000)] | None = None


class _Answer(Document):
    results: Annotated[tuple[_Result, ...], Field(max_length=MAX_QUERIES)]


class OsvService:
    """A service at an address without its `/v1`. Methods raise `NetworkError`; `proxies` are by scheme."""

    def __init__(
        self, url: str, *, ca: str | None = None, proxies: Mapping[str, str] | None = None, wait: float = 0.5
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise UsageError(
                f"{url} is not the address of an advisory service.",
                next_step=f"Write it as {PUBLIC_SERVICE}, without user and password.",
            )
        self._wait = wait
        self._session = DirectSession(step_seconds=TIMEOUT_SECONDS)
        self._session.proxies.update(proxies or {})
        if ca:
            self._session.verify = ca

    def find(
        self, packages: Sequence[AuditedPackage], on_progress: OnProgress, *, every_version: bool = False
    ) -> AdvisoryIndex:
        """Return the advisories about these versions of packages, or about `every_version` of them."""
        asked = {
            (package.ecosystem, name, None if every_version else package.version): None
            for package in packages
            if package.problem is None
            for name in (package.name, *package.aliases)
        }
        queries = [
            {"package": {"ecosystem": ecosystem, "name": name}, **({"version": version} if version else {})}
            for ecosystem, name, version in asked
        ]
        identifiers: dict[str, None] = {}
        for start in range(0, len(queries), MAX_QUERIES):
            self._query(queries[start : start + MAX_QUERIES], identifiers)
        found = []
        for number, advisory in enumerate(map_in_threads(self._fetch, identifiers, CONNECTIONS), start=1):
            on_progress(number, len(identifiers))
            found.append(advisory)
        return AdvisoryIndex(found, source=self.url, ecosystems=(PYPI, DEBIAN))

    def _query(self, queries: Sequence[dict[str, Any]], found: dict[str, None]) -> None:
        """Add the identifiers that answer a batch of queries to `found`, with all pages."""
        left = list(queries)
        for _ in range(MAX_PAGES):
            if not left:
                return
            answer = self._read("POST", "/v1/querybatch", _Answer, MAX_ANSWER, {"queries": left})
            if len(answer.results) != len(left):
                raise self._invalid(f"it answers {len(left)} queries with {len(answer.results)} results")
            pages = []
            for query, result in zip(left, answer.results, strict=True):
                found.update(dict.fromkeys(hit.id for hit in result.vulns))
                if result.next_page_token:
                    pages.append({**query, "page_token": result.next_page_token})
            if len(found) > MAX_ADVISORIES:
                raise self._invalid(f"it names more than {MAX_ADVISORIES} advisories")
            left = pages
        raise self._invalid(f"its answer has more than {MAX_PAGES} pages")

    def _fetch(self, identifier: str) -> Advisory:
        advisory = self._read("GET", f"/v1/vulns/{quote(identifier, safe='')}", Advisory, MAX_BYTES)
        if advisory.id != identifier:
            raise self._invalid(f"it answers a request for {identifier} with {advisory.id}")
        return advisory

    def _read(self, method: str, path: str, model: type[Model], limit: int, body: Any = None) -> Model:
        try:
            response = self._send(method, f"{self.url}{path}", body)
            if response.status_code != requests.codes.ok:
                response.close()
                raise ValueError(f"it answers {path} with status {response.status_code}")
            return parse_document(model, read_body(response, limit), max_bytes=limit)
        except InvalidDocument as error:
            raise self._invalid(f"its answer to {path} is invalid: {error}") from None
        except UNREADABLE as error:
            raise make_network_error("advisories", error, source=self.url) from None

    def _send(self, method: str, url: str, body: Any) -> requests.Response:
        """Return a streamed response; retry transient failures with exponential backoff."""
        for seconds in [self._wait * 2**retry for retry in range(ATTEMPTS - 1)]:
            raise_if_cancelled()
            with suppress(requests.ConnectionError, requests.Timeout):
                response = self._session.request(method, url, json=body, stream=True, timeout=TIMEOUT_SECONDS)
                if response.status_code not in TRANSIENT_STATUSES:
                    return response
                response.close()
            time.sleep(seconds)
        return self._session.request(method, url, json=body, stream=True, timeout=TIMEOUT_SECONDS)

    def _invalid(self, problem: str) -> NetworkError:
        return NetworkError(
            f"No advisory was read from {self.url}: {problem}.",
            next_step="Name the address of a service that speaks OSV's API, or a folder of its export.",
        )
