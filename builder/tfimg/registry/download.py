"""Download blobs: resumed after interruptions, limited in size and time, verified."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import chain, islice

from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import NetworkError, TamperedError
from tfimg.core.retry import TransientError
from tfimg.index.network import read_chunks
from tfimg.registry.connection import Connection
from tfimg.registry.responses import parse_size

MAX_BYTES = 64 << 30
"""Bytes of a blob whose size is not known. The largest layer of our images has 3 GB."""

MAX_RESUMES = 100
"""Requests for one blob, however little each of them brings."""

MIN_BYTES_PER_SECOND = 4096
"""Lowest average rate after the time of one response."""


def download(connection: Connection, digest: str, *, limit: int = MAX_BYTES) -> Iterator[bytes]:
    """Yield at most `limit` bytes of a blob, verified after the last.

    Raises `NotInRegistry` for a missing blob, `TamperedError` for other bytes: then discard what was yielded.
    """
    sha256, received = hashlib.sha256(), 0

    def resume() -> Iterator[bytes]:
        """Return the chunks from where the last response ended; the first of them has arrived."""
        chunks = _chunks_from(connection, digest, received, limit)
        return chain(list(islice(chunks, 1)), chunks)

    for _ in range(MAX_RESUMES):
        chunks = connection.retry_policy.retry_transient(resume)
        try:
            for chunk in chunks:
                raise_if_cancelled()
                sha256.update(chunk)
                received += len(chunk)
                yield chunk
            break
        except TransientError:
            continue
    else:
        raise NetworkError(
            f"The connection to the registry {connection.host} was cut {MAX_RESUMES} times during one download.",
            next_step="Run it again later.",
        )
    if f"sha256:{sha256.hexdigest()}" != digest:
        raise _tampered(connection, f"other bytes than {digest} under that digest")


def _chunks_from(connection: Connection, digest: str, offset: int, limit: int) -> Iterator[bytes]:
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    with connection.open("GET", f"blobs/{digest}", headers=headers) as response:
        if offset and response.status_code == 416:
            return  # the blob ends here
        if response.status_code not in (200, 206):
            raise connection.map_error(connection.read(response), "GET")
        # A registry without ranges starts from the beginning.
        skip = offset if response.status_code == 200 else 0
        received = offset - skip
        stated = received + parse_size(response.headers.get("Content-Length"))
        for chunk in read_chunks(response, connection.response_seconds, MIN_BYTES_PER_SECOND):
            received += len(chunk)
            if max(received, stated) > limit:
                raise _tampered(connection, f"more bytes of {digest} than the allowed {limit}")
            if new := chunk[skip:]:
                yield new
            skip = max(0, skip - len(chunk))


def _tampered(connection: Connection, problem: str) -> TamperedError:
    return TamperedError(
        f"The registry {connection.host} has {problem}.",
        next_step="Do not use them, and report it to the registry's owner.",
    )
