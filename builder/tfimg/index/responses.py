"""Read responses of a package index within limits of size and time."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator

import requests
from remotezip import RemoteZipError
from urllib3.exceptions import HTTPError

from tfimg.core.errors import NetworkError
from tfimg.core.text import escape_unprintable, truncate
from tfimg.index.transport import read_chunks

GRACE_SECONDS = 60
MIN_RATE = 10_000
"""Bytes per second on average after the grace seconds: eight downloads over a line of 1 Mbit/s have 15,000 each."""

MAX_RANGE = 16 << 20
"""Bytes of one range of a wheel. The directory of TensorFlow 2.21.0 has 2.9 MB."""

UNREADABLE = (
    HTTPError,
    RemoteZipError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    ValueError,
    OSError,
)
"""Exceptions of requests, its transport, pages and archives for an invalid response."""


def read_limited(response: requests.Response, limit: int) -> Iterator[bytes]:
    """Yield the body of a response. Raises `ValueError` if it is larger than `limit` bytes, `OSError` if too slow."""
    received = 0
    with response:
        for chunk in read_chunks(response, GRACE_SECONDS, MIN_RATE, decode=True):
            received += len(chunk)
            if received > limit:
                raise ValueError(f"it has more than {limit} bytes")
            yield chunk


def read_body(response: requests.Response, limit: int) -> bytes:
    """Return the body of a response. Raises as `read_limited`."""
    return b"".join(read_limited(response, limit))


def make_network_error(what: str, error: Exception, *, source: str = "the package index") -> NetworkError:
    """Return the error for something that could not be read from an index, or from another server."""
    # A failed connection wraps the message of the operating system.
    reason = getattr(error.args[0], "reason", None) if error.args else None
    text = str(reason).rpartition(": ")[2] if reason else str(error)
    # An index may send characters that change a terminal, and its address may contain a password.
    line = escape_unprintable(truncate(" ".join(text.split())))
    why = re.sub(r"//[^/@\s]*@", "//", line) or type(error).__name__
    return NetworkError(
        f"Cannot read {what} from {source}: {why}",
        next_step="Check the proxy, the CA bundle (SSL_CERT_FILE) and the index settings of pip or uv.",
    )
