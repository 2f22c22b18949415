"""Habits of registries, which `faulty_proxy` puts before a real one: what their users meet beside the specification.

    with faulty(address) as proxy:
        proxy.faults[:] = [*no_deletes(), *relative_uploads()]

Bodies are as registries and the proxies before them write them.
"""

import itertools
import json
from collections.abc import Callable
from http.client import HTTPConnection
from urllib.parse import urlsplit

from support.faulty_proxy import Fault, Headers, Request
from support.loopback_registry import IMMUTABLE

ALWAYS = -1
JSON = {"Content-Type": "application/json"}
HTML = {"Content-Type": "text/html; charset=utf-8"}
MANIFESTS = r"/manifests/[^:]+$"  # of tags
ACCEPT = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, */*"

Habit = list[Fault]


def _refuse(method: str, path: str, status: int, code: str, message: str) -> Fault:
    body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
    return Fault(method=method, path=path, status=status, headers=JSON, body=body, times=ALWAYS)


def _has_tag(request: Request) -> bool:
    there = HTTPConnection(request.upstream, timeout=60)
    there.request("HEAD", request.path, headers={"Accept": ACCEPT})
    answer = there.getresponse()
    answer.read()
    there.close()
    return answer.status == 200


def immutable_tags(answer: str, pattern: str = MANIFESTS) -> Habit:
    """Tags are written once, also with the same content; `answer` is a name of `IMMUTABLE`."""
    status, headers, body = IMMUTABLE[answer]
    once = Fault(path=pattern, method="PUT|DELETE", status=status, headers=headers, body=body, times=ALWAYS)
    once.when = _has_tag
    return [once]


def small_requests(limit: int) -> Habit:
    """A proxy before the registry takes no larger request; it answers as nginx does."""
    title = "413 Request Entity Too Large"
    body = f"<html>\r\n<head><title>{title}</title></head>\r\n<body><h1>{title}</h1></body>\r\n</html>\r\n".encode()
    too_large = Fault(method="PUT|PATCH", path="/blobs/", status=413, headers=HTML, body=body, times=ALWAYS)
    too_large.when = lambda request: (
        int(request.headers.get("content-length", limit + 1)) > limit  # without one, in chunks
    )
    return [too_large]


def no_mounts() -> Habit:
    """A blob of another repository has to be sent again."""
    again = Fault(method="POST", path=r"/blobs/uploads/\?.*mount=", times=ALWAYS)
    again.rewrite = lambda path: path.partition("?")[0]
    return [again]


def must_exist_first(name: str) -> Habit:
    """No repository is made at a push."""
    message = f"The repository with name '{name}' does not exist in the registry with id '1'"
    return [_refuse(".*", "^/v2/.", 404, "NAME_UNKNOWN", message)]


def sign_in_page(path: str = "") -> Habit:
    """A company's gateway asks for a login in a browser."""
    body = b"<!DOCTYPE html><html><head><title>Sign in to Example</title></head><body>...</body></html>"
    return [Fault(method="GET|HEAD", path=path, status=200, headers=HTML, body=body, times=ALWAYS)]


def no_deletes(status: int = 405) -> Habit:
    code = "UNSUPPORTED" if status == 405 else "DENIED"
    return [_refuse("DELETE", "", status, code, "The operation is unsupported.")]


def no_pushes() -> Habit:
    return [_refuse("POST|PUT|PATCH", "", 403, "DENIED", "requested access to the resource is denied")]


def short_tokens(address: str, uses: int) -> Habit:
    """Everyone gets a token, which ends after some requests."""
    left: dict[str, int] = {}
    numbers = itertools.count()

    def is_refused(request: Request) -> bool:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        left[token] = left.get(token, 0) - 1
        return left[token] < 0

    realm = f'Bearer realm="http://{address}/token",service="registry.test"'
    body = b'{"errors": [{"code": "UNAUTHORIZED", "message": "token expired"}]}'
    challenge = {**JSON, "WWW-Authenticate": f'{realm},error="invalid_token"'}
    refused = Fault(path="^/v2/", status=401, headers=challenge, body=body, times=ALWAYS, when=is_refused)
    server = Fault(path="^/token", status=200, headers=JSON, times=ALWAYS)

    def issue() -> None:
        token = f"token-{next(numbers)}"
        left[token] = uses
        server.body = json.dumps({"token": token, "expires_in": 60}).encode()

    server.before = issue
    return [refused, server]


def busy(wait: int, times: int) -> Habit:
    """Too many requests were sent: for manifests, each client has to wait."""
    headers = {**JSON, "Retry-After": str(wait)}
    body = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "Rate exceeded"}]}'
    return [Fault(method="GET", path=MANIFESTS, status=429, headers=headers, body=body, times=times)]


def _edit(method: str, path: str, edit: Callable[[Headers], Headers]) -> Fault:
    return Fault(method=method, path=path, times=ALWAYS, edit=edit)


def relative_uploads() -> Habit:
    """The place of an upload is named without a host, and has a query."""

    def edit(headers: Headers) -> Headers:
        return [(name, _relative(value) if name.lower() == "location" else value) for name, value in headers]

    return [_edit("POST|PATCH", "/blobs/uploads/", edit)]


def _relative(address: str) -> str:
    parts = urlsplit(address)
    assert parts.query
    return f"{parts.path}?{parts.query}"


def no_digests() -> Habit:
    """Manifests come without their digest. Engines need it in the answer to a push, and every registry has it there."""

    def edit(headers: Headers) -> Headers:
        return [(name, value) for name, value in headers if name.lower() != "docker-content-digest"]

    return [_edit("GET|HEAD", "/manifests/", edit)]
