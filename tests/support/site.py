"""The documentation site as tests look at it: built offline, and its pages' links and anchors."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from posixpath import normpath
from urllib.parse import unquote, urldefrag, urlsplit

from support.paths import ROOT

OFFLINE = """\
import sys

def refuse(event, arguments):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.sendto"}:
        raise RuntimeError(f"the network was asked for {arguments[1:]}")

sys.addaudithook(refuse)
from sphinx.cmd.build import main
sys.exit(main(sys.argv[1:]))
"""
"""Sphinx in a process that may not speak to anything."""


def build_site(folder: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    """Build the site into a folder, with settings such as `name=value`; warnings are errors."""
    named = [f"-D{setting}" for setting in settings]
    options = ("-W", "--keep-going", "-n", "-q", "-d", str(folder.with_name(f"{folder.name}-doctrees")))
    return subprocess.run(
        [sys.executable, "-c", OFFLINE, *options, *named, str(ROOT / "docs"), str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@dataclass(frozen=True)
class SitePage:
    """A page: the anchors in it, what it links to, what it loads, and its text."""

    name: str
    anchors: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yield path and anchor of each link and file within the site."""
        for address in (*self.links, *self.loaded):
            path, anchor = urldefrag(address)
            if not urlsplit(path).scheme:
                path = unquote(path.partition("?")[0])
                yield (normpath(f"{self.name}/../{path}") if path else self.name), unquote(anchor)


class _Reader(HTMLParser):
    def __init__(self, page: SitePage) -> None:
        super().__init__()
        self.page = page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if name := attributes.get("id"):
            self.page.anchors.append(name)
        if tag == "a" and "href" in attributes:
            self.page.links.append(attributes["href"])
        elif address := attributes.get("src") or attributes.get("href"):
            self.page.loaded.append(address)

    def handle_data(self, data: str) -> None:
        self.page.text.append(data)


def read_site(folder: Path) -> Mapping[str, SitePage]:
    """Return the pages of a built site by their path."""
    pages = {}
    for file in sorted(folder.rglob("*.html")):
        page = SitePage(file.relative_to(folder).as_posix())
        _Reader(page).feed(file.read_text())
        pages[page.name] = page
    return pages
