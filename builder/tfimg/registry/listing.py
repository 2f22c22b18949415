"""Lists that a registry returns in pages: tags and referrers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, TypeVar

from pydantic import StringConstraints
from requests.utils import parse_header_links

from tfimg.core.documents import Document, InvalidDocument, parse_document
from tfimg.core.errors import RegistryError
from tfimg.registry.connection import Connection
from tfimg.registry.protocol import Descriptor, ImageIndex, null_means
from tfimg.registry.reference import TAG
from tfimg.registry.responses import Response, limit_error, timeout_error

MAX_PAGES = 1000
"""Pages of one list. Registries have 50 to 1,000 entries on each."""

MAX_ENTRIES = 100_000
"""Entries of one list: 1,000 images with their tags and evidence have 10,000."""

MAX_LIST_BYTES = 16 << 20
"""Bytes of all pages of one list: 100,000 tags of 160 bytes, or 20,000 referrers."""

Entry = TypeVar("Entry")


class _TagList(Document):
    tags: Annotated[tuple[Annotated[str, StringConstraints(pattern=rf"^{TAG.pattern}$")], ...], null_means(())]


def parse_tags(content: bytes) -> dict[str, str]:
    """Return the tags of a page."""
    return {tag: tag for tag in parse_document(_TagList, content).tags}


def parse_referrers(content: bytes) -> dict[str, Descriptor]:
    """Return the entries of a page of referrers by their digest."""
    return {entry.digest: entry for entry in parse_document(ImageIndex, content).manifests}


def list_entries(
    connection: Connection, response: Response, name: str, parse: Callable[[bytes], Mapping[str, Entry]]
) -> tuple[Entry, ...]:
    """Return the entries of all pages of a list, from its first page. A page without a new entry is the last.

    Pages are limited in number, bytes and time.
    """
    entries: dict[str, Entry] = {}
    size, deadline = 0, time.monotonic() + connection.response_seconds
    for _ in range(MAX_PAGES):
        size += len(response.content)
        if size > MAX_LIST_BYTES:
            raise limit_error(connection.host, f"more than {MAX_LIST_BYTES >> 20} MiB of {name}")
        try:
            page = parse(response.content)
        except InvalidDocument as error:
            raise RegistryError(
                f"The registry {connection.host} returned an invalid list of {name} of "
                f"{connection.repository}: {error}.",
                next_step="Check that it is a registry.",
            ) from None
        links = parse_header_links(response.headers.get("Link", ""))  # RFC 8288
        following = next((link["url"] for link in links if link.get("rel") == "next"), None)
        is_last = page.keys() <= entries.keys()
        entries |= page
        if len(entries) > MAX_ENTRIES:
            raise limit_error(connection.host, f"more than {MAX_ENTRIES} {name}")
        if is_last or following is None:
            return tuple(entries.values())
        if time.monotonic() > deadline:
            raise timeout_error(connection.host, connection.response_seconds)
        url = connection.resolve_link(response.url, following, "the next page", same_origin=True)
        response = connection.request("GET", url)
    raise limit_error(connection.host, f"more than {MAX_PAGES} pages of {name}")
