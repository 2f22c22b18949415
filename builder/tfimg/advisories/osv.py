"""Advisories in the OSV format: schema, service, folders.

Advisories come from outside. Fields that nothing here reads, such as details, references and credits, are not kept.

The service compares the versions: an answer names the advisories about a package in its version, which are then read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import requests
from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from tfimg.advisories.match import AuditedPackage, Finding, make_findings
from tfimg.core.cancellation import map_in_threads
from tfimg.core.documents import Document, InvalidDocument, Model, parse_document
from tfimg.core.errors import NetworkError, UsageError
from tfimg.core.retry import RetryPolicy
from tfimg.index.client import UNREADABLE, make_network_error, read_body
from tfimg.index.network import DirectSession, retry_request

MAX_BYTES = 4 << 20
"""Bytes of one advisory. Those of the Linux kernel, which list every version of Debian, have 0.5 MB."""

MAX_AFFECTED = 2_000
"""Packages of one advisory: a Debian advisory lists one for each release, a kernel's hundreds."""

MAX_RANGES = 200
MAX_EVENTS = 2_000
"""Ranges of a package, and events of a range. TensorFlow's advisories have 3 ranges of 2 events."""

MAX_VERSIONS = 20_000
"""Versions listed for a package. Those of TensorFlow's advisories list 150."""

MAX_ALIASES = 200
MAX_TEXT = 300
"""Characters of an identifier, a name, a version or a CVSS vector. The longest vector of CVSS 4 has 190."""

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}", re.ASCII)


def _check_identifier(value: str) -> str:
    if not _IDENTIFIER.fullmatch(value):
        raise ValueError("not an identifier such as CVE-2026-1234")
    return value


def _none_as_empty(value: Any) -> Any:
    return () if value is None else value


Short = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Identifier = Annotated[str, AfterValidator(_check_identifier)]
Identifiers = Annotated[tuple[Identifier, ...], Field(max_length=MAX_ALIASES), BeforeValidator(_none_as_empty)]


class Severity(Document):
    """A score: `CVSS_V3` with a vector, or another scale."""

    type: Short
    score: Short


class Package(Document):
    """A package: `PyPI`, `Debian:12`, … and its name there; in Debian, that of the source package."""

    ecosystem: Short
    name: Short


class Event(Document):
    """A version at which a package stops to be vulnerable, or the last that is so; neither where it becomes so."""

    fixed: Short | None = None
    last_affected: Short | None = None


class Range(Document):
    """Events in the order of an ecosystem's versions, of semantic versions, or of Git commits."""

    type: Short
    events: Annotated[tuple[Event, ...], Field(max_length=MAX_EVENTS)] = ()


class Affected(Document):
    """A package with its vulnerable versions."""

    package: Package | None = None
    severity: Annotated[tuple[Severity, ...], Field(max_length=20), BeforeValidator(_none_as_empty)] = ()
    ranges: Annotated[tuple[Range, ...], Field(max_length=MAX_RANGES), BeforeValidator(_none_as_empty)] = ()
    versions: Annotated[tuple[Short, ...], Field(max_length=MAX_VERSIONS), BeforeValidator(_none_as_empty)] = ()
    ecosystem_specific: dict[str, Any] | None = None
    database_specific: dict[str, Any] | None = None


class Advisory(Document):
    """One record of an advisory database."""

    id: Identifier
    aliases: Identifiers = ()
    upstream: Identifiers = ()
    withdrawn: Short | None = None
    severity: Annotated[tuple[Severity, ...], Field(max_length=20), BeforeValidator(_none_as_empty)] = ()
    affected: Annotated[tuple[Affected, ...], Field(max_length=MAX_AFFECTED), BeforeValidator(_none_as_empty)] = ()
    database_specific: dict[str, Any] | None = None

    @property
    def identifiers(self) -> frozenset[str]:
        """All names of the same defect: a record with one upstream is that of a distribution about this defect."""
        return frozenset((self.id, *self.aliases, *(self.upstream if len(self.upstream) == 1 else ())))


PUBLIC_SERVICE = "https://api.osv.dev"
"""The service of the project that made the schema; it has the databases of PyPI, GitHub and Debian."""

MAX_QUERIES = 1000
"""Queries of one request, as the service allows."""

MAX_PAGES = 100
"""Pages of the answer to one batch."""

MAX_ADVISORIES = 20_000
"""Advisories that are read. TensorFlow 2.10 has 500."""

MAX_ANSWER = 32 << 20
"""Bytes of the answer to one batch: identifiers only."""

CONNECTIONS = 8
TIMEOUT_SECONDS = 60

OnProgress = Callable[[int, int], None]
"""Called with the number of advisories that are read, and of those to read."""

Query = dict[str, Any]


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
    """A service at an address without its `/v1`. Methods raise `NetworkError`; `proxies` are by scheme.

    It reads each advisory once, and asks once about each package.
    """

    def __init__(
        self,
        url: str,
        *,
        ca: str | None = None,
        proxies: Mapping[str, str] | None = None,
        retries: RetryPolicy | None = None,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise UsageError(
                f"{url} is not the address of an advisory service.",
                next_step=f"Write it as {PUBLIC_SERVICE}, without user and password.",
            )
        self._retries = retries or RetryPolicy()
        self._session = DirectSession(step_seconds=TIMEOUT_SECONDS)
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
        names = [name for name in _list_names(found) if name not in self._advisories]
        for number, advisory in enumerate(map_in_threads(self._fetch, names, CONNECTIONS), start=1):
            on_progress(number, len(names))
            self._advisories[advisory.id] = advisory
        for package, named in found.items():
            self._findings[package] = make_findings(package, map(self._advisories.__getitem__, named))
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
            if len(_list_names(found)) > MAX_ADVISORIES:
                raise self._invalid(f"it names more than {MAX_ADVISORIES} advisories")
            queries = pages
        raise self._invalid(f"its answer has more than {MAX_PAGES} pages")

    def _fetch(self, identifier: str) -> Advisory:
        advisory = self._read("GET", f"/v1/vulns/{quote(identifier, safe='')}", Advisory, MAX_BYTES)
        if advisory.id != identifier:
            raise self._invalid(f"it answers a request for {identifier} with {advisory.id}")
        return advisory

    def _read(self, method: str, path: str, model: type[Model], limit: int, body: Any = None) -> Model:
        try:
            response = retry_request(
                self._session, method, f"{self.url}{path}", self._retries, json=body, timeout=TIMEOUT_SECONDS
            )
            if response.status_code != requests.codes.ok:
                response.close()
                raise ValueError(f"it answers {path} with status {response.status_code}")
            return parse_document(model, read_body(response, limit), max_bytes=limit)
        except InvalidDocument as error:
            raise self._invalid(f"its answer to {path} is invalid: {error}") from None
        except UNREADABLE as error:
            raise make_network_error("advisories", error, source=self.url) from None

    def _invalid(self, problem: str) -> NetworkError:
        return NetworkError(
            f"No advisory was read from {self.url}: {problem}.",
            next_step="Name the address of a service that speaks OSV's API with --osv.",
        )


def _list_names(found: Mapping[AuditedPackage, Iterable[str]]) -> dict[str, None]:
    """Return the advisories that are named, each once."""
    return {name: None for named in found.values() for name in named}
