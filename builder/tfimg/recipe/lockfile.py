"""A lock as text: a folder with one requirement file per layer of the image."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import date

from tfimg.errors import LockError

HEADER = (
    "# Written by `tfimg lock`; do not edit. Each line: the one wheel to install, and the day it appeared.\n"
)

Layers = dict[str, str]
"""Layer of an image → text of the requirement file that it is installed from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedPackage:
    """One line of a lock; `appeared` is None where the index does not say."""

    name: str
    version: str
    sha256: str
    appeared: date | None


def read_packages(layers: Layers) -> tuple[LockedPackage, ...]:
    """The packages that a lock names. Raises `LockError` for a line that `tfimg lock` cannot have written."""
    lines = [line for text in layers.values() for line in text.splitlines() if not line.startswith("#")]
    return tuple(_read_line(line) for line in lines)


def _read_line(line: str) -> LockedPackage:
    statement, _, comment = line.partition("  # ")
    pin, _, digest = statement.partition(" --hash=sha256:")
    name, equal, version = pin.partition("==")
    try:
        appeared = date.fromisoformat(comment) if comment else None
    except ValueError:
        equal = ""
    if not equal or len(digest) != 64:
        raise LockError(f"A lock has the line {line!r}.", next_step="Write it anew with `tfimg lock`.")
    return LockedPackage(name=name, version=version, sha256=digest, appeared=appeared)


def digest(layers: Layers) -> str:
    """`sha256:…` of a whole lock: the value of the image's lock label."""
    whole = "".join(f"{name}\n{layers[name]}" for name in sorted(layers))
    return f"sha256:{hashlib.sha256(whole.encode()).hexdigest()}"
