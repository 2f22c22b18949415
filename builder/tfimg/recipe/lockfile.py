"""Read and hash locks: a requirement file per part, with one hash per package."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import date

from tfimg.core.errors import LockError

HEADER = "# Written by `tfimg lock`; do not edit. Each line: the one wheel to install, and the day it appeared.\n"

MAX_CHARACTERS = 1 << 20  # of a whole lock; those of images have 7,000
MAX_LINE = 300  # characters; those of images have 150

# The names become parts of file names and addresses.
_LINE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[0-9][0-9A-Za-z.!+]*) --hash=sha256:(?P<sha256>[0-9a-f]{64})"
    r"(?:  # (?=\S)(?P<day>\d{4}-\d\d-\d\d)?"
    r"(?:(?:, |(?<=# ))(?P<reason>(?:fixes|goes with) [A-Za-z0-9 ,._:-]{1,120}))?)?",
    re.ASCII,
)

Lock = dict[str, str]
"""Part of an image → text of the requirement file that it is installed from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedPackage:
    """One line of a lock; `appeared` is None if the index does not state the day.

    `reason` is why `tfimg lock --fix` moved the package: `fixes CVE-2026-1234`; None for the version of its time.
    """

    name: str
    version: str
    sha256: str
    appeared: date | None
    reason: str | None = None


def read_packages(lock: Lock) -> tuple[LockedPackage, ...]:
    """Return a lock's packages. Raises `LockError` for lines `tfimg lock` never writes."""
    if sum(map(len, lock.values())) > MAX_CHARACTERS:
        raise _invalid(f"more than {MAX_CHARACTERS} characters")
    lines = [line for text in lock.values() for line in text.splitlines() if not line.startswith("#")]
    return tuple(map(_read_line, lines))


def hash_lock(lock: Lock) -> str:
    """Return `sha256:…` of a whole lock: the value of the image's lock label."""
    whole = "".join(f"{name}\n{lock[name]}" for name in sorted(lock))
    return f"sha256:{hashlib.sha256(whole.encode()).hexdigest()}"


def _read_line(line: str) -> LockedPackage:
    match = _LINE.fullmatch(line) if len(line) <= MAX_LINE else None
    if match is None:
        raise _invalid(f"the line {line[:MAX_LINE]!r}")
    try:
        appeared = date.fromisoformat(match["day"]) if match["day"] else None
    except ValueError:
        raise _invalid(f"the line {line!r}") from None
    return LockedPackage(
        name=match["name"],
        version=match["version"],
        sha256=match["sha256"],
        appeared=appeared,
        reason=match["reason"],
    )


def _invalid(problem: str) -> LockError:
    return LockError(f"A lock has {problem}.", next_step="Write it again with `tfimg lock`.")
