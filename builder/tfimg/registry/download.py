"""A registry's blob → its bytes, from where the connection was cut, and verified."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial

from tfimg.cancellation import check
from tfimg.errors import TamperedError
from tfimg.registry.connection import Connection
from tfimg.registry.refusals import number
from tfimg.registry.retry import Passing

PIECE = 1 << 16
"""Bytes at a time; what has come of one is lost when the connection is cut."""

Came = Callable[[int, int], None]
"""Is told how many bytes have come, and of how many; 0 where the registry does not tell."""

END = (b"", 0)


def download(connection: Connection, digest: str, *, came: Came) -> Iterator[bytes]:
    """A blob's bytes, verified when they end.

    Raises `NotInRegistry` where there is none, `TamperedError` when it is another: what has come is worth nothing then.
    """
    hashed, done, whole = hashlib.sha256(), 0, False
    while not whole:
        # Each round brings something, or there have been as many tries as there may be.
        (piece, total), rest = connection.patience.keep_trying(partial(_begin, connection, digest, done))
        try:
            while piece:
                check()
                hashed.update(piece)
                done += len(piece)
                came(done, total)
                yield piece
                piece, total = next(rest, END)
            whole = True
        except Passing:
            continue
    if f"sha256:{hashed.hexdigest()}" != digest:
        raise TamperedError(
            f"The registry {connection.host} has other bytes than {digest} under that digest.",
            next_step="Do not use them, and tell the registry's owner.",
        )


Piece = tuple[bytes, int]
"""Bytes, and how many the whole blob has."""


def _begin(connection: Connection, digest: str, done: int) -> tuple[Piece, Iterator[Piece]]:
    pieces = _after(connection, digest, done)
    return next(pieces, END), pieces


def _after(connection: Connection, digest: str, done: int) -> Iterator[Piece]:
    headers = {"Range": f"bytes={done}-"} if done else {}
    with connection.opened("GET", f"blobs/{digest}", headers=headers) as response:
        if done and response.status_code == 416:
            return  # nothing is left
        if response.status_code not in (200, 206):
            raise connection.refused(connection.read(response), "GET")
        # One that knows no ranges begins at the beginning.
        skip = done if response.status_code == 200 else 0
        total = number(response.headers.get("Content-Length")) + done - skip
        for piece in response.iter_content(PIECE):
            if new := piece[skip:]:
                yield new, total
            skip = max(0, skip - len(piece))
