"""The options of packages on top of an image."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from tfimg.cli.options import flag, values
from tfimg.core.errors import UsageError

if TYPE_CHECKING:
    from tfimg.cli.context import Context
    from tfimg.matrix.spec import ImageSpec

MAX_PACKAGE_FILE = 1 << 20
"""Bytes of a requirement file; one with 300 packages and their hashes has 100,000."""


@dataclass(frozen=True, kw_only=True)
class AddedPackageOptions:
    """Packages of the user on top of images."""

    requirements: tuple[str, ...] = values("Python packages on top: a requirement file", "FILE")
    with_packages: tuple[str, ...] = values(
        "Python packages on top, as requirements separated by commas: tensorflow-text,keras-hub", "NAMES", name="--with"
    )
    apt: tuple[str, ...] = values("Debian packages on top: a file with a name in each line", "FILE")
    newest: bool = flag("resolve packages on top as of today, not as of the release's time")

    @property
    def names_packages(self) -> bool:
        """Whether packages on top are requested."""
        return bool(self.requirements or self.with_packages or self.apt)

    def check_package_options(self, as_of: str | None) -> None:
        """Raise `UsageError` for a day of packages that are not requested, and for two days."""
        if self.newest and as_of:
            raise UsageError("--newest and --as-of cannot be combined.", next_step="--newest means today.")
        if (self.newest or as_of) and not (self.requirements or self.with_packages):
            name = "--newest" if self.newest else "--as-of"
            raise UsageError(
                f"{name} is the day of packages on top, and none are requested.",
                next_step="Name them with --with or --requirements, or leave it out: images have locks as of their "
                "release's time.",
            )

    def read_packages(self) -> tuple[list[str], list[str]]:
        """Return the Python requirements and the Debian packages. Raises `UsageError`, `FileNotFoundError`."""
        from tfimg.cli.output.streams import read_text
        from tfimg.recipe.packages import parse_requirements, parse_system_packages

        def read(name: str) -> str:
            return read_text(name, MAX_PACKAGE_FILE, next_step="Name a file with the names of packages.")

        texts = [(name, read(name)) for name in self.requirements]
        texts += [("--with", split_requirements(names)) for names in self.with_packages]
        requirements = [one for source, text in texts for one in parse_requirements(text, source=source)]
        system = [one for name in self.apt for one in parse_system_packages(read(name), source=name)]
        return list(dict.fromkeys(requirements)), list(dict.fromkeys(system))

    def package_arguments(self, context: Context, as_of: str | None) -> list[str]:
        """Return the options again, for a command of another machine or day: --newest is the day of today there."""
        day = context.services.today.isoformat() if self.newest else as_of
        return [
            *(f"--requirements={name}" for name in self.requirements),
            *(f"--with={names}" for names in self.with_packages),
            *(f"--apt={name}" for name in self.apt),
            *([f"--as-of={day}"] if day else []),
        ]

    def add_packages(self, context: Context, spec: ImageSpec, as_of: str | None = None) -> ImageSpec:
        """Return an image with the packages on top, resolved as of a day. Raises as `Locks.add_packages`."""
        requirements, system = self.read_packages()
        if not (requirements or system):
            return spec
        context.say(f"Resolving the packages on top of {spec.identifier}")
        day = context.services.today if self.newest else parse_day(as_of, context.services.today)
        return context.project.locks.add_packages(spec, requirements, system, day)


def split_requirements(names: str) -> str:
    """Return the requirements of one --with, a line each: a comma before a letter separates them, as in `a<2,>1,b`.

    Commas in brackets belong to the extras of a requirement.
    """
    return re.sub(r",(?=\s*[A-Za-z])(?![^\[]*\])", "\n", names)


def parse_day(text: str | None, today: date) -> date | None:
    """Return the day of --as-of. Raises `UsageError` for one in the future."""
    day = date.fromisoformat(text) if text else None
    if day and day > today:
        raise UsageError(
            f"--as-of {day} is in the future: what a lock resolves to could change until then.",
            next_step="Name a day up to today, or leave it out.",
        )
    return day
