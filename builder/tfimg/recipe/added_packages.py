"""Lock packages above an image's own lock, which they leave as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from packaging.pylock import Package
from packaging.requirements import InvalidRequirement, Requirement

from tfimg.core.errors import UsageError
from tfimg.core.files import hash_file
from tfimg.core.text import escape_unprintable
from tfimg.matrix.schema import Newer
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import ALIAS
from tfimg.recipe.lock import LockQuery, end_of, format_line, make_query, resolve_packages
from tfimg.recipe.lockfile import HEADER, Lock, LockedPackage, read_packages

MAX_REQUIREMENTS = 500
"""Requirements of one image. What people freeze from a large environment has 300."""

MAX_REQUIREMENT = 1000
"""Characters of a requirement: a version of 4300 digits cannot be compared, and deep brackets exhaust the stack."""

_SYSTEM_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,80}(=[0-9A-Za-z.+:~-]{1,100})?")
"""Name of a Debian package and a version (Debian policy, 5.6.7 and 5.6.12)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolver:
    """Resolves packages above one image's lock with the program `uv`, as of a day.

    `fixes` are packages of a flavour that `tfimg lock --fix` has moved; they stay.
    """

    spec: ImageSpec
    lock: Lock
    newer: Newer
    uv: str
    env: Mapping[str, str]
    as_of: date | None = None
    find_links: Path | None = None
    fixes: tuple[LockedPackage, ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        """The packages that do not move: those of the lock, and the other name of TensorFlow's."""
        return {package.name: package.version for package in read_packages(self.lock)} | {ALIAS: self.spec.tensorflow}

    @property
    def day(self) -> date:
        """The day as of which packages are resolved."""
        return self.as_of or self.spec.cutoff

    def find(self, requirements: Sequence[str]) -> Sequence[Package]:
        """Return the packages that requirements resolve to.

        Raises `LockError` if they have no solution; `tfimg.recipe.conflicts` explains it.
        """
        return resolve_packages(self.query(requirements), uv=self.uv, env=self.env)

    def format(self, requirements: Sequence[str], found: Iterable[Package]) -> str:
        """Return the requirement file of those packages that the image lacks. Raises `LockError`."""
        query = self.query(requirements)
        reasons = {(fix.name, fix.version): fix.reason for fix in self.fixes}
        lines = [
            format_line(package, query, reasons.get((package.name, str(package.version))))
            for package in found
            if package.name not in self.versions
        ]
        return HEADER + "".join(lines) if lines else ""

    def find_versions(self, requirements: Iterable[str], fixed: Iterable[str] | None = None) -> dict[str, str]:
        """Return the versions by name that a query resolves to. Raises `LockError` without a solution."""
        found = resolve_packages(self.query(requirements, fixed), uv=self.uv, env=self.env)
        return {package.name: str(package.version) for package in found}

    def query(self, requirements: Iterable[str], fixed: Iterable[str] | None = None) -> LockQuery:
        """Return the query for requirements; `fixed` are the packages of the image that do not move, if not all."""
        base = make_query(self.spec, self.newer, self.find_links)
        # Packages of the image may be newer than the cut-off: they are visible as of the day when they appeared.
        days = {ALIAS: end_of(self.spec.cutoff)}
        days |= {
            package.name: end_of(package.appeared)
            for package in (*read_packages(self.lock), *self.fixes)
            if package.appeared
        }
        cutoff = end_of(self.day)
        supplied = {self.spec.package, ALIAS} if self.spec.wheel else ()
        return replace(
            base,
            requirements=tuple(requirements),
            cutoff=cutoff,
            newer=tuple(sorted((dict(base.newer) | days).items())) if fixed is None else base.newer,
            constraints=tuple(
                f"{name}=={version}"
                for name, version in (*self.versions.items(), *((fix.name, fix.version) for fix in self.fixes))
                if fixed is None or name in fixed
            ),
            # No index has the version of a wheel that a user built.
            supplied=tuple((name, self.spec.tensorflow) for name in supplied),
        )


def parse_requirements(text: str, *, source: str) -> tuple[str, ...]:
    """Return the requirements of a requirement file, without comments and hashes. Raises `UsageError`.

    Options and addresses are refused: what an image installs comes from the package index or a folder of wheels.
    """
    found = []
    # A line goes on after a backslash, but a comment does not.
    joined = re.sub(r"^(?!\s*#)(.*)\\\r?\n", r"\1 ", text, flags=re.MULTILINE)
    for number, line in enumerate(joined.splitlines(), start=1):
        requirement = re.sub(r"(^|\s)#.*|\s--hash=\S+", "", line).strip()
        if not requirement:
            continue
        try:
            parsed = Requirement(requirement) if len(requirement) <= MAX_REQUIREMENT else None
        except (InvalidRequirement, RecursionError):
            parsed = None
        if parsed is None or parsed.url:
            raise UsageError(
                f"{source}, line {number}: {escape_unprintable(requirement[:100])!r} is not a requirement such as "
                "pandas<3.",
                next_step="Write names with versions; wheels of your own are taken from the folder of --find-links.",
            )
        found.append(requirement)
    if len(found) > MAX_REQUIREMENTS:
        raise UsageError(f"{source} has more than {MAX_REQUIREMENTS} requirements.", next_step="Name fewer.")
    return tuple(found)


def parse_system_packages(text: str, *, source: str) -> tuple[str, ...]:
    """Return the Debian packages that a file names, one or more in a line. Raises `UsageError`."""
    found = [name for line in text.splitlines() for name in line.partition("#")[0].split()]
    for name in found:
        if not _SYSTEM_PACKAGE.fullmatch(name):
            raise UsageError(
                f"{source}: {escape_unprintable(name[:100])!r} is not the name of a Debian package.",
                next_step="Write names such as ffmpeg or libsndfile1=1.2.0-1, one in a line.",
            )
    if len(found) > MAX_REQUIREMENTS:
        raise UsageError(f"{source} has more than {MAX_REQUIREMENTS} packages.", next_step="Name fewer.")
    return tuple(dict.fromkeys(found))


def find_locked_wheels(folder: Path, lock: Lock) -> tuple[Path, ...]:
    """Return the wheels of a folder that a lock names by their hash."""
    hashes = {package.sha256 for package in read_packages(lock)}
    return tuple(wheel for wheel in list_wheels(folder) if hash_file(wheel) in hashes)


def list_wheels(folder: Path) -> list[Path]:
    """Return the wheels of a folder, by name."""
    return sorted(wheel for wheel in folder.glob("*.whl") if wheel.is_file())
