"""Read a whole answer, within limits on bytes and time."""

from __future__ import annotations

import time

import requests

from tfimg.registry.error_mapping import Response, limit_error, timeout_error

MAX_RESPONSE_BYTES = 8 << 20
"""More than an answer may have: registries must take manifests of 4 MiB (OCI distribution specification 1.1,
"Pushing Manifests"), and some take larger ones."""

READ_BYTES = 1 << 16


def read_response(response: requests.Response, host: str, seconds: float) -> Response:
    """Return all of an answer that was opened, as it was sent: a compressed one stays compressed.

    Raises `RegistryError` for too many bytes and `NetworkError` when they take more than `seconds`.
    """
    content = bytearray()
    deadline = time.monotonic() + seconds
    # What is there, and not as much as was asked for: that may be a byte a minute.
    while piece := response.raw.read1(READ_BYTES, decode_content=False):
        content += piece
        if len(content) > MAX_RESPONSE_BYTES:
            raise limit_error(host, f"more than {MAX_RESPONSE_BYTES >> 20} MiB where a document was asked for")
        if time.monotonic() > deadline:
            raise timeout_error(host, seconds)
    return Response(
        status=response.status_code, headers=response.headers, content=bytes(content), url=response.url or ""
    )
