"""Move affected packages of a lock to fixed versions with uv, and say what blocks a fix.

uv resolves the image again with its lock as the last answer, so that nothing moves but what has to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby

from packaging.pylock import Package
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tfimg.advisories.audit import find_risk
from tfimg.advisories.match import AuditedPackage, Finding, make_python_package, read_lock_packages
from tfimg.core import cancellation, errors
from tfimg.core.text import escape_unprintable, truncate
from tfimg.matrix.schema import AcceptedRisk, Newer
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import ALIAS
from tfimg.recipe.lock import HEADER, Lock, LockQuery, end_of, format_line, make_query, read_packages

MOVABLE_PARTS = ("packages", "variant")  # parts of a lock whose packages may move. The bytes of all others never change

KEPT = {
    "tensorflow": "its layer stays: the fix is another release of TensorFlow",
    "libtpu": "its layer stays: TensorFlow is built for this libtpu",
}
KEPT_LIBRARY = "its layer stays: matrix.yaml pins the libraries of the CUDA toolkit"
"""Why the packages of other parts stay."""

NOT_FIXED = "its advisory names no fixed version"
MAX_ROUNDS = 10  # resolutions for one fix: each excludes the versions of the last that are affected too
MAX_NAMES = 110  # characters of identifiers in a line of a lock


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionMove:
    """A package and the version that it moves to; `before` is None for one that the lock lacked."""

    name: str
    before: str | None
    after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """An affected package of an image: `moves` fix its advisories, or `blocked` says why none does."""

    package: str
    version: str
    advisories: tuple[str, ...]
    moves: tuple[VersionMove, ...] = ()
    blocked: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockFix:
    """The outcomes of an image's lock, and the text of its parts that change."""

    spec: ImageSpec
    outcomes: tuple[Outcome, ...]
    changed: Lock


@dataclass(frozen=True, kw_only=True, slots=True)
class LockFixer:
    """Fixes the locks of images: `find` asks for the defects of packages, `resolve` runs uv."""

    newer: Newer
    risks: Sequence[AcceptedRisk]
    find: Callable[[Iterable[AuditedPackage]], Mapping[AuditedPackage, Sequence[Finding]]]
    resolve: Callable[[LockQuery], Sequence[Package]]
    today: date

    def fix(
        self, spec: ImageSpec, lock: Lock, *, below: Lock | None = None, above: Sequence[tuple[ImageSpec, Lock]] = ()
    ) -> LockFix:
        """Return the fixes of an image's lock.

        `below` is the lock that a variant's stands on. `above` are the variants of an image with the part of their
        locks that lies above it: what they need stays possible. Raises `NetworkError`.
        """
        run = _ImageFix(self, spec, lock, below or {}, above)
        outcomes = [*run.kept, *(run.fix_all() if run.goals else ())]
        return LockFix(
            spec=spec,
            outcomes=tuple(sorted(outcomes, key=lambda one: (one.package, one.blocked))),
            changed={part: text for part, text in run.lock.items() if lock[part] != text},
        )


class _ImageFix:
    """The fixes of one image. `goals` are the defects that a later version may fix, `kept` those that stay."""

    def __init__(
        self, tools: LockFixer, spec: ImageSpec, lock: Lock, below: Lock, above: Sequence[tuple[ImageSpec, Lock]]
    ) -> None:
        self.tools, self.spec, self.lock = tools, spec, dict(lock)
        self.part_of = {package.name: part for part in lock for package in read_packages({part: lock[part]})}
        self.first = _read_versions(self.lock)
        kept = (part for part in lock if part not in MOVABLE_PARTS)
        self.below = {ALIAS: spec.tensorflow, **_read_versions(below, {part: lock[part] for part in kept})}
        self.pinned = {**_read_versions(*(part for _, part in above)), **self.below}
        self.above = tuple(text for one, _ in above for text in one.variant_requirements)
        self.goals: list[Finding] = []
        self.known: dict[str, frozenset[str]] = {}
        stay: dict[tuple[str, str], list[Finding]] = {}
        for finding in self._find_open(read_lock_packages(read_packages(lock))):
            name = finding.package.name
            self.known[name] = self.known.get(name, frozenset()) | finding.identifiers
            if (part := self.part_of[name]) not in MOVABLE_PARTS:
                stay.setdefault((name, KEPT.get(part, KEPT_LIBRARY)), []).append(finding)
            elif finding.bound is None:
                stay.setdefault((name, NOT_FIXED), []).append(finding)
            else:
                self.goals.append(finding)
        self.kept = [self._outcome(findings, blocked=reason) for (_, reason), findings in stay.items()]
        self.goals.sort(key=lambda one: (one.package.name, Version(str(one.bound).strip(">="))))

    def _find_open(self, packages: Iterable[AuditedPackage]) -> list[Finding]:
        """Return the defects of packages that no risk of the matrix covers."""
        found = self.tools.find(packages).values()
        return [one for some in found for one in some if not find_risk(one, self.spec.identifier, self.tools.risks)]

    def _outcome(self, findings: Sequence[Finding], moves: Sequence[VersionMove] = (), blocked: str = "") -> Outcome:
        name, names = findings[0].package.name, tuple(finding.identifier for finding in findings)
        return Outcome(package=name, version=self.first[name], advisories=names, moves=tuple(moves), blocked=blocked)

    def fix_all(self) -> list[Outcome]:
        """Fix all goals at once; where that is impossible or moves other packages too, one package after the other."""
        packages = {name: list(group) for name, group in groupby(self.goals, key=lambda one: one.package.name)}
        if not self._apply(self.goals, only=packages):
            return [self._outcome(goals, self._list_moves(name, {})) for name, goals in packages.items()]
        outcomes = []
        for name, goals in packages.items():
            before, fixed = _read_versions(self.lock), goals
            if reason := self._apply(goals):  # then as many as a version fixes: those with the lowest fixed versions
                fixed = []
                for count in range(1, len(goals)):
                    if self._apply(goals[:count]):
                        break
                    fixed = goals[:count]
                outcomes.append(self._outcome(goals[len(fixed) :], blocked=reason))
            if fixed:
                outcomes.append(self._outcome(fixed, self._list_moves(name, before)))
        return outcomes

    def _list_moves(self, name: str, before: Mapping[str, str]) -> list[VersionMove]:
        """Return the move of a package since the beginning, and those of others since the versions `before`."""
        now = _read_versions(self.lock)
        others = [
            VersionMove(name=other, before=before.get(other), after=now[other])
            for other in (now if before else ())
            if other != name and before.get(other) != now[other]
        ]
        return [VersionMove(name=name, before=self.first[name], after=now[name]), *others]

    def _apply(self, goals: Sequence[Finding], only: Iterable[str] | None = None) -> str:
        """Apply the fixes of defects to the lock, if it moves `only` some packages; return why that is impossible."""
        try:
            query, packages = self._resolve(goals)
            before = {**self.below, **_read_versions(self.lock)}
            moved = [one for one in packages if before.get(one.name) != str(one.version)]
            if only and not {one.name for one in moved} <= set(only):
                return "other packages move too"
            reasons = dict.fromkeys((one.name for one in moved), f"goes with {goals[0].package.name}")
            for name, group in groupby(goals, key=lambda one: one.package.name):
                names: list[str] = []
                for finding in group:
                    if len(", ".join([*names, finding.identifier])) <= MAX_NAMES:
                        names.append(finding.identifier)
                reasons[name] = f"fixes {', '.join(names)}"
            lines: dict[str, str] = {one.name: format_line(one, query, reasons[one.name]) for one in moved}
        except errors.LockError as error:
            # uv's own words: of a short proof its premise, of a long one all that a message has room for.
            text = re.sub(r"^.*?cause: (Because )?", "", " ".join(error.what.split())).rstrip(".")
            premise, *conclusions = text.split(". And because ")
            text = premise.partition(", we can conclude")[0] if len(conclusions) < 2 else text
            return escape_unprintable(truncate(text))
        # Lines of packages that did not move stay as they are, those of packages that nothing needs now go.
        needed = {one.name for one in packages}
        default = next(part for part in self.lock if part in MOVABLE_PARTS)
        for part in MOVABLE_PARTS:
            if part in self.lock:
                old = self.lock[part].splitlines(keepends=True)
                kept = {name: line for line in old if (name := line.partition("==")[0]) in needed}
                kept |= {name: line for name, line in lines.items() if self.part_of.get(name, default) == part}
                self.lock[part] = HEADER + "".join(line for _, line in sorted(kept.items()))
        return ""

    def _resolve(self, goals: Sequence[Finding]) -> tuple[LockQuery, Sequence[Package]]:
        """Return the packages without defects of `goals` and without new ones. Raises `LockError`."""
        own, wanted = _read_versions(self.lock), frozenset().union(*(goal.identifiers for goal in goals))
        bounds: dict[str, SpecifierSet] = {}
        affected = goals
        for _ in range(MAX_ROUNDS):
            cancellation.raise_if_cancelled()
            for one in affected:
                name = one.package.name
                bounds[name] = bounds.get(name, SpecifierSet()) & SpecifierSet(one.bound or f">{one.package.version}")
            base = make_query(self.spec, self.tools.newer)
            query = replace(
                base,
                requirements=(
                    *base.requirements,
                    *self.spec.variant_requirements,
                    *self.above,
                    *(f"{name}{bound}" for name, bound in bounds.items() if name in own),
                ),
                constraints=(
                    *(f"{name}=={version}" for name, version in self.pinned.items()),
                    # Local parts have no order.
                    *(f"{name}>={own[name].partition('+')[0]}" for name in own if name not in self.pinned),
                    *(f"{name}{bound}" for name, bound in bounds.items() if name not in own),
                ),
                cutoff=end_of(self.tools.today),
                newer=(),
                locked=tuple({**own, **self.pinned}.items()),
                lowest=True,
            )
            packages = self.tools.resolve(query)
            moved = [make_python_package(one.name, str(one.version)) for one in packages]
            moved = [one for one in moved if {**own, **self.pinned}.get(one.name) != one.version]
            tolerated = {name: known - wanted for name, known in self.known.items()}
            affected = [
                one
                for one in self._find_open(moved)
                if one.identifiers.isdisjoint(tolerated.get(one.package.name, frozenset()))
            ]
            if affected:
                continue
            if self.above:  # without what only the variants above the image need
                versions: dict[str, str] = {one.name: str(one.version) for one in packages}
                versions[ALIAS] = self.spec.tensorflow
                without_variants = replace(
                    query,
                    requirements=tuple(one for one in query.requirements if one not in self.above),
                    constraints=tuple(f"{name}=={version}" for name, version in versions.items()),
                )
                packages = self.tools.resolve(without_variants)
            return query, packages
        raise errors.LockError(
            f"every version that was tried is affected too, the last by {affected[0].identifier} of "
            f"{affected[0].package}",
            next_step="Accept the risk.",
        )


def _read_versions(*locks: Lock) -> dict[str, str]:
    return {package.name: package.version for lock in locks for package in read_packages(lock)}
