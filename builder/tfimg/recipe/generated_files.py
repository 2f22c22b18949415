"""Files that the program generates and people commit: write them, or find those that are out of date."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfimg.core.errors import StaleFiles
from tfimg.core.files import write_atomically


class GeneratedFiles:
    """Files below a folder: each is written at once, so that an interruption loses none; or they are only compared."""

    def __init__(self, root: Path, *, check: bool) -> None:
        self._root = root
        self._check = check
        self._wanted: set[Path] = set()
        self._changed: dict[str, str] = {}

    def add(self, files: Mapping[Path, str]) -> None:
        for file, text in files.items():
            self._wanted.add(file)
            if file.exists() and file.read_text("utf-8") == text:
                continue
            self._changed[str(file.relative_to(self._root))] = "differs" if file.exists() else "is missing"
            if not self._check:
                write_atomically(file, text)

    def remove_others(self, folder: Path) -> None:
        """Remove the files below a folder that were not added, or note that they should not exist."""
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file not in self._wanted:
                self._changed[str(file.relative_to(self._root))] = "is no longer generated"
                if not self._check:
                    file.unlink()

    def require_fresh(self, command: str) -> None:
        """Raise `StaleFiles` if files that were only compared are not what `command` would write."""
        if self._check and self._changed:
            listed = "; ".join(f"{name} {problem}" for name, problem in list(self._changed.items())[:10])
            raise StaleFiles(
                f"{len(self._changed)} of {len(self._wanted)} generated files are out of date: {listed}.",
                next_step=f"Run `{command}` and commit what it writes.",
            )

    def to_json(self) -> dict[str, Any]:
        return {"files": len(self._wanted), "changed": sorted(self._changed)}

    def __str__(self) -> str:
        return f"{len(self._wanted)} files, {f'{len(self._changed)} changed' if self._changed else 'all up to date'}"
