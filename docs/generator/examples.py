"""Examples on the site: their README and files; and single files of the checkout as parts of pages."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_LANGUAGES = {".py": "python", ".toml": "toml", ".txt": "text", ".yml": "yaml"}


def example(name: str) -> str:
    """Return the README of an example, and its files, as a part of a page in `docs/tutorials`."""
    folder = _ROOT / "examples" / name
    text = (folder / "README.md").read_text(encoding="utf-8").replace("](../../docs/", "](../")
    files = (file for file in sorted(folder.rglob("*")) if file.suffix in _LANGUAGES)
    shown = "".join(f"\n`{file.relative_to(folder).as_posix()}`:\n\n{_show(file)}" for file in files)
    return re.sub("^# ", "## ", text) + shown


def file(path: str) -> str:
    """Return a file of the checkout as a block of code."""
    return _show(_ROOT / path)


def _show(path: Path) -> str:
    return f"```{_LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}```\n"
