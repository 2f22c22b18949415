"""What a request may take before the model sees it: bytes, time and memory of all requests together."""

import asyncio
import json
import re
import zlib

from values import Invalid

SECONDS = 60  # until a body has arrived
HELD = 256 << 20  # bytes of all bodies that are here at a time
OVERHEAD = 16 << 10  # bytes that a request counts beside its body: an estimate
DRAINED = 1 << 30  # bytes of a body that is too large which are read and forgotten, so that the client reads the answer
VERSIONS = re.compile(r"^(/v[12]/models/[^/:]+)/versions/([0-9]{1,18})(?=[/:]|$)")


class Limits:
    """ASGI middleware: read the body within limits, and write `/versions/N` as the repository of models names it."""

    def __init__(self, app, max_body):
        self.app = app
        self.max_body = max_body
        self.held = 0

    async def __call__(self, scope, receive, send):
        """Answer a request that exceeds a limit, else pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        place, path = VERSIONS.match(scope["path"]), scope["path"]
        if place:
            path = f"{place[1]}:{int(place[2])}{path[place.end() :]}"
        reader = _Reader(self, scope, receive)
        try:
            try:
                body = await asyncio.wait_for(reader.read(), SECONDS)
            except asyncio.TimeoutError:  # noqa: UP041 - another class before Python 3.11
                raise Invalid(f"The body did not arrive within {SECONDS} s.", 408) from None
        except Invalid as error:
            self.held -= reader.held
            await send_error(send, error)
            return
        except ConnectionError:
            self.held -= reader.held
            return
        except BaseException:
            self.held -= reader.held
            raise
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        try:
            await self.app({**scope, "path": path}, lambda: _next(messages, receive), send)
        finally:
            self.held -= reader.held


async def _next(messages, receive):
    return messages.pop() if messages else await receive()


class _Reader:
    """Reads the body of a request; `held` is what it counts."""

    def __init__(self, limits, scope, receive):
        self.limits = limits
        self.receive = receive
        self.headers = {name.lower(): value for name, value in scope["headers"]}
        self.held = 0

    async def read(self):
        """Return the body, unpacked. Raises `Invalid`, and `ConnectionError` if the client is gone."""
        encoding = self.headers.get(b"content-encoding", b"identity").decode("latin-1").lower()
        if encoding not in ("identity", "gzip"):
            raise Invalid(f"The content encoding {encoding[:100]!r} is not supported: send gzip, or none.", 415)
        body = await self._read()
        return body if encoding == "identity" else self._unpack(body)

    def _unpack(self, body):
        reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            unpacked = reader.decompress(body, self.limits.max_body + 1)
        except zlib.error as error:
            raise Invalid(f"The body is not gzip: {error}.") from None
        if len(unpacked) > self.limits.max_body:
            raise self._too_large()
        if not reader.eof:
            raise Invalid("The body is not gzip: it ends too early.")
        self._hold(len(unpacked))
        return unpacked

    def _too_large(self):
        return Invalid(f"The body has more than {self.limits.max_body} bytes: send fewer rows at a time.", 413)

    async def _read(self):
        limit = self.limits.max_body
        self._hold(OVERHEAD)
        length = self.headers.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > limit:
            if b"expect" not in self.headers:
                await self._drain()
            raise self._too_large()
        pieces, size = [], 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ConnectionError
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit:
                pieces.clear()
                if message.get("more_body"):
                    await self._drain()
                raise self._too_large()
            self._hold(len(piece))
            pieces.append(piece)
            if not message.get("more_body"):
                return b"".join(pieces)

    def _hold(self, size):
        if self.limits.held + size > HELD:
            raise Invalid("The server is busy with other requests: send this one again later.", 503)
        self.limits.held += size
        self.held += size

    async def _drain(self):
        size = 0
        while size < DRAINED:
            message = await self.receive()
            size += len(message.get("body", b""))
            if not message.get("more_body"):
                return


async def send_error(send, error):
    """Answer with the status and message of an `Invalid`, and close the connection."""
    body = json.dumps({"error": str(error)}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
