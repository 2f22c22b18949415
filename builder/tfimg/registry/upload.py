"""Upload blobs in chunks, and resume where the registry lost a part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import NetworkError, RegistryError, TamperedError
from tfimg.core.files import open_chunks
from tfimg.registry.connection import Connection
from tfimg.registry.responses import Response, parse_size
from tfimg.registry.retry import TransientError

CHUNK_BYTES = 16 << 20
"""Bytes of one request: above the 5 MiB that object stores require (Amazon S3, "multipart upload limits")."""

MAX_CHUNK_BYTES = 64 << 20
"""Largest chunk that a registry may require; each is in memory twice."""

LOST_STATUSES = (400, 404, 416)
"""Responses about an upload that the registry has lost, in part or altogether."""

BINARY = {"Content-Type": "application/octet-stream"}


class _Lost(Exception):
    """The registry has less of the upload than before."""


def upload(
    connection: Connection,
    digest: str,
    pieces: Iterable[bytes],
    *,
    on_progress: Callable[[int], None],
    chunk_bytes: int = CHUNK_BYTES,
) -> None:
    """Send a blob, unless the registry has it. `on_progress` receives the bytes sent so far.

    Raises `NetworkError`, also if the upload was lost and `pieces` cannot be iterated again, and `TamperedError` for
    bytes with another digest.
    """
    is_repeatable = iter(pieces) is not pieces

    def attempt() -> None:
        if _has_blob(connection, digest):
            return
        try:
            _Upload(connection, digest).send(pieces, chunk_bytes, on_progress)
        except _Lost:
            error = NetworkError(
                f"The registry {connection.host} lost an interrupted upload.",
                next_step="Run it again: completed uploads are not repeated.",
            )
            raise TransientError(error) if is_repeatable else error from None

    connection.retry_policy.retry_transient(attempt)


def _has_blob(connection: Connection, digest: str) -> bool:
    return connection.request("HEAD", f"blobs/{digest}", expected=(200, 404)).status == 200


@dataclass
class _Upload:
    """One upload session. `location` is the address for the next request."""

    connection: Connection
    digest: str
    location: str = ""

    def send(self, pieces: Iterable[bytes], chunk_bytes: int, on_progress: Callable[[int], None]) -> None:
        response = self.connection.request("POST", "blobs/uploads/", expected=(202,))
        self._update_location(response)
        minimum = min(parse_size(response.headers.get("OCI-Chunk-Min-Length")), MAX_CHUNK_BYTES)
        stream, size = open_chunks(iter(pieces)), max(chunk_bytes, minimum)
        chunk, offset = stream.read(size), 0
        try:
            while following := stream.read(size):
                self._patch(offset, chunk)
                offset += len(chunk)
                on_progress(offset)
                chunk = following
            if offset:
                self._patch(offset, chunk)
            self._finish(b"" if offset else chunk)
        except RegistryError:
            # Free the registry's space, which the upload occupies for days otherwise; the registry may be full.
            # Distribution 2.8 keeps the received part of a chunk that it could not write.
            with suppress(NetworkError, RegistryError, TransientError):
                self.connection.request("DELETE", self.location, once=True)
            raise
        on_progress(offset + len(chunk))

    def _finish(self, content: bytes) -> None:
        """Complete the upload, with the content of a small blob; the registry compares the digest."""

        def put() -> None:
            raise_if_cancelled()
            parts = urlsplit(self.location)
            query = "&".join(filter(None, (parts.query, urlencode({"digest": self.digest}))))
            url = parts._replace(query=query).geturl()
            response = self.connection.request(
                "PUT", url, expected=(201, *LOST_STATUSES), content=content, headers=BINARY, once=True
            )
            if "DIGEST_INVALID" in response.message:
                raise TamperedError(
                    f"The upload to {self.connection.host} is not {self.digest}: bytes changed on the way.",
                    next_step="Check the file or the disk that it comes from, and run it again.",
                )
            self._require(response, "PUT", 201)

        def resume() -> None:
            if not _has_blob(self.connection, self.digest):
                put()

        self.connection.retry_policy.retry_transient(put, resume)

    def _patch(self, offset: int, content: bytes) -> None:
        """Send a chunk. Raises `_Lost`."""

        def patch(received: int = 0) -> None:
            raise_if_cancelled()
            start, rest = offset + received, content[received:]
            if not rest:
                return
            headers = {**BINARY, "Content-Range": f"{start}-{start + len(rest) - 1}"}
            response = self.connection.request(
                "PATCH", self.location, expected=(202, *LOST_STATUSES), content=rest, headers=headers, once=True
            )
            self._require(response, "PATCH", 202)
            self._update_location(response)

        self.connection.retry_policy.retry_transient(patch, lambda: patch(self._find_progress(offset, len(content))))

    def _find_progress(self, offset: int, size: int) -> int:
        """Return how many bytes of the chunk at `offset` the registry has. Raises `_Lost`."""
        response = self.connection.request("GET", self.location, expected=(204, *LOST_STATUSES), once=True)
        self._require(response, "GET", 204)
        # `0-0` is one byte, or none with distribution. Only the first chunk is ambiguous, and it is sent again.
        span = re.fullmatch(r"(?:bytes=)?0-([0-9]{1,15})", response.headers.get("Range", ""))
        last = int(span[1]) if span else -1
        received = (last + 1 if last else 0) - offset
        if not span or not 0 <= received <= size:
            raise _Lost
        if "Location" in response.headers:
            self._update_location(response)
        return received

    def _require(self, response: Response, method: str, status: int) -> None:
        """Raise `_Lost` if the upload is gone.

        Distribution drops every upload that was cut: "upload resumed at wrong offset" (`handlers/blobupload.go`).
        """
        if response.status == status:
            return
        if response.status in (404, 416) or "BLOB_UPLOAD" in response.message:
            raise _Lost
        raise self.connection.map_error(response, method)

    def _update_location(self, response: Response) -> None:
        """Take the next address from a response; some name it without the registry's."""
        location = response.headers.get("Location")
        self.location = (
            self.connection.resolve_link(response.url, location, "the place of an upload") if location else response.url
        )
