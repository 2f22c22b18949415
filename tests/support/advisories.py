"""Advisories in the OSV schema, and a service on loopback that speaks OSV's API and compares versions as it does."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from support.http_server import AnyMethod, Server, serving

CRITICAL = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"
"""9.8."""


def affected(
    name: str, *events: Mapping[str, str], ecosystem: str = "PyPI", versions: Sequence[str] = (), **other: Any
) -> dict[str, Any]:
    """Return the part of an advisory about one package; `events` are those of one range."""
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}] if events else []
    return {"package": {"ecosystem": ecosystem, "name": name}, "ranges": ranges, "versions": list(versions), **other}


def below(version: str, introduced: str = "0") -> tuple[dict[str, str], dict[str, str]]:
    """Return the events of a range up to a fixed version."""
    return {"introduced": introduced}, {"fixed": version}


def advisory(identifier: str, *parts: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Return an advisory about packages."""
    return {
        "schema_version": "1.7.0",
        "id": identifier,
        "modified": "2026-01-01T00:00:00Z",
        "affected": list(parts),
        **fields,
    }


@dataclass
class OsvServer:
    """Advisories, how many identifiers a page has, answers to single paths, and the requests.

    `tokens` are answers without identifiers, before the first page; `failures` of a `status` come before all else.
    """

    url: str = ""
    advisories: list[Mapping[str, Any]] = field(default_factory=list)
    page: int = 1000
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    requested: list[tuple[str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    failures: int = 0
    status: int = 503

    def answer(self, path: str, body: Any) -> tuple[int, bytes]:
        if self.failures:
            self.failures -= 1
            return self.status, b"busy"
        if path in self.answers:
            return self.answers[path]
        if path == "/v1/querybatch":
            if len(body["queries"]) > 1000:
                return 400, b'{"code":3,"message":"too many queries"}'
            return 200, json.dumps({"results": [self._result(query) for query in body["queries"]]}).encode()
        name = unquote(path.removeprefix("/v1/vulns/"))
        found = [one for one in self.advisories if one["id"] == name]
        return (200, json.dumps(found[0]).encode()) if found else (404, b'{"code":5,"message":"Bug not found."}')

    def _result(self, query: Mapping[str, Any]) -> dict[str, Any]:
        if self.tokens:
            return {"next_page_token": self.tokens.pop()}
        found = [
            one["id"]
            for one in self.advisories
            if "withdrawn" not in one and any(_is_about(part, query) for part in one["affected"])
        ]
        start = int(query.get("page_token", 0))
        page = [{"id": name, "modified": "2026-01-01T00:00:00Z"} for name in found[start : start + self.page]]
        more = {"next_page_token": str(start + self.page)} if found[start + self.page :] else {}
        return {**({"vulns": page} if page else {}), **more}


def _is_about(part: Mapping[str, Any], query: Mapping[str, Any]) -> bool:
    """Return whether a part of an advisory matches a query: its ecosystem to the letter, its name, its version."""
    package, requested, version = part["package"], query["package"], query["version"]
    if package["ecosystem"] != requested["ecosystem"]:
        return False
    if canonicalize_name(package["name"]) != canonicalize_name(requested["name"]):
        return False
    parse = Version if requested["ecosystem"] == "PyPI" else _parse_debian
    present = parse(version)
    if any(_same(parse, listed, present) for listed in part["versions"]):
        return True
    return any(_is_within(parse, one["events"], present) for one in part["ranges"] if one["type"] == "ECOSYSTEM")


def _same(parse: Any, text: str, version: Any) -> bool:
    try:
        return bool(parse(text) == version)
    except InvalidVersion:
        return False


def _is_within(parse: Any, events: Sequence[Mapping[str, str]], version: Any) -> bool:
    """Decide as the service: the last event that is not above a version says whether that is vulnerable."""
    ordered = []
    for event in events:
        ((kind, text),) = event.items()
        try:
            ordered.append((parse("0.dev0" if text == "0" and parse is Version else text), kind))
        except InvalidVersion:
            continue
    before = [(one, kind) for one, kind in sorted(ordered) if one <= version]
    if not before:
        return False
    one, kind = before[-1]
    return kind == "introduced" or (kind == "last_affected" and one == version)


def _parse_debian(text: str) -> tuple[tuple[int, str], ...]:
    """Return a key for versions such as 2.36-9+deb12u4: their numbers decide. Debian's own order knows more."""
    return tuple((int(number), "") for number in re.findall(r"\d+", text))


@contextmanager
def osv_server(*advisories: Mapping[str, Any], **options: Any) -> Iterator[OsvServer]:
    """Serve advisories."""
    server = OsvServer(advisories=list(advisories), **options)
    with serving(_Handler, server) as address:
        server.url = f"http://{address}"
        yield server


class _Handler(AnyMethod):
    def answer(self) -> None:
        subject: OsvServer = cast("Server", self.server).subject
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        subject.requested.append((self.path, body))
        status, content = subject.answer(self.path, body)
        self.reply(status, {"Content-Type": "application/json"}, content)
