"""A package index on loopback: pages in both forms of PEP 503 and 691, files, metadata beside them, and byte ranges."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from support.http_server import AnyMethod, Server, serving

JSON = "application/vnd.pypi.simple.v1+json"
HTML = "text/html; charset=utf-8"
BINARY = "application/octet-stream"


@dataclass
class File:
    """A file of a project's page; `metadata` is offered beside it, `sha256` is what the page lists."""

    name: str
    content: bytes = b""
    uploaded: str | None = "2024-03-08T23:59:59.123456Z"
    yanked: bool = False
    metadata: str | None = None
    sha256: str | None = None
    requires_python: str | None = None


@dataclass
class PackageIndex:
    """Files by project, answers to single paths, and the requests. `cached`: clients may keep answers for an hour."""

    url: str = ""
    form: str = JSON
    ranges: bool = True
    cached: bool = False
    files: dict[str, list[File]] = field(default_factory=dict)
    answers: dict[str, tuple[int, str, bytes]] = field(default_factory=dict)
    requested: list[str] = field(default_factory=list)
    sent: int = 0

    def answer(self, path: str) -> tuple[int, str, bytes]:
        if path in self.answers:
            return self.answers[path]
        files = {file.name: file for page in self.files.values() for file in page}
        kind, _, name = path.strip("/").partition("/")
        if kind == "simple" and name in self.files:
            page = _json if self.form == JSON else _html
            return 200, self.form, page(name, self.files[name]).encode()
        if kind == "files" and name in files:
            return 200, BINARY, files[name].content
        wheel = files.get(name.removesuffix(".metadata"))
        if kind == "files" and wheel and wheel.metadata:
            return 200, BINARY, wheel.metadata.encode()
        return 404, HTML, b"<h1>Not Found</h1>"


@contextmanager
def package_index(index: PackageIndex | None = None) -> Iterator[PackageIndex]:
    """Serve an index, by default one that has nothing yet."""
    index = index or PackageIndex()
    with serving(_Handler, index) as address:
        index.url = f"http://{address}"
        yield index


def _json(project: str, files: list[File]) -> str:
    listed = [
        {
            "filename": file.name, "url": f"../../files/{file.name}", "yanked": file.yanked,
            "hashes": {"sha256": file.sha256} if file.sha256 else {},
            **({"upload-time": file.uploaded} if file.uploaded else {}),
            **({"requires-python": file.requires_python} if file.requires_python else {}),
            **({"core-metadata": {"sha256": _digest(file.metadata)}} if file.metadata else {}),
        }
        for file in files
    ]  # fmt: skip
    return json.dumps({"meta": {"api-version": "1.1"}, "name": project, "versions": [], "files": listed})


def _html(_project: str, files: list[File]) -> str:
    links = (
        f'<a href="../../files/{file.name}"'
        + (' data-yanked=""' if file.yanked else "")
        + (f' data-core-metadata="sha256={_digest(file.metadata)}"' if file.metadata else "")
        + f">{file.name}</a><br>"
        for file in files
    )
    return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Handler(AnyMethod):
    def answer(self) -> None:
        subject: PackageIndex = cast("Server", self.server).subject
        subject.requested.append(self.path)
        status, kind, content = subject.answer(self.path)
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        partial = status == 200 and span is not None and subject.ranges
        whole = len(content)
        if partial and span:
            first, last = _bounds(span, whole)
            status, content = 206, content[first : last + 1]
        self.send_response(status)
        if partial:
            self.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
        if subject.cached:
            self.send_header("Cache-Control", "max-age=3600")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        subject.sent += len(content)
        try:
            if self.command != "HEAD":
                self.wfile.write(content)
        except OSError:
            self.close_connection = True  # the client has seen enough


def _bounds(span: re.Match[str], whole: int) -> tuple[int, int]:
    if not span[1]:
        return max(0, whole - int(span[2])), whole - 1
    return int(span[1]), min(int(span[2] or whole), whole - 1)
