"""A blob → a registry, chunk by chunk; what was lost on the way is sent again from where the registry has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from urllib.parse import parse_qsl, urlencode, urlsplit

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import NetworkError, RegistryError, TamperedError
from tfimg.registry.connection import Connection
from tfimg.registry.error_mapping import Response, parse_size
from tfimg.registry.retry import TransientError

CHUNK = 16 << 20
"""Bytes in one request: above the 5 MiB that object stores want of a part (Amazon S3, "multipart upload limits")."""

LARGEST = 64 << 20
"""A registry may want larger chunks; each is held in memory, twice."""

ANSWERS = (400, 404, 416)
"""What a registry may answer about an upload that it does not have any more, or not as far as we know."""

Sent = Callable[[int], None]
"""Is told how many bytes the registry has so far."""


class _Lost(Exception):
    """The registry has less of the upload than before."""


def upload(connection: Connection, digest: str, pieces: Iterable[bytes], *, sent: Sent, chunk: int = CHUNK) -> None:
    """Send a blob, unless it is there already.

    Raises `NetworkError` also where it was lost and cannot be read again, `TamperedError` where its digest is another.
    """
    again = iter(pieces) is not pieces
    begun = False

    def attempt() -> None:
        nonlocal begun
        if is_there(connection, digest):
            return
        if begun and not again:
            raise _lost_for_good(connection)
        try:
            begun = True
            _send(connection, digest, pieces, chunk, sent)
        except _Lost:
            raise TransientError(_lost_for_good(connection)) from None

    connection.retry_policy.retry_transient(attempt)


def is_there(connection: Connection, digest: str) -> bool:
    """Whether the repository has a blob."""
    return connection.ask("HEAD", f"blobs/{digest}", expected=(200, 404)).status == 200


def chunks(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in equal chunks, of which the last may be smaller; at least one."""
    held, first = bytearray(), True
    for piece in pieces:
        held += piece
        while len(held) > size:
            yield bytes(held[:size])
            del held[:size]
            first = False
    if held or first:
        yield bytes(held)


def _send(connection: Connection, digest: str, pieces: Iterable[bytes], chunk: int, sent: Sent) -> None:
    begun = connection.ask("POST", "blobs/uploads/", expected=(202,))
    place, offset = _place(connection, begun), 0
    least = min(parse_size(begun.headers.get("OCI-Chunk-Min-Length")), LARGEST)
    parts = chunks(pieces, max(chunk, least))
    part = next(parts)
    try:
        for following in parts:
            place = _patch(connection, place, offset, part)
            offset += len(part)
            sent(offset)
            part = following
        if offset:
            place = _patch(connection, place, offset, part)
        _finish(connection, place, digest, b"" if offset else part)
    except RegistryError:
        _give_up(connection, place)
        raise
    sent(offset + len(part))


def _give_up(connection: Connection, place: str) -> None:
    """Let the registry have the room again that an upload takes: for days otherwise, and it may be full.

    Distribution 2.8 keeps all the same what came of a chunk that it could not write.
    """
    with suppress(NetworkError, RegistryError, TransientError):
        connection.once("DELETE", place, expected=range(200, 600))


def _finish(connection: Connection, place: str, digest: str, content: bytes) -> None:
    """Say that it is whole; the registry compares the digest. A small blob goes with it."""
    uncertain = False

    def attempt() -> None:
        nonlocal uncertain
        if uncertain and is_there(connection, digest):
            return
        uncertain = True
        raise_if_cancelled()
        answer = connection.once(
            "PUT",
            _with_digest(place, digest),
            expected=(201, *ANSWERS),
            content=content,
            headers={"Content-Type": "application/octet-stream"},
        )
        if "DIGEST_INVALID" in answer.words:
            raise TamperedError(
                f"What was sent to {connection.host} is not {digest}: it changed on the way, or before.",
                next_step="Check the file or the disk that it comes from, and run it again.",
            )
        _require(connection, answer, "PUT", 201)

    connection.retry_policy.retry_transient(attempt)


def _require(connection: Connection, answer: Response, method: str, status: int) -> None:
    """Raises `_Lost` where the upload is gone. Distribution gives up every one that was cut: "upload resumed at wrong
    offset" (`handlers/blobupload.go`)."""
    if answer.status == status:
        return
    if answer.status in (404, 416) or "BLOB_UPLOAD" in answer.words:
        raise _Lost
    raise connection.refused(answer, method)


def _patch(connection: Connection, place: str, offset: int, content: bytes) -> str:
    """Send a chunk; returns where to go on. Raises `_Lost`."""
    uncertain = False
    there = 0

    def attempt() -> str:
        nonlocal uncertain, there, place
        if uncertain:
            place, there = _progress(connection, place, offset, len(content))
            if there == len(content):
                return place
        uncertain = True
        raise_if_cancelled()
        rest = content[there:]
        start = offset + there
        answer = connection.once(
            "PATCH",
            place,
            expected=(202, *ANSWERS),
            content=rest,
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Range": f"{start}-{start + len(rest) - 1}",
            },
        )
        _require(connection, answer, "PATCH", 202)
        return _place(connection, answer)

    return connection.retry_policy.retry_transient(attempt)


def _progress(connection: Connection, place: str, offset: int, size: int) -> tuple[str, int]:
    """Where to go on, and how many bytes of the chunk at `offset` the registry has. Raises `_Lost`."""
    answer = connection.once("GET", place, expected=(204, *ANSWERS))
    _require(connection, answer, "GET", 204)
    # `0-0` is one byte, or none with distribution: no chunk but the first can tell them apart, and it is sent again.
    span = re.fullmatch(r"(?:bytes=)?0-([0-9]{1,15})", answer.headers.get("Range", ""))
    if not span:
        raise _Lost
    last = int(span[1])
    there = (last + 1 if last else 0) - offset
    if not 0 <= there <= size:
        raise _Lost
    return _place(connection, answer) if "Location" in answer.headers else place, there


def _place(connection: Connection, answer: Response) -> str:
    """Return the address that an answer names; some name it without the registry's."""
    location = answer.headers.get("Location")
    return connection.follow(answer.url, location, "the place of an upload") if location else answer.url


def _with_digest(place: str, digest: str) -> str:
    parts = urlsplit(place)
    return parts._replace(query=urlencode([*parse_qsl(parts.query), ("digest", digest)])).geturl()


def _lost_for_good(connection: Connection) -> NetworkError:
    return NetworkError(
        f"The registry {connection.host} lost an upload that was cut.",
        next_step="Run it again: the blobs that it has whole are not sent twice.",
    )
