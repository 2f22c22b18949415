"""Streams that escape outside text, and folding of lines."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO, cast

from tfimg.core.errors import UsageError
from tfimg.core.text import decode_text, escape_unprintable


class EscapingStream(io.TextIOBase):
    """A text stream that writes unprintable characters as escapes. `stream` is the one below, for our own styles.

    `lock` is held while it writes.
    """

    def __init__(self, stream: TextIO, lock: AbstractContextManager[Any]) -> None:
        self.stream, self._lock = stream, lock

    def write(self, text: str) -> int:
        with self._lock:
            self.stream.write(escape_unprintable(text))
        return len(text)

    def flush(self) -> None:
        """Flush the stream below; what it cannot write is its error."""
        self.stream.flush()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding


@contextmanager
def escaped_streams(lock: AbstractContextManager[Any] | None = None) -> Iterator[None]:
    """Escape what is printed on standard output and standard error for as long as the block lasts."""
    before = sys.stdout, sys.stderr
    escaping = cast("tuple[TextIO, TextIO]", tuple(EscapingStream(one, lock or nullcontext()) for one in before))
    sys.stdout, sys.stderr = escaping
    try:
        yield
    finally:
        # A stream that was replaced meanwhile, because its reader has left, stays replaced.
        if sys.stdout is escaping[0]:
            sys.stdout = before[0]
        if sys.stderr is escaping[1]:
            sys.stderr = before[1]


def unescaped(stream: TextIO) -> TextIO:
    """Return the stream below an escaping one: for what has been escaped, and has styles of ours."""
    return stream.stream if isinstance(stream, EscapingStream) else stream


def without_styles() -> bool:
    """Return whether the user wants plain text: NO_COLOR (no-color.org) is set and not empty.

    The convention is about colour alone; bold and dim are left out too, which is what its users expect.
    """
    return bool(os.environ.get("NO_COLOR"))


def print_styled(text: str, style: str) -> None:
    """Print a text on standard output without a line end, on a terminal in a style: an SGR code, "1" for bold."""
    escaped = escape_unprintable(text)
    bright = sys.stdout.isatty() and not without_styles()
    unescaped(sys.stdout).write(f"\x1b[{style}m{escaped}\x1b[0m" if bright else escaped)


WAIT_SECONDS = 2.0
"""Time after which a terminal shows that a pipe is read, which may have no writer."""


def read_bytes(file: str, limit: int, *, next_step: str) -> bytes:
    """Read a file or pipe, or standard input for `-`. Raises `UsageError` for more bytes than `limit`."""
    name = "Standard input" if file == "-" else file
    text = f"{name} is read until its writer ends; Ctrl-C stops."
    notice = threading.Timer(WAIT_SECONDS, print, [text], {"file": sys.stderr, "flush": True})
    notice.daemon = True
    if sys.stderr.isatty():
        notice.start()
    try:
        if file != "-":
            with Path(file).open("rb") as opened:
                content = opened.read(limit + 1)
        else:
            content = sys.stdin.buffer.read(limit + 1) if sys.stdin else b""
    finally:
        notice.cancel()
    if len(content) > limit:
        raise UsageError(f"{name} is longer than {limit >> 20} MiB.", next_step=next_step)
    return content


def read_text(file: str, limit: int, *, next_step: str) -> str:
    """Read a file, or standard input for `-`, as UTF-8 or UTF-16. Raises `UsageError` for more bytes than `limit`."""
    return decode_text(read_bytes(file, limit, next_step=next_step))


MIN_COLUMNS = 20
"""In less room, the terminal breaks long lines better."""

JOINED = "\0"
"""Stands for a blank at which no line ends."""


def fold(text: str, *, indent: int = 0, max_columns: int = 1000) -> str:
    """Return a text that begins at a column, folded. Commands in backticks stay in one piece, for people to copy."""
    room = min(max_columns, shutil.get_terminal_size().columns) - indent
    if room < MIN_COLUMNS:
        return text
    joined = re.sub(r"`[^`\n]*`", lambda found: found[0].replace(" ", JOINED), text)
    lines = textwrap.wrap(joined, room, break_on_hyphens=False, break_long_words=False)
    return f"\n{'':{indent}}".join(lines).replace(JOINED, " ")


def fold_lines(text: str) -> str:
    """Return a text of several lines with each of them folded, at its own indentation."""
    found = ((line, len(line) - len(line.lstrip(" "))) for line in text.split("\n"))
    return "\n".join(line[:indent] + fold(line[indent:], indent=indent) for line, indent in found)
