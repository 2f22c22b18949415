"""A dated mirror of Debian's archive on this machine: the archive at hand, each file as it was when first asked for.

    with debian_snapshot(host) as snapshot:
        …  # build with --snapshot snapshot.address
        snapshot.upstream = None  # from now on it has only what it has served

It has no security fixes, so that its packages are others than those of the machine's own mirrors.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import quote, unquote

from support.http_server import AnyMethod, Server, serving
from tfimg.engine.bases import find_mirrors

MOMENT = "20261101T000000Z"


@dataclass(kw_only=True)
class Snapshot:
    """What the mirror has: status and content by path below the archive."""

    upstream: str | None
    address: str = ""
    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def read(self, path: str) -> tuple[int, bytes]:
        """Return a file; an unknown one from upstream."""
        if path not in self.files and self.upstream:
            try:
                with urllib.request.urlopen(f"{self.upstream}/{quote(path)}", timeout=60) as response:  # noqa: S310
                    self.files[path] = 200, response.read()
            except urllib.error.HTTPError as error:
                self.files[path] = error.code, b""
        return self.files.get(path, (404, b""))


class _Archive(AnyMethod):
    def answer(self) -> None:
        snapshot = cast("Snapshot", cast("Server", self.server).subject)
        prefix, _, path = unquote(self.path).partition(f"/{MOMENT}/")
        status, content = snapshot.read(path) if prefix == "/archive" else (404, b"")
        self.reply(status, {}, content)


@contextmanager
def debian_snapshot(host: str) -> Iterator[Snapshot]:
    """A mirror on an address of this machine that containers reach, for as long as the block lasts."""
    mirrors = find_mirrors()
    assert mirrors, "this machine's APT sources name no mirror of Debian"
    snapshot = Snapshot(upstream=mirrors.archive)
    with serving(_Archive, snapshot, host=host) as there:
        snapshot.address = f"http://{there}/archive/{MOMENT}"
        yield snapshot
