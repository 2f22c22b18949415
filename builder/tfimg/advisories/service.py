"""Ask OSV's service (https://google.github.io/osv.dev/api/), or a mirror of it, which defects packages have.

The service compares the versions: an answer names the advisories about a package in its version, which are then read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import requests
from pydantic import Field

from tfimg.advisories.match import AuditedPackage, Finding, make_findings
from tfimg.advisories.osv import MAX_BYTES, Advisory, Identifier
from tfimg.core import cancellation, documents, errors, retry
from tfimg.core.text import split_url
from tfimg.index import client, network

PUBLIC_SERVICE = "https://api.osv.dev"
"""The service of the project that made the schema; it has the databases of PyPI, GitHub and Debian."""

MAX_QUERIES = 1000  # queries of one request, as the service allows
MAX_PAGES = 100  # pages of the answer to one batch
MAX_ADVISORIES = 20_000  # advisories that are read. TensorFlow 2.10 has 500
MAX_ANSWER = 32 << 20  # bytes of the answer to one batch: identifiers only
CONNECTIONS = 8
TIMEOUT_SECONDS = 60
OnProgress = Callable[[int, int], None]  # called with the number of advisories that are read, and of those to read
Query = dict[str, Any]


class _Hit(documents.Document):
    id: Identifier


class _Result(documents.Document):
    vulns: Annotated[tuple[_Hit, ...], Field(max_length=MAX_ADVISORIES), documents.null_means(())] = ()
    next_page_token: Annotated[str, Field(max_length=10_000)] | None = None


class _Answer(documents.Document):
    results: Annotated[tuple[_Result, ...], Field(max_length=MAX_QUERIES)]


class OsvService:
    """A service at an address without its `/v1`. Methods raise `NetworkError`; `proxies` are by scheme.

    It reads each advisory once, and asks once about each package.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: str | None = None,
        proxies: Mapping[str, str] | None = None,
        retries: retry.RetryPolicy | None = None,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        parts = split_url(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise errors.UsageError(
                f"{url} is not the address of an advisory service.",
                next_step=f"Write it as {PUBLIC_SERVICE}, without user and password.",
            )
        self._retries = retries or retry.RetryPolicy()
        self._session = network.DirectSession(step_seconds=TIMEOUT_SECONDS)
        self._session.proxies.update(proxies or {})
        if ca:
            self._session.verify = ca
        self._advisories: dict[str, Advisory] = {}
        self._findings: dict[AuditedPackage, tuple[Finding, ...]] = {}

    def find(
        self, packages: Iterable[AuditedPackage], on_progress: OnProgress = lambda _done, _total: None
    ) -> Mapping[AuditedPackage, tuple[Finding, ...]]:
        """Return the defects of packages, the gravest first; without those that no advisory can be about."""
        wanted = [package for package in dict.fromkeys(packages) if package.problem is None]
        queries = [
            (package, {"package": {"ecosystem": package.ecosystem, "name": name}, "version": package.version})
            for package in wanted
            if package not in self._findings
            for name in (package.name, *package.aliases)
        ]
        found: dict[AuditedPackage, dict[str, None]] = {package: {} for package, _ in queries}
        for start in range(0, len(queries), MAX_QUERIES):
            self._query(queries[start : start + MAX_QUERIES], found)
        named = dict.fromkeys(name for names in found.values() for name in names)
        names = [name for name in named if name not in self._advisories]
        for number, advisory in enumerate(cancellation.map_in_threads(self._fetch, names, CONNECTIONS), start=1):
            on_progress(number, len(names))
            self._advisories[advisory.id] = advisory
        for package, own in found.items():
            self._findings[package] = make_findings(package, map(self._advisories.__getitem__, own))
        return {package: self._findings[package] for package in wanted}

    def _query(
        self, queries: Sequence[tuple[AuditedPackage, Query]], found: Mapping[AuditedPackage, dict[str, None]]
    ) -> None:
        """Add the identifiers that answer a batch of queries to those `found` of each package, with all pages."""
        for _ in range(MAX_PAGES):
            if not queries:
                return
            body = {"queries": [query for _, query in queries]}
            answer = self._read("POST", "/v1/querybatch", _Answer, MAX_ANSWER, body)
            if len(answer.results) != len(queries):
                raise self._invalid(f"it answers {len(queries)} queries with {len(answer.results)} results")
            pages = []
            for (package, query), result in zip(queries, answer.results, strict=True):
                found[package].update(dict.fromkeys(hit.id for hit in result.vulns))
                if result.next_page_token:
                    pages.append((package, {**query, "page_token": result.next_page_token}))
            if len(set().union(*found.values())) > MAX_ADVISORIES:
                raise self._invalid(f"it names more than {MAX_ADVISORIES} advisories")
            queries = pages
        raise self._invalid(f"its answer has more than {MAX_PAGES} pages")

    def _fetch(self, identifier: str) -> Advisory:
        advisory = self._read("GET", f"/v1/vulns/{quote(identifier, safe='')}", Advisory, MAX_BYTES)
        if advisory.id != identifier:
            raise self._invalid(f"it answers a request for {identifier} with {advisory.id}")
        return advisory

    def _read(
        self, method: str, path: str, model: type[documents.Model], limit: int, body: Any = None
    ) -> documents.Model:
        try:
            response = network.retry_request(
                self._session, method, f"{self.url}{path}", self._retries, json=body, timeout=TIMEOUT_SECONDS
            )
            if response.status_code != requests.codes.ok:
                response.close()
                raise ValueError(f"it answers {path} with status {response.status_code}")
            return documents.parse_document(model, client.read_body(response, limit), max_bytes=limit)
        except documents.InvalidDocument as error:
            raise self._invalid(f"its answer to {path} is invalid: {error}") from None
        except client.UNREADABLE as error:
            raise client.make_network_error("advisories", error, source=self.url) from None

    def _invalid(self, problem: str) -> errors.NetworkError:
        return errors.NetworkError(
            f"No advisory was read from {self.url}: {problem}.",
            next_step="Name the address of a service that speaks OSV's API with --osv.",
        )
