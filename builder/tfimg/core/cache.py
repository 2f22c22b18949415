"""Results that take long to compute, kept as JSON in the state folder: any version may delete them."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from tfimg import __version__
from tfimg.core.files import write_atomically

MAX_BYTES = 1 << 23
"""Bytes of a file that are read. The largest, what all records prove, has 100 kB."""


def make_cache_key(*parts: str | bytes, modules: tuple[str, ...] = ()) -> str:
    """Return the digest of what a result depends on: this version, and modules, which change in a checkout."""
    found = hashlib.sha256(__version__.encode())
    for part in (*parts, *(Path(name).read_bytes() for name in modules if Path(name).is_file())):
        content = part.encode() if isinstance(part, str) else part
        found.update(f"\n{len(content)}\n".encode() + content)
    return found.hexdigest()


def read_cache(file: Path, key: str) -> Any:
    """Return what a file keeps for a key; None for another key, and for a file that is damaged or cannot be read."""
    with suppress(OSError, ValueError), file.open("rb") as opened:
        seal, _, text = opened.read(MAX_BYTES).partition(b"\n")
        if seal == _seal(key, text):
            return json.loads(text)
    return None


def write_cache(file: Path, key: str, value: Any) -> None:
    """Keep a result of plain JSON values, if the file can be written."""
    text = json.dumps(value)
    with suppress(OSError):
        if len(text) < MAX_BYTES - 100:
            write_atomically(file, f"{_seal(key, text.encode()).decode()}\n{text}")


def _seal(key: str, text: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + text).hexdigest().encode()
