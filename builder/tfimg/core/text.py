"""Make text and values from outside safe for terminals, XML, HTML and strict JSON."""

from __future__ import annotations

import codecs
import json
import math
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from tfimg.core.errors import WrongClock

if TYPE_CHECKING:
    from jinja2 import Environment

_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor movements and titles (ECMA-48)."""


MAX_QUOTED = 300  # characters of a value from outside that a message repeats; an image name has at most 255


def decode_text(content: bytes) -> str:
    """Return a file of UTF-8 or UTF-16 as text: PowerShell redirects in UTF-16, editors of Windows begin with a BOM."""
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_utf16 else "utf-8-sig", errors="replace")


def to_plain_text(text: str) -> str:
    """Remove terminal sequences and escape other unprintable characters, most of which XML 1.0 forbids."""
    return escape_unprintable(_SEQUENCES.sub("", text))


def make_html_environment(**options: Any) -> Environment:
    """Return the environment of HTML pages: every value is text, also if it looks like markup or controls a terminal.

    `options` are those of jinja's `Environment`.
    """
    from jinja2 import Environment, StrictUndefined

    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: to_plain_text(value) if type(value) is str else value,  # markup of templates is no `str`
        **options,
    )


def quote_argument(value: object) -> str:
    """Quote a value for a command that a message shows; zsh also expands words that begin with `=`."""
    text = str(value)
    return f"'{text}'" if text.startswith("=") and "'" not in text else shlex.quote(text)


def to_strict_json(value: Any) -> Any:
    """Return a value as strict JSON: NaN and infinities as text, no unpaired surrogates."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {to_strict_json(str(name)): to_strict_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_strict_json(item) for item in value]
    return value


def canonical_json(document: object) -> bytes:
    """Return JSON in one form only: sorted, without blanks."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def format_value(value: Any) -> str:
    """Format a value for people: flat lists on one line, nested values as indented JSON."""
    if isinstance(value, str | float):
        return to_plain_text(str(value))
    if value is None or value in ([], (), {}):
        return "none"
    if isinstance(value, list | tuple) and not any(isinstance(item, list | tuple | Mapping) for item in value):
        return ", ".join(map(format_value, value))
    return to_plain_text(json.dumps(to_strict_json(value), indent=2, ensure_ascii=False))


def quote_value(value: object) -> str:
    """Return a value in quotes for a message, cut to `MAX_QUOTED` characters."""
    return truncate(repr(value))


def remove_credentials(text: str) -> str:
    """Return a text without names and passwords in its addresses. They end at the last @ before the path (RFC 3986)."""
    return re.sub(r"//[^/\s]*@", "//", text)


def truncate(text: str) -> str:
    """Return text from outside for a message: at most `MAX_QUOTED` characters."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"


def list_first(names: Sequence[str], limit: int) -> str:
    """Return the first names, and how many follow: `a, b and 3 more`."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{', '.join(names[:limit])}{more}"


def format_size(count: int | None) -> str:
    """Format bytes in units of 10^6."""
    return "not known" if count is None else f"{count / 1e6:,.0f} MB"


def format_duration(seconds: float) -> str:
    """Return a duration for people: `12.3 s`, `3 min 05 s`, `1 h 02 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


SET_CLOCK = "Set the clock of this machine (`timedatectl set-ntp true` where systemd sets it), and run it again."


def read_clock() -> datetime:
    """Return the time in UTC.

    Raises `WrongClock` for one that Python cannot express: CPython counts nanoseconds in 64 bits, until the year 2262.
    """
    try:
        return datetime.fromtimestamp(time.time(), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise WrongClock(f"The clock of this machine cannot be read: {error}.", next_step=SET_CLOCK) from None


def parse_time(text: str) -> datetime | None:
    """Return an ISO 8601 time in UTC; None for any other text."""
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def clamp_duration(seconds: float) -> float:
    """Return a finite duration of at least zero."""
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def escape_unprintable(text: str) -> str:
    """Escape the characters that `str.isprintable` rejects, except line ends and tabs.

    These are controls, format characters (bidirectional overrides, zero-width characters), separators other than the
    space, surrogates and unassigned code points.
    """
    return "\n".join(line if line.isprintable() else "".join(map(_escape, line)) for line in text.split("\n"))


def _escape(char: str) -> str:
    if char.isprintable() or char == "\t":
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def require_integer(value: object) -> object:
    """Return an integer. Raises `ValueError` for `True` and `1.0`, which equal 1."""
    if type(value) is not int:
        raise ValueError("input should be an integer")
    return value


def split_url(text: str) -> SplitResult:
    """Return the parts of an address, all of them empty for a malformed one such as `http://[::1`."""
    try:
        return urlsplit(text)
    except ValueError:
        return SplitResult("", "", "", "", "")
