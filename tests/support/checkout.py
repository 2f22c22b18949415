"""A copy of this checkout, to release it or to change it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from support.paths import ROOT


def copy_checkout(folder: Path, *names: str) -> Path:
    """Copy the files that git tracks or would add, or those under the names, into a new folder."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *names],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    return folder
