"""Responses of a registry, read within limits on bytes and time."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

import requests
from pydantic import ConfigDict, Field

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import NetworkError, RegistryError

MAX_RESPONSE_BYTES = 8 << 20
"""Registries must take manifests of 4 MiB (OCI distribution specification 1.1, "Pushing Manifests"), some take more."""

READ_BYTES = 1 << 16

MAX_QUOTED = 300
"""Characters of a registry's text that a message quotes."""


class _Problem(Document):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    code: str | None = None
    message: str | None = None


class _ErrorDocument(Document):
    """Error document of a registry (OCI distribution specification 1.1, "Error Codes")."""

    errors: Annotated[tuple[_Problem, ...], Field(max_length=1000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """A whole response. Header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str

    @property
    def errors(self) -> tuple[tuple[str, str], ...]:
        """Return the codes and messages of a well-formed error document."""
        try:
            problems = parse_document(_ErrorDocument, self.content).errors
        except InvalidDocument:
            return ()
        return tuple((problem.code or "", problem.message or "") for problem in problems)

    @property
    def message(self) -> str:
        """Return the registry's explanation in at most `MAX_QUOTED` characters."""
        if errors := self.errors:
            return truncate("; ".join(f"{code}: {message}" if message else code for code, message in errors))
        plain = "text/plain" in self.headers.get("Content-Type", "")
        text = self.content[:MAX_QUOTED].decode(errors="replace").strip() if plain else ""
        return text or next((status.phrase for status in HTTPStatus if status == self.status), "")


def truncate(text: str) -> str:
    """Return text from outside for a message: at most `MAX_QUOTED` characters."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"


def parse_size(header: str | None) -> int:
    """Return the number in a header; 0 without a plausible one."""
    return int(header) if header and re.fullmatch(r"[0-9]{1,15}", header) else 0


def read_response(response: requests.Response, host: str, seconds: float) -> Response:
    """Read an open response to its end, without decompressing it.

    Raises `RegistryError` for too many bytes and `NetworkError` after `seconds`.
    """
    content = bytearray()
    deadline = time.monotonic() + seconds
    # read1 returns what has arrived. read would wait for all bytes, which may come at one a minute.
    while chunk := response.raw.read1(READ_BYTES, decode_content=False):
        content += chunk
        if len(content) > MAX_RESPONSE_BYTES:
            raise limit_error(host, f"more than {MAX_RESPONSE_BYTES >> 20} MiB in one document")
        if time.monotonic() > deadline:
            raise timeout_error(host, seconds)
    return Response(
        status=response.status_code, headers=response.headers, content=bytes(content), url=response.url or ""
    )


def limit_error(host: str, excess: str) -> RegistryError:
    """Return the error for a registry that sends more than any registry does."""
    return RegistryError(f"The registry {host} sends {excess}.", next_step="Check that it is a registry.")


def timeout_error(host: str, seconds: float) -> NetworkError:
    """Return the error for a response that does not begin or end in time."""
    return NetworkError(
        f"The registry {host} is too slow: it did not answer within {seconds:g} s.",
        next_step="Run it again later: completed uploads are not repeated.",
    )
