"""Advisories in the OSV schema, as files and as a service on loopback that speaks OSV's API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from support.http_server import AnyMethod, Server, serving
from tfimg.advisories.schema import Advisory
from tfimg.advisories.versions import is_affected, matches_ecosystem

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


def write_advisories(folder: Path, *advisories: Mapping[str, Any]) -> Path:
    """Write each advisory into a file of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in advisories:
        (folder / f"{one['id']}.json").write_text(json.dumps(one))
    return folder


@dataclass
class OsvServer:
    """Advisories, how many identifiers a page has, answers to single paths, and what was asked."""

    url: str = ""
    advisories: list[Mapping[str, Any]] = field(default_factory=list)
    page: int = 1000
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    failures: int = 0

    def answer(self, path: str, body: Any) -> tuple[int, bytes]:
        if self.failures:
            self.failures -= 1
            return 503, b"busy"
        if path in self.answers:
            return self.answers[path]
        if path == "/v1/querybatch":
            return 200, json.dumps({"results": [self._result(query) for query in body["queries"]]}).encode()
        name = unquote(path.removeprefix("/v1/vulns/"))
        found = [one for one in self.advisories if one["id"] == name]
        return (200, json.dumps(found[0]).encode()) if found else (404, b'{"code":5,"message":"Bug not found."}')

    def _result(self, query: Mapping[str, Any]) -> dict[str, Any]:
        asked, version = query["package"], query.get("version")
        found = []
        for one in map(Advisory.model_validate, self.advisories):
            for part in one.affected:
                package = part.package
                if (
                    package
                    and package.name == asked["name"]
                    and matches_ecosystem(package.ecosystem, asked["ecosystem"])
                ) and (version is None or is_affected(part, asked["ecosystem"], version)):
                    found.append(one.id)
        start = int(query.get("page_token", 0))
        page = [{"id": name, "modified": "2026-01-01T00:00:00Z"} for name in found[start : start + self.page]]
        more = {"next_page_token": str(start + self.page)} if found[start + self.page :] else {}
        return {**({"vulns": page} if page else {}), **more}


@contextmanager
def osv_server(*advisories: Mapping[str, Any], **options: Any) -> Iterator[OsvServer]:
    """Serve advisories."""
    server = OsvServer(advisories=list(advisories), **options)
    with serving(_Handler, server) as address:
        server.url = f"http://{address}"
        yield server


class _Handler(AnyMethod):
    def answer(self) -> None:
        here: OsvServer = cast("Server", self.server).subject
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        here.asked.append((self.path, body))
        status, content = here.answer(self.path, body)
        self.reply(status, {"Content-Type": "application/json"}, content)
