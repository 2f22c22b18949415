"""Explain why packages do not fit on top of an image: which requirement, which locked package, what would work."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfimg.core.cancellation import map_in_threads
from tfimg.core.errors import LockError, RequirementConflict
from tfimg.recipe.added_packages import Resolver
from tfimg.recipe.facts import ALIAS
from tfimg.recipe.lock import MAX_RESOLUTIONS

MAX_SECONDS = 90
"""Time for an explanation. A resolution takes 1 to 5 seconds, 10 where the metadata of many releases is fetched."""

MAX_LISTED = 5
"""Conflicts in one message."""

MAX_REASON = 300
"""Characters of what uv says; for a package with 50 releases it says 20,000."""

_WITHOUT_WHEEL = re.compile(r"\b(?:versions of )?([a-z0-9][\w.-]*)(?:[<>=!~]=?\S+)? ha(?:s|ve) no usable wheels")
_UNKNOWN = re.compile(r"\b([a-z0-9][\w.-]*) was not found in the (?:package registry|provided package locations)")

FindImage = Callable[[str, str], str | None]
"""Name and specifier of a package → the image closest to the one at hand that is locked with it, and its version."""


class _TimeIsUp(Exception):
    """The explanation takes too long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Problem:
    """Why a requirement does not fit, in sentences, and what would work."""

    what: str
    remedies: tuple[str, ...] = ()


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
    remedies = dict.fromkeys(remedy for problem in problems[:MAX_LISTED] for remedy in problem.remedies)
    step = "; or ".join([*remedies][:MAX_LISTED]) or "loosen or leave out the requirement"
    return RequirementConflict(" ".join(sentences), next_step=f"{step[0].upper()}{step[1:]}.")


@dataclass(frozen=True, kw_only=True)
class _Search:
    """Asks uv variants of the requirements until it is known which does not fit."""

    resolver: Resolver
    today: date
    find_image: FindImage
    deadline: float = field(default_factory=lambda: time.monotonic() + MAX_SECONDS)

    @property
    def versions(self) -> Mapping[str, str]:
        """The packages that do not move, with their versions."""
        return self.resolver.versions

    @property
    def locked_with(self) -> str:
        """The words for why a package does not move."""
        return f"TensorFlow {self.resolver.spec.tensorflow} was locked with"

    def find_locked_conflict(self, requirement: str) -> _Problem | None:
        """Return why a requirement of a package of the image does not fit; without asking uv."""
        wanted = Requirement(requirement)
        name = canonicalize_name(wanted.name)
        version = self.versions.get(name)
        if version is None or wanted.marker or wanted.specifier.contains(version, prereleases=True):
            return None
        what = f"{requirement} conflicts with {name} {version}, which {self.locked_with}."
        if name.startswith(ALIAS):
            what = f"{requirement} conflicts with {name} {version} of the image itself."
        image = self.find_image(name, str(wanted.specifier))
        return _Problem(
            what=what,
            remedies=(f"write {wanted.name} without a version", *([f"use the image {image}"] if image else [])),
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
                remedies=("loosen one of them",),
            )
        return _Problem(
            what=f"{culprit} does not fit with the requirements before it, of which {other} is the last that it needs "
            "otherwise.",
            remedies=("loosen one of them",),
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
                remedies=("correct the name", "put its wheel into a folder and name that with --find-links"),
            )
        fits = self.resolve([wanted.name])
        remedies = [f"write {wanted.name}=={fits[name]}, which fits"] if fits and name in fits else []
        later = None if self.resolver.as_of else replace(self, resolver=replace(self.resolver, as_of=self.today))
        if later and (found := later.resolve([requirement])):
            return _Problem(
                what=f"{requirement} has no release of {self.resolver.day} or before, the time of TensorFlow "
                f"{self.resolver.spec.tensorflow}, that fits.",
                remedies=(*remedies, f"allow later releases with --newest: {name} {found.get(name, '')} fits"),
            )
        if moved := self._find_moved(requirement):
            return self._describe_moved(requirement, moved, remedies)
        if without := list(dict.fromkeys(_WITHOUT_WHEEL.findall(error.what)))[:MAX_LISTED]:
            what = f"{name} has" if without == [name] else f"{requirement} needs {', '.join(without)}, which has"
            wheels = f"`pip wheel --no-deps --wheel-dir wheels {' '.join(without)}`"
            return _Problem(
                what=f"{what} no wheel on the package index, and nothing is compiled while an image is built.",
                remedies=(*remedies, f"make the wheel with {wheels} and add --find-links wheels"),
            )
        if later and (moved := later._find_moved(requirement)):
            return self._describe_moved(requirement, moved, remedies)
        return replace(_quote_uv([requirement], error), remedies=tuple(remedies))

    def _find_moved(self, requirement: str) -> dict[str, str]:
        """Return the packages of the image that a requirement would move, with the versions that it needs."""
        tensorflow = [name for name in self.versions if name.startswith(ALIAS)]
        free = self.resolve([requirement], tensorflow) or self.resolve([requirement], ())
        moved = {
            name: found for name, found in (free or {}).items() if self.versions.get(name, found) != found
        }  # more than need be: without bounds uv takes the newest
        kept = map_in_threads(lambda name: self.resolve([requirement], [*tensorflow, name]), moved, MAX_RESOLUTIONS)
        needed = {name: moved[name] for name, solution in zip(moved, kept, strict=True) if solution is None}
        # Where each of them could stay alone, or TensorFlow itself moves, all are named.
        return {name: found for name, found in moved.items() if name.startswith(ALIAS)} or needed or moved

    def _describe_moved(self, requirement: str, moved: Mapping[str, str], remedies: Sequence[str]) -> _Problem:
        listed = [f"{name} {found}" for name, found in moved.items()][:MAX_LISTED]
        locked = [f"{name} {self.versions[name]}" for name in moved][:MAX_LISTED]
        name, found = next(iter(moved.items()))
        is_newer = Version(found) > Version(self.versions[name])
        image = self.find_image(name, f"{'>=' if is_newer else '<='}{Version(found).public}")
        return _Problem(
            what=f"{requirement} needs another version of what {self.locked_with}: {', '.join(listed)} instead of "
            f"{', '.join(locked)}.",
            remedies=(*remedies, *([f"use the image {image}"] if image else []))
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
