"""Extra packages: read, resolve against the lock, explain conflicts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfimg.core.cancellation import map_in_threads
from tfimg.core.errors import LockError, RequirementConflict
from tfimg.core.files import hash_file
from tfimg.matrix.schema import Newer
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import ALIAS
from tfimg.recipe.lock import (
    HEADER,
    MAX_RESOLUTIONS,
    Lock,
    LockedPackage,
    LockQuery,
    end_of,
    format_line,
    make_query,
    read_packages,
    resolve_packages,
)
from tfimg.recipe.requirements import FindImage

if TYPE_CHECKING:
    from packaging.pylock import Package


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolver:
    """Resolves packages above one image's lock with the program `uv`, as of a day.

    `fixes` are packages of a variant that `tfimg matrix lock --fix` has moved; they stay. `constraints` bound packages
    that may be needed. `newest`: all releases are seen, also of an index that states no upload times.
    """

    spec: ImageSpec
    lock: Lock
    newer: Newer
    uv: str
    env: Mapping[str, str]
    as_of: date | None = None
    find_links: Path | None = None
    fixes: tuple[LockedPackage, ...] = ()
    constraints: tuple[str, ...] = ()
    newest: bool = False

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

        Raises `LockError` if they have no solution; `tfimg.recipe.packages` explains it.
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
        local = {self.spec.package, ALIAS} if self.spec.wheel else ()
        return replace(
            base,
            requirements=tuple(requirements),
            cutoff=cutoff,
            newer=tuple(sorted((dict(base.newer) | days).items())) if fixed is None else base.newer,
            constraints=(
                *(
                    f"{name}=={version}"
                    for name, version in (*self.versions.items(), *((fix.name, fix.version) for fix in self.fixes))
                    if fixed is None or name in fixed
                ),
                *self.constraints,
            ),
            newest=self.newest,
            # No index has the version of a wheel that a user built.
            local=tuple((name, self.spec.tensorflow) for name in local),
        )


def find_locked_wheels(folder: Path, lock: Lock) -> tuple[Path, ...]:
    """Return the wheels of a folder that a lock names by their hash."""
    hashes = {package.sha256 for package in read_packages(lock)}
    return tuple(wheel for wheel in list_wheels(folder) if hash_file(wheel) in hashes)


def list_wheels(folder: Path) -> list[Path]:
    """Return the wheels of a folder, by name."""
    return sorted(wheel for wheel in folder.glob("*.whl") if wheel.is_file())


MAX_SECONDS = 90
"""Time for an explanation. A resolution takes 1 to 5 seconds, 10 where the metadata of many releases is fetched."""

MAX_LISTED = 5  # conflicts in one message
MAX_REASON = 300  # characters of what uv says; for a package with 50 releases it says 20,000

_WITHOUT_WHEEL = re.compile(r"\b(?:versions of )?([a-z0-9][\w.-]*)(?:[<>=!~]=?\S+)? ha(?:s|ve) no usable wheels")
_UNKNOWN = re.compile(r"\b([a-z0-9][\w.-]*) was not found in the (?:package registry|provided package locations)")


class _TimeIsUp(Exception):
    """The explanation takes too long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Problem:
    """Why a requirement does not fit, in sentences, and what would work."""

    what: str
    fixes: tuple[str, ...] = ()


def explain_conflict(
    resolver: Resolver, requirements: Sequence[str], error: LockError, *, today: date, find_image: FindImage
) -> LockError:
    """Return the refusal of requirements that have no solution on top of an image.

    `error` is what uv said, `find_image` names another image. At most `MAX_SECONDS` are spent; what is not found out
    by then is told in uv's words.
    """
    search = _Search(resolver=resolver, today=today, find_image=find_image)
    problems = [problem for one in requirements if (problem := search.find_locked_conflict(one))]
    if not problems:
        try:
            problems = [search.find_culprit(requirements, error)]
        except _TimeIsUp:
            problems = [_quote_uv(requirements, error)]
    sentences = [problem.what for problem in problems[:MAX_LISTED]]
    if len(problems) > MAX_LISTED:
        sentences.append(f"{len(problems) - MAX_LISTED} more requirements conflict.")
    fixes = dict.fromkeys(fix for problem in problems[:MAX_LISTED] for fix in problem.fixes)
    step = "; or ".join([*fixes][:MAX_LISTED]) or "loosen or leave out the requirement"
    return RequirementConflict(" ".join(sentences), next_step=f"{step[0].upper()}{step[1:]}.")


@dataclass(frozen=True, kw_only=True)
class _Search:
    """Asks uv variants of the requirements until it is known which does not fit."""

    resolver: Resolver
    today: date
    find_image: FindImage
    deadline: float = field(default_factory=lambda: time.monotonic() + MAX_SECONDS)

    def find_locked_conflict(self, requirement: str) -> _Problem | None:
        """Return why a requirement of a package of the image does not fit; without asking uv."""
        wanted = Requirement(requirement)
        name = canonicalize_name(wanted.name)
        version = self.resolver.versions.get(name)
        if version is None or wanted.marker or wanted.specifier.contains(version, prereleases=True):
            return None
        what = f"{requirement} conflicts with {name} {version}, which TensorFlow "
        what += f"{self.resolver.spec.tensorflow} was locked with."
        if name.startswith(ALIAS):
            what = f"{requirement} conflicts with {name} {version} of the image itself."
        image = self.find_image(name, str(wanted.specifier))
        return _Problem(
            what=what,
            fixes=(f"write {wanted.name} without a version", *([f"use the image {image}"] if image else [])),
        )

    def find_culprit(self, requirements: Sequence[str], error: LockError) -> _Problem:
        """Return the problem of the first requirement that does not fit with those before it."""

        @cache
        def fits(*some: str) -> bool:
            return self.resolve(some) is not None

        # The number of resolutions is the logarithm of the number of requirements.
        culprit = requirements[_first_without(range(len(requirements)), lambda end: fits(*requirements[: end + 1]))]
        if not fits(culprit):
            return self._explain_one(culprit, error)
        before = requirements[: requirements.index(culprit)]
        other = before[_first_without(range(len(before)), lambda end: fits(*before[: end + 1], culprit))]
        if not fits(other, culprit):
            return _Problem(
                what=f"{other} and {culprit} exclude each other on top of {self.resolver.spec.identifier}; each fits "
                "alone.",
                fixes=("loosen one of them",),
            )
        return _Problem(
            what=f"{culprit} does not fit with the requirements before it, of which {other} is the last that it needs "
            "otherwise.",
            fixes=("loosen one of them",),
        )

    def resolve(self, requirements: Iterable[str], fixed: Iterable[str] | None = None) -> dict[str, str] | None:
        """Return the versions by name that requirements resolve to, None without a solution; see `Resolver.query`."""
        if time.monotonic() > self.deadline:
            raise _TimeIsUp
        try:
            return self.resolver.find_versions(requirements, fixed)
        except LockError:
            return None

    def _explain_one(self, requirement: str, error: LockError) -> _Problem:
        """Return why a requirement does not fit, although it is the only one."""
        wanted = Requirement(requirement)
        name = canonicalize_name(wanted.name)
        try:
            self.resolver.find_versions([requirement])
        except LockError as alone:
            error = alone
        if (unknown := _UNKNOWN.search(error.what)) and self.resolve([wanted.name], ()) is None:
            needs = "" if unknown[1] == name else f", which {requirement} needs"
            return _Problem(
                what=f"The package index has no package {unknown[1]}{needs}.",
                fixes=("correct the name", "put its wheel into a folder and name that with --find-links"),
            )
        fits = self.resolve([wanted.name])
        fixes = [f"write {wanted.name}=={fits[name]}, which fits"] if fits and name in fits else []
        later = None if self.resolver.as_of else replace(self, resolver=replace(self.resolver, as_of=self.today))
        if later and (found := later.resolve([requirement])):
            return _Problem(
                what=f"{requirement} has no release of {self.resolver.day} or before, the time of TensorFlow "
                f"{self.resolver.spec.tensorflow}, that fits.",
                fixes=(*fixes, f"allow later releases with --newest: {name} {found.get(name, '')} fits"),
            )
        if moved := self._find_moved(requirement):
            return self._describe_moved(requirement, moved, fixes)
        if without := list(dict.fromkeys(_WITHOUT_WHEEL.findall(error.what)))[:MAX_LISTED]:
            what = f"{name} has" if without == [name] else f"{requirement} needs {', '.join(without)}, which has"
            wheels = f"`pip wheel --no-deps --wheel-dir wheels {' '.join(without)}`"
            return _Problem(
                what=f"{what} no wheel on the package index, and nothing is compiled while an image is built.",
                fixes=(*fixes, f"make the wheel with {wheels} and add --find-links wheels"),
            )
        if later and (moved := later._find_moved(requirement)):
            return self._describe_moved(requirement, moved, fixes)
        return replace(_quote_uv([requirement], error), fixes=tuple(fixes))

    def _find_moved(self, requirement: str) -> dict[str, str]:
        """Return the packages of the image that a requirement would move, with the versions that it needs."""
        tensorflow = [name for name in self.resolver.versions if name.startswith(ALIAS)]
        free = self.resolve([requirement], tensorflow) or self.resolve([requirement], ())
        moved = {
            name: found for name, found in (free or {}).items() if self.resolver.versions.get(name, found) != found
        }  # more than need be: without bounds uv takes the newest
        kept = map_in_threads(lambda name: self.resolve([requirement], [*tensorflow, name]), moved, MAX_RESOLUTIONS)
        needed = {name: moved[name] for name, solution in zip(moved, kept, strict=True) if solution is None}
        # Where each of them could stay alone, or TensorFlow itself moves, all are named.
        return {name: found for name, found in moved.items() if name.startswith(ALIAS)} or needed or moved

    def _describe_moved(self, requirement: str, moved: Mapping[str, str], fixes: Sequence[str]) -> _Problem:
        listed = [f"{name} {found}" for name, found in moved.items()][:MAX_LISTED]
        locked = [f"{name} {self.resolver.versions[name]}" for name in moved][:MAX_LISTED]
        name, found = next(iter(moved.items()))
        is_newer = Version(found) > Version(self.resolver.versions[name])
        image = self.find_image(name, f"{'>=' if is_newer else '<='}{Version(found).public}")
        return _Problem(
            what=f"{requirement} needs another version of what TensorFlow {self.resolver.spec.tensorflow} was locked "
            f"with: {', '.join(listed)} instead of {', '.join(locked)}.",
            fixes=(*fixes, *([f"use the image {image}"] if image else []))
            or ("choose another release of TensorFlow: `tfimg list` shows them",),
        )


def _first_without(places: range, fits: Callable[[int], bool]) -> int:
    """Return the first place that does not fit, by halving; all places after it do not fit either."""
    low, high = places.start, places.stop - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if fits(middle) else (low, middle)
    return low


def _quote_uv(requirements: Sequence[str], error: LockError) -> _Problem:
    """Return what uv said, without the steps of its proof."""
    reason = re.sub(r"^.*?cause: ", "", error.what)
    if len(reason) > MAX_REASON:
        reason = f"… {reason[-MAX_REASON:].partition(' ')[2]}"
    return _Problem(what=f"{', '.join(requirements[:MAX_LISTED])} cannot be resolved: {reason}")
