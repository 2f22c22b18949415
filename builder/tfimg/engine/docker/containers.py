"""What a container is given before it starts, when it is ended, and what it says meanwhile."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Literal

import requests

from tfimg.engine.protocol import Line


def archive(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """A tar of files by path: content and mode."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for path, (content, mode) in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
    return sink.getvalue()


class Alarm(threading.Timer):
    """Calls `act` once after some seconds, and remembers that it did."""

    def __init__(self, seconds: float, act: Callable[[], object]) -> None:
        super().__init__(seconds, self._ring)
        self.daemon = True
        self.rang = False
        self._act = act

    def _ring(self) -> None:
        self.rang = True
        with suppress(requests.exceptions.RequestException):
            self._act()


MAX_LINE = 8 << 20
"""Bytes of a line; a longer one comes in parts."""


def lines(frames: Iterator[tuple[int, bytes]]) -> Iterator[Line]:
    """Yield whole lines from a stream of frames; a frame's number is that of the file descriptor."""
    streams: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}
    open_lines: dict[Literal["stdout", "stderr"], bytes] = {"stdout": b"", "stderr": b""}
    for number, piece in frames:
        stream = streams[number]
        *whole, open_lines[stream] = (open_lines[stream] + piece).split(b"\n")
        if len(open_lines[stream]) > MAX_LINE:
            whole, open_lines[stream] = [*whole, open_lines[stream]], b""
        yield from (Line(stream=stream, text=line.decode(errors="replace")) for line in whole)
    yield from (Line(stream=stream, text=rest.decode(errors="replace")) for stream, rest in open_lines.items() if rest)
