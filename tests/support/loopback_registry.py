"""A small registry in this process that does what distribution 2.8 does not: list referrers, and page.

It speaks real HTTP on loopback, and is no substitute for a real registry, which the engine tier has.
"""

import json
import re
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from support.http_server import AnyMethod, Server, serving
from tfimg.registry.documents import OCI_INDEX, digest_of

Answer = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request: `name` is what follows the kind of thing in the path."""

    method: str
    name: str
    query: dict[str, str]
    headers: Any
    body: bytes


def error(status: int, code: str, message: str = "", **headers: str) -> Answer:
    body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"Content-Type": "application/json", **named}, body


IMMUTABLE = {
    "quoting the tag": error(400, "TAG_INVALID", "The tag already exists and cannot be overwritten: it is immutable."),
    "as a precondition": error(412, "PRECONDITION", "Failed to process request due to 'tf:1' configured as immutable."),
    "as a manifest": error(400, "MANIFEST_INVALID", "cannot update tag 1. The repository has enabled tag immutability"),
    "as a right": error(403, "DENIED", "The requested tag already exists and cannot be overwritten"),
}
"""How registries answer that a tag may not move."""


@dataclass(kw_only=True)
class Loopback:
    """What it has and how it behaves. `page` is how many entries a list has at once; `users` are names and passwords.

    Tags that match `immutable` are written once, and `refusal` is the answer to a second write or a deletion. With
    `tokens`, it sends who asks to its own token server, which issues one and takes it back after `uses`.
    """

    address: str = ""
    native: bool = True
    confirms_subject: bool = True
    deletes_tags: bool = True
    deletes_digests: bool = False
    ranges: bool = True
    immutable: str | None = None
    refusal: Answer = field(default_factory=lambda: IMMUTABLE["quoting the tag"])
    page: int = 1000
    users: dict[str, str] = field(default_factory=dict)
    readers: frozenset[str] = frozenset()
    tokens: bool = False
    uses: int = 1000
    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    uploads: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    given: dict[str, list[Any]] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, method: str, url: str, headers: Any, body: bytes) -> Answer:
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self.lock:
            self.requests.append(f"{method} {url}")
            self.headers.append(dict(headers.items()))
            if parts.path == "/token":
                return self._token(method, query, headers, body)
            refused = self._entry(method, headers)
            found = re.fullmatch(r"/v2/(.+)/(manifests|blobs|tags|referrers)/(.*)", parts.path)
            if refused or not found:
                return refused or error(404, "NAME_UNKNOWN")
            request = Request(method=method, name=found[3], query=query, headers=headers, body=body)
            answer: Answer = getattr(self, f"_{found[2]}")(request)
            return answer

    def _entry(self, method: str, headers: Any) -> Answer | None:
        if not self.users:
            return None
        said = headers.get("Authorization", "")
        if not self.tokens:
            if self._user(said) is None:
                return error(401, "UNAUTHORIZED", "authentication required", WWW_Authenticate='Basic realm="here"')
            return None
        actions = {"GET": "pull", "HEAD": "pull", "DELETE": "delete"}.get(method, "pull,push")
        challenge = f'Bearer realm="http://{self.address}/token",service="here",scope="repository:team/tf:{actions}"'
        token = self.given.get(said.removeprefix("Bearer "))
        if token is None or not token[0]:
            return error(401, "UNAUTHORIZED", "authentication required", WWW_Authenticate=challenge)
        if actions not in token[1]:
            challenge += ',error="insufficient_scope"'
            return error(401, "DENIED", "requested access is denied", WWW_Authenticate=challenge)
        token[0] -= 1
        return None

    def _user(self, said: str) -> str | None:
        name, _, password = b64decode(said.removeprefix("Basic ")).decode().partition(":")
        return name if self.users.get(name) == password and name else None

    def _token(self, method: str, query: dict[str, str], headers: Any, body: bytes) -> Answer:
        if method == "POST":
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            stated = form.get("client_id"), form.get("grant_type")
            is_ours = stated == ("tfimg", "refresh_token") and form["refresh_token"] in self.users
            name = form["refresh_token"] if is_ours else None
        else:
            form, name = query, self._user(headers.get("Authorization", "Basic Og=="))
        scope = form["scope"]
        if name is None or form.get("service") != "here":
            return error(401, "UNAUTHORIZED", "incorrect username or password")
        wanted = scope.rpartition(":")[2]
        token = f"token-{len(self.given)}"
        self.given[token] = [self.uses, {"pull", *([] if name in self.readers else [wanted])}]
        return 200, {"Content-Type": "application/json"}, json.dumps({"access_token": token}).encode()

    def _manifests(self, request: Request) -> Answer:
        if request.method == "PUT":
            return self._put(request.name, request.headers["Content-Type"], request.body)
        if request.method == "DELETE":
            return self._delete(request.name)
        key = self.tags.get(request.name, request.name)
        if key not in self.manifests:
            return error(404, "MANIFEST_UNKNOWN", "manifest unknown")
        kind, content = self.manifests[key]
        return 200, {"Content-Type": kind, "Docker-Content-Digest": key}, content

    def _delete(self, name: str) -> Answer:
        by_digest = name.startswith("sha256:")
        if self._is_immutable(name):
            return self.refusal
        if not (self.deletes_digests if by_digest else self.deletes_tags):
            return error(405, "UNSUPPORTED")
        if by_digest:  # as distribution 2.8 does: with all of its tags
            self.tags = {tag: key for tag, key in self.tags.items() if key != name}
        there = self.manifests.pop(name, None) if by_digest else self.tags.pop(name, None)
        return (202, {}, b"") if there else error(404, "MANIFEST_UNKNOWN")

    def _put(self, name: str, kind: str, body: bytes) -> Answer:
        key = digest_of(body)
        if self._is_immutable(name):  # some refuse the same content too
            return self.refusal
        self.manifests[key] = (kind, body)
        if not name.startswith("sha256:"):
            self.tags[name] = key
        subject = json.loads(body).get("subject", {}).get("digest")
        is_confirmed = subject and self.native and self.confirms_subject
        return 201, {"OCI-Subject": subject} if is_confirmed else {}, b""

    def _is_immutable(self, name: str) -> bool:
        return self.immutable is not None and name in self.tags and re.fullmatch(self.immutable, name) is not None

    def _tags(self, request: Request) -> Answer:
        return self._page("tags/list", sorted(self.tags), request.query, lambda page: {"name": "team/tf", "tags": page})

    def _referrers(self, request: Request) -> Answer:
        if not self.native:
            return 404, {"Content-Type": "text/plain"}, b"404 page not found"
        found = []
        for key, (kind, content) in self.manifests.items():
            document = json.loads(content)
            if document.get("subject", {}).get("digest") == request.name:
                found.append(
                    {
                        "mediaType": kind, "digest": key, "size": len(content),
                        "artifactType": document["artifactType"], "annotations": document.get("annotations", {}),
                    }
                )  # fmt: skip
        status, said, content = self._page(
            f"referrers/{request.name}", found, request.query, lambda page: {"manifests": page}
        )
        return status, {**said, "Content-Type": OCI_INDEX}, content

    def _page(self, name: str, whole: list[Any], query: dict[str, str], shape: Any) -> Answer:
        first = int(query.get("from", 0))
        following = first + self.page
        link = {"Link": f'</v2/team/tf/{name}?from={following}>; rel="next"'} if following < len(whole) else {}
        return 200, link, json.dumps(shape(whole[first:following])).encode()

    def _blobs(self, request: Request) -> Answer:
        if request.name.startswith("uploads/"):
            return self._upload(request, request.name.removeprefix("uploads/"))
        if request.name not in self.blobs:
            return error(404, "BLOB_UNKNOWN", "blob unknown to registry")
        content = self.blobs[request.name]
        span = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        return (206, {}, content[int(span[1]) :]) if span and self.ranges else (200, {}, content)

    def _upload(self, request: Request, name: str) -> Answer:
        if request.method == "POST":
            name = f"upload-{len(self.uploads)}"
            self.uploads.add(name)
            return 202, {"Location": f"/v2/team/tf/blobs/uploads/{name}?state=0"}, b""
        if name not in self.uploads:
            return error(404, "BLOB_UPLOAD_UNKNOWN")
        if digest_of(request.body) != request.query["digest"]:
            return error(400, "DIGEST_INVALID", "provided digest did not match uploaded content")
        self.blobs[request.query["digest"]] = request.body
        return 201, {}, b""


@contextmanager
def loopback(**behaviour: Any) -> Iterator[Loopback]:
    """A registry for as long as the block lasts."""
    subject = Loopback(**behaviour)
    with serving(_Handler, subject) as subject.address:
        yield subject


class _Handler(AnyMethod):
    def answer(self) -> None:
        subject: Loopback = cast("Server", self.server).subject
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size)
        if len(body) < size:
            return
        self.reply(*subject.answer(self.command, self.path, self.headers, body))
