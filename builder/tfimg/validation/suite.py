"""The suite: its files, and the part of it that is selected. Without pydantic, which the results of checks need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Profile = Literal["smoke", "standard", "full"]


def suite_files(folder: Path) -> dict[str, bytes]:
    """Return the modules of the suite by their paths below its folder."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*.py"))
        if "__pycache__" not in file.parts
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckSelection:
    """Part of the suite to run; `only` and `skip` are patterns of check names."""

    profile: Profile = "standard"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """Arguments of the suite's program."""
        arguments = ["--profile", self.profile]
        for option, patterns in (("--only", self.only), ("--skip", self.skip)):
            arguments += [option, *patterns] if patterns else []
        return arguments


ALL_CHECKS = CheckSelection()  # all checks that a level requires


MAX_FILES = 1000
"""Reports or inventories kept in a folder, the newest: the matrix has 258 images, and a new suite writes one on
each."""
