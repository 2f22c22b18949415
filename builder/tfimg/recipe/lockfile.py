"""A lock as text: a folder with one requirement file per layer of the image."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import date

from tfimg.core.errors import LockError

HEADER = "# Written by `tfimg lock`; do not edit. Each line: the one wheel to install, and the day it appeared.\n"

MAX_CHARACTERS = 1 << 20
"""Of a whole lock. Those of images have 7,000."""

MAX_LINE = 300
"""Characters of a line. Those of images have 150."""

_LINE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[0-9][0-9A-Za-z.!+]*) --hash=sha256:(?P<sha256>[0-9a-f]{64})"
    r"(?:  # (?P<day>\d{4}-\d\d-\d\d))?",
    re.ASCII,
)

Lock = dict[str, str]
"""Layer of an image → text of the requirement file that it is installed from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedPackage:
    """One line of a lock; `appeared` is None where the index does not say."""

    name: str
    version: str
    sha256: str
    appeared: date | None


def read_packages(layers: Lock) -> tuple[LockedPackage, ...]:
    """The packages that a lock names. Raises `LockError` for a line that `tfimg lock` cannot have written."""
    if sum(map(len, layers.values())) > MAX_CHARACTERS:
        raise LockError(
            f"A lock has more than {MAX_CHARACTERS} characters.", next_step="Write it anew with `tfimg lock`."
        )
    lines = [line for text in layers.values() for line in text.splitlines() if not line.startswith("#")]
    return tuple(_read_line(line) for line in lines)


def _read_line(line: str) -> LockedPackage:
    # The names become parts of file names and addresses.
    match = _LINE.fullmatch(line) if len(line) <= MAX_LINE else None
    try:
        appeared = date.fromisoformat(match["day"]) if match and match["day"] else None
    except ValueError:
        match = None
    if match is None:
        raise LockError(f"A lock has the line {line[:MAX_LINE]!r}.", next_step="Write it anew with `tfimg lock`.")
    return LockedPackage(name=match["name"], version=match["version"], sha256=match["sha256"], appeared=appeared)


def hash_lock(layers: Lock) -> str:
    """`sha256:…` of a whole lock: the value of the image's lock label."""
    whole = "".join(f"{name}\n{layers[name]}" for name in sorted(layers))
    return f"sha256:{hashlib.sha256(whole.encode()).hexdigest()}"
