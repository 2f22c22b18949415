"""The files of wheels beside run.py: check them, and join their pieces."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

WHEELS = Path(__file__).resolve().parent / "wheels"
PIECE = 1 << 20  # bytes read at a time


class NotRun(Exception):
    """A release could not be validated; the message says why, and what to do."""


def read_description(sha: str) -> dict[str, Any]:
    """Return file name, size and pieces of the wheel with a SHA-256."""
    content: dict[str, Any] = json.loads((WHEELS / f"{sha}.json").read_text(encoding="utf-8"))
    return content


def find_damage(sha: str, thoroughly: bool) -> Iterator[str]:
    """Yield what of a wheel is missing or has another size; with `thoroughly`, also another SHA-256."""
    try:
        wheel = read_description(sha)
    except (OSError, ValueError, KeyError) as error:
        yield f"wheels/{sha}.json ({error})"
        return
    for part in wheel["pieces"] or [wheel]:
        path = WHEELS / part["file"]
        if not path.is_file():
            yield f"wheels/{part['file']} is missing"
        elif path.stat().st_size != part["size"]:
            yield f"wheels/{part['file']} has {path.stat().st_size} bytes, not {part['size']}"
        elif thoroughly and hash_file(path) != part["sha256"]:
            yield f"wheels/{part['file']} has another SHA-256 than {part['sha256']}"


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for content in iter(lambda: file.read(PIECE), b""):
            digest.update(content)
    return digest.hexdigest()


def find_folder(wheel: Mapping[str, Any], folder: Path) -> Path:
    """Return the folder with a wheel as one file; its pieces are joined in `folder`. Raises `NotRun`."""
    if not wheel["pieces"]:
        return WHEELS
    target = folder / wheel["file"]
    if target.is_file() and hash_file(target) == wheel["sha256"]:
        return folder
    folder.mkdir(exist_ok=True)
    partial = target.with_suffix(".partial")
    with partial.open("wb") as sink:
        for piece in wheel["pieces"]:
            with (WHEELS / piece["file"]).open("rb") as source:
                for content in iter(lambda source=source: source.read(PIECE), b""):  # type: ignore[misc]
                    sink.write(content)
    if hash_file(partial) != wheel["sha256"]:
        partial.unlink()
        raise NotRun(f"{wheel['file']} does not have its SHA-256 when joined; `run.py --check` names the piece")
    partial.replace(target)
    return folder
