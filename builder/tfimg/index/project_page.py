"""Parse the page of a project in a package index (simple repository API), as JSON or HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from html.parser import HTMLParser
from typing import Annotated
from urllib.parse import urljoin

from pydantic import AliasPath, Field

from tfimg.core.documents import Document, parse_document, validate

MAX_PAGE = 32 << 20
"""Bytes of a page in JSON. Those of NumPy and grpcio, the largest that locks ask for, have 5 MB."""

MAX_HTML = 8 << 20
"""Bytes of a page in HTML, which Python's parser reads at 1 MB/s (measured)."""

MAX_WHEEL = 4 << 30
"""Bytes of a wheel whose size the index does not state. The largest in locks, of cuDNN, has 0.8 GB."""


class File(Document):
    """A file of a project's page (PEP 691 and 700)."""

    filename: str
    url: str
    hashes: dict[str, str] = Field(default_factory=dict)
    size: Annotated[int, Field(ge=0, le=MAX_WHEEL)] | None = None
    upload_time: datetime | None = Field(default=None, alias="upload-time")
    yanked: bool | str = False
    requires_python: str | None = Field(default=None, alias="requires-python")
    core_metadata: bool | dict[str, str] | None = Field(default=None, alias="core-metadata")


class _Page(Document):
    api_version: str = Field(validation_alias=AliasPath("meta", "api-version"))
    files: list[File]


def read_json(content: bytes) -> Sequence[File]:
    """Return the files of a page in JSON (PEP 691). Raises `ValueError`."""
    page = parse_document(_Page, content, max_bytes=MAX_PAGE)
    _check_version(page.api_version)
    return page.files


def read_html(content: bytes) -> Sequence[File]:
    """Return the files of a page in HTML (PEP 503). Raises `ValueError`."""
    parser = _Links()
    try:
        # Without `close`, which takes quadratic time for unclosed elements.
        parser.feed(content.decode("utf-8", "replace"))
    except AssertionError as error:  # of Python's parser, for `<![`
        raise ValueError(f"its page is not HTML: {error}") from None
    _check_version(parser.version or "1.0")
    return [_file_of_link(text, attributes, parser.base) for text, attributes in parser.links]


def _check_version(version: str) -> None:
    if not re.fullmatch(r"1\.\d+", version):
        raise ValueError(f"its pages have version {version}, and only 1.x is known")


def _file_of_link(text: str, attributes: Mapping[str, str], base: str) -> File:
    href, _, fragment = attributes["href"].partition("#")
    algorithm, _, digest = fragment.partition("=")
    return validate(
        File,
        {
            "filename": text.strip(),
            "url": urljoin(base, href),
            "hashes": {algorithm: digest} if digest else {},
            # Not part of the HTML form, but some indexes add it.
            "upload-time": attributes.get("data-upload-time") or None,
            "yanked": attributes.get("data-yanked", False),
            "requires-python": attributes.get("data-requires-python") or None,
            "core-metadata": attributes.get("data-core-metadata", "false").lower() != "false",
        },
    )


class _Links(HTMLParser):
    """Collects the links, the base address and the version of a page.

    In linear time: pypi-simple and Beautiful Soup take quadratic time for nested elements.
    """

    def __init__(self) -> None:
        super().__init__()
        self.base = self.version = ""
        self.links: list[tuple[str, dict[str, str]]] = []
        self._open: tuple[list[str], dict[str, str]] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        attributes = {name: value or "" for name, value in attrs}
        if tag == "a":
            self._open = ([], attributes)
        elif tag == "base":
            self.base = self.base or attributes.get("href", "")
        elif tag == "meta" and attributes.get("name") == "pypi:repository-version":
            self.version = attributes.get("content", "")

    def handle_data(self, data: str) -> None:
        """See `HTMLParser`."""
        if self._open:
            self._open[0].append(data)

    def handle_endtag(self, tag: str) -> None:
        """See `HTMLParser`."""
        if tag == "a" and self._open:
            text, attributes = self._open
            self._open = None
            if "href" in attributes:
                self.links.append(("".join(text), attributes))
