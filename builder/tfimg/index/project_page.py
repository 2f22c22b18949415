"""Read the page of a project in a package index (simple repository API), as JSON or HTML."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from typing import Annotated, Any
from urllib.parse import unquote, urljoin, urlsplit

import requests
from pydantic import AliasPath, Field, ValidationError
from pypi_simple import DistributionPackage, Link

from tfimg.core.documents import Document, describe_problem, parse_document
from tfimg.index.responses import read_body

MAX_PAGE = 32 << 20
"""Bytes of a page in JSON. Those of NumPy and grpcio, the largest that locks ask for, have 5 MB."""

MAX_HTML = 8 << 20
"""Bytes of a page in HTML, which Python's parser reads at 1 MB/s (measured)."""

MAX_WHEEL = 4 << 30
"""Bytes of a wheel whose size the index does not state. The largest in locks, of cuDNN, has 0.8 GB."""

MAX_TAGS = 256
"""Tags of one file name, which lists them as a product. NVIDIA's and TensorFlow's have two."""

_WHEEL_NAME = re.compile(r"[A-Za-z0-9._+!]{1,128}(?:-[A-Za-z0-9._+!]{1,128}){4,5}\.whl")


class _Page(Document):
    api_version: Annotated[str, Field(validation_alias=AliasPath("meta", "api-version"), pattern=r"^1\.[0-9]+$")]
    files: list[dict[str, Any]]


def read_page(response: requests.Response) -> list[DistributionPackage]:
    """Return the wheels on a page (PEP 503, 691, 700). Raises `ValueError`, and as `read_limited`.

    Only names of wheels reach pypi-simple, whose patterns take long for others.
    """
    kind = response.headers.get("content-type", "").lower()
    if "json" in kind:
        page = parse_document(_Page, read_body(response, MAX_PAGE), max_bytes=MAX_PAGE)
        files = [file for file in page.files if _is_wheel(file.get("filename"))]
        try:
            return [DistributionPackage.from_json_data(file, base_url=response.url) for file in files]
        except ValidationError as error:
            raise ValueError(f"a file is invalid: {describe_problem(error)}") from None
    if "html" not in kind:
        response.close()
        raise ValueError(f"its answer is {kind or 'of no type'}")
    parser = _Links(response.url)
    try:
        # Without `close`, which takes quadratic time for unclosed elements.
        parser.feed(read_body(response, MAX_HTML).decode(errors="replace"))
    except AssertionError as error:  # of Python's parser, for `<![`
        raise ValueError(f"its page is not HTML: {error}") from None
    return [DistributionPackage.from_link(link) for link in parser.links]


def _is_wheel(name: object) -> bool:
    if not isinstance(name, str) or not _WHEEL_NAME.fullmatch(name):
        return False
    return count_tags(name.removesuffix(".whl")) <= MAX_TAGS


def count_tags(text: str) -> int:
    """Return how many tags a text such as `cp310.cp311-abi3-linux_x86_64`, or the end of a file name, stands for."""
    return math.prod(part.count(".") + 1 for part in text.split("-")[-3:])


class _Links(HTMLParser):
    """Collects links to wheels; the last part of an address is the file's name (PEP 503).

    In linear time: Beautiful Soup, with which pypi-simple reads pages, takes quadratic time for nested links.
    """

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.links: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        attributes: dict[str, str | list[str]] = {name: value or "" for name, value in attrs}
        if tag not in ("a", "base") or "href" not in attributes:
            return
        url = urljoin(self.base, str(attributes["href"]))
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        if tag == "base":
            self.base = url
        elif _is_wheel(name):
            self.links.append(Link(name, url, attributes))
