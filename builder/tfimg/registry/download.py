"""A registry's blob → its bytes, from where the connection was cut, and verified."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from functools import partial

import requests

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import NetworkError, TamperedError
from tfimg.registry.connection import Connection
from tfimg.registry.error_mapping import parse_size, timeout_error
from tfimg.registry.retry import TransientError

PIECE = 1 << 16
"""Bytes of a piece at most."""

MAX_BYTES = 64 << 30
"""Bytes of a blob whose size is not known. The largest layer of our images has 3 GB."""

MAX_ROUNDS = 100
"""How often a blob is gone on with after a cut, however little has come in between."""

SLOWEST = 4096
"""Bytes per second, on average after the time of one answer, below which a registry keeps us waiting."""

Came = Callable[[int, int], None]
"""Is told how many bytes have come, and of how many; 0 where the registry does not tell."""

END = (b"", 0)


def download(connection: Connection, digest: str, *, came: Came, limit: int = MAX_BYTES) -> Iterator[bytes]:
    """Yield a blob's bytes, at most `limit`, verified when they end.

    Raises `NotInRegistry` where there is none, `TamperedError` when it is another: what has come is worth nothing then.
    """
    hashed, done = hashlib.sha256(), 0
    for _ in range(MAX_ROUNDS):
        # Each round brings something, or there have been as many tries as there may be.
        begin = partial(_begin, connection, digest, done, limit)
        (piece, total), rest = connection.retry_policy.retry_transient(begin)
        try:
            while piece:
                raise_if_cancelled()
                hashed.update(piece)
                done += len(piece)
                came(done, total)
                yield piece
                piece, total = next(rest, END)
            break
        except TransientError:
            continue
    else:
        raise NetworkError(
            f"The connection to the registry {connection.host} was cut {MAX_ROUNDS} times during one download.",
            next_step="Run it again later.",
        )
    if f"sha256:{hashed.hexdigest()}" != digest:
        raise _tampered(connection, f"other bytes than {digest} under that digest")


Piece = tuple[bytes, int]
"""Bytes, and how many the whole blob has."""


def _begin(connection: Connection, digest: str, done: int, limit: int) -> tuple[Piece, Iterator[Piece]]:
    pieces = _after(connection, digest, done, limit)
    return next(pieces, END), pieces


def _after(connection: Connection, digest: str, done: int, limit: int) -> Iterator[Piece]:
    headers = {"Range": f"bytes={done}-"} if done else {}
    with connection.opened("GET", f"blobs/{digest}", headers=headers) as response:
        if done and response.status_code == 416:
            return  # nothing is left
        if response.status_code not in (200, 206):
            raise connection.refused(connection.read(response), "GET")
        # One that knows no ranges begins at the beginning.
        skip = done if response.status_code == 200 else 0
        total = parse_size(response.headers.get("Content-Length")) + done - skip
        received = done - skip
        for piece in _pieces(response, connection):
            received += len(piece)
            if max(received, total) > limit:
                raise _tampered(connection, f"more bytes of {digest} than the {limit} that it may have")
            if new := piece[skip:]:
                yield new, total
            skip = max(0, skip - len(piece))


def _pieces(response: requests.Response, connection: Connection) -> Iterator[bytes]:
    """Yield what comes as it is sent, unless it comes too slowly. What the caller does in between takes no time."""
    spent, received = 0.0, 0
    while True:
        began = time.monotonic()
        piece = response.raw.read1(PIECE, decode_content=False)
        spent += time.monotonic() - began
        received += len(piece)
        if spent > connection.response_seconds + received / SLOWEST:
            raise timeout_error(connection.host, connection.response_seconds)
        if not piece:
            return
        yield piece


def _tampered(connection: Connection, what: str) -> TamperedError:
    return TamperedError(
        f"The registry {connection.host} has {what}.",
        next_step="Do not use them, and tell the registry's owner.",
    )
