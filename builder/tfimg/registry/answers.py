"""Read a whole answer, within limits on bytes and time."""

from __future__ import annotations

import time

import requests

from tfimg.registry.refusals import Answer, endless, too_slow

ANSWER_BYTES = 8 << 20
"""More than an answer may have: registries must take manifests of 4 MiB (OCI distribution specification 1.1,
"Pushing Manifests"), and some take larger ones."""

READ_BYTES = 1 << 16


def read_answer(response: requests.Response, host: str, seconds: float) -> Answer:
    """Return all of an answer that was opened, as it was sent: a compressed one stays compressed.

    Raises `RegistryRefused` for too many bytes and `NetworkError` when they take more than `seconds`.
    """
    content = bytearray()
    deadline = time.monotonic() + seconds
    # What is there, and not as much as was asked for: that may be a byte a minute.
    while piece := response.raw.read1(READ_BYTES, decode_content=False):
        content += piece
        if len(content) > ANSWER_BYTES:
            raise endless(host, f"more than {ANSWER_BYTES >> 20} MiB where a document was asked for")
        if time.monotonic() > deadline:
            raise too_slow(host, seconds)
    return Answer(status=response.status_code, headers=response.headers, content=bytes(content), url=response.url or "")
