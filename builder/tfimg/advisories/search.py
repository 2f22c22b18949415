"""Search the versions that fix a package of an image: by the bounds in the index's metadata, then with uv."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from packaging.pylock import Package
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfimg.advisories.audit import find_risk
from tfimg.advisories.bounds import Bound, Bounds, MetadataReader
from tfimg.advisories.match import AdvisoryIndex, Finding
from tfimg.advisories.outcomes import Move, explain, replace_lines
from tfimg.advisories.packages import AuditedPackage, read_lock_packages
from tfimg.advisories.versions import PYPI
from tfimg.matrix.risks import AcceptedRisk
from tfimg.matrix.schema import PROCESSORS, Newer
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.facts import ALIAS
from tfimg.recipe.lock import LockQuery, end_of, format_line, list_tags, make_query
from tfimg.recipe.lockfile import Lock, LockedPackage, read_packages

MOVABLE_PARTS = ("packages", "flavor")
"""Parts of a lock whose packages may move. The bytes of all others never change."""

KEPT = {
    "tensorflow": "its layer stays: the fix is another release of TensorFlow",
    "libtpu": "its layer stays: TensorFlow is built for this libtpu",
}
KEPT_LIBRARY = "its layer stays: matrix.yaml pins the libraries of the CUDA toolkit"
"""Why the packages of other parts stay."""

MAX_MOVED = 4
"""Packages that one fix moves: the affected one, and those that have to go with it."""

Resolve = Callable[[LockQuery], Sequence[Package]]
Lookup = Callable[[Sequence[AuditedPackage]], AdvisoryIndex]


@dataclass(frozen=True, kw_only=True)
class FixTools:
    """What a search needs. `resolve` runs uv, `lookup` reads the advisories about packages that come new."""

    newer: Newer
    index: AdvisoryIndex
    risks: Sequence[AcceptedRisk]
    reader: MetadataReader
    resolve: Resolve
    lookup: Lookup
    today: date


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The packages that move to fix some defects of one of them; `left` stay open, which `blocked` explains."""

    moved: Sequence[str] = ()
    fixed: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    blocked: str = ""


class Search:
    """The search for the fix of one package in a lock."""

    def __init__(
        self, *, tools: FixTools, spec: ImageSpec, lock: Lock, below: Lock, above: Sequence[tuple[ImageSpec, Lock]]
    ) -> None:
        self.tools, self.spec, self.lock, self.above = tools, spec, lock, above
        self.below = below
        self.tags = frozenset(list_tags(spec.python, PROCESSORS[spec.platform]))
        self.base = {package.name: package.version for package in read_packages(below)}
        self.part_of = {package.name: part for part in lock for package in read_packages({part: lock[part]})}
        self.own = {package.name: package for package in read_packages(lock)}
        others = {
            package.name: package for part in (below, *(part for _, part in above)) for package in read_packages(part)
        }
        self.bounds = Bounds(spec=spec, locked={**others, **self.own}, reader=tools.reader)
        self.refused: dict[str, set[Version]] = {}
        self.needed: dict[str, SpecifierSet] = {}
        self.left_open: dict[str, frozenset[str]] = {}
        self._query = make_query(spec, tools.newer)

    def find_open(self, package: LockedPackage, index: AdvisoryIndex | None = None) -> tuple[Finding, ...]:
        """Return the defects of a package that no risk of the matrix covers, and that its plan does not leave open."""
        (audited,) = read_lock_packages([package])
        found, _ = (index or self.tools.index).find(audited)
        left_open = self.left_open.get(package.name, frozenset())
        return tuple(
            one
            for one in found
            if one.identifiers.isdisjoint(left_open) and not find_risk(one, self.spec.identifier, self.tools.risks)
        )

    def on(self, lock: Lock) -> Search:
        """Return the same search on a lock after other fixes."""
        search = Search(tools=self.tools, spec=self.spec, lock=lock, below=self.below, above=self.above)
        search.refused, search.needed, search.left_open = self.refused, self.needed, self.left_open
        return search

    def plans(self, name: str) -> Iterator[Plan]:
        """Yield what has to move to fix all defects of a package, then to fix fewer, then the plan that moves nothing.

        `resolve` follows the plan that was yielded last.
        """
        findings = self.find_open(self.own[name])
        moved, blocked = self._plan_all(name)
        if not blocked:
            yield Plan(moved=moved, fixed=findings)
        for left in self._list_left(name, findings):
            # By all names: another version may lack the record that gives the defect its main one.
            self.left_open[name] = frozenset().union(*(one.identifiers for one in left))
            moved, still = self._plan_all(name)
            if not still:
                yield Plan(moved=moved, fixed=self.find_open(self.own[name]), left=left, blocked=blocked)
        self.left_open.pop(name, None)
        yield Plan(left=findings, blocked=blocked)

    def _list_left(self, name: str, findings: Sequence[Finding]) -> Iterator[tuple[Finding, ...]]:
        """Yield the defects of later releases that have fewer than now, the fewest first: one may come new."""
        if self.part_of[name] not in MOVABLE_PARTS:
            return
        later = (replace(self.own[name], version=str(version)) for version in self.later_versions(name))
        found = {frozenset(one.identifier for one in defects): defects for defects in map(self.find_open, later)}
        yield from sorted((defects for defects in found.values() if 0 < len(defects) < len(findings)), key=len)

    def _plan_all(self, name: str) -> tuple[list[str], str]:
        """Return the packages that have to move so that a package has no defect, or why that is impossible."""
        package = self.own[name]
        if (part := self.part_of[name]) not in MOVABLE_PARTS:
            return [], KEPT.get(part, KEPT_LIBRARY)
        if not (later := self.later_versions(name)):
            return [], f"the package index has no release after {package.version} for the image"
        if not self._list_safe(name):
            listed = f"{later[0]} to {later[-1]}" if later[1:] else str(later[0])
            return [], f"every later release ({listed}) is affected too"
        moved, before = [name], dict(self.needed)
        while bounds := self._find_blocking(moved):
            more = self._list_movable(bounds, moved)
            if not more or len(moved) + len(more) > MAX_MOVED:
                self.needed = before
                return [], explain(bounds)
            moved += more
        return moved, ""

    def later_versions(self, name: str) -> tuple[Version, ...]:
        """Return the later releases of a package that have a wheel for the image."""
        return self.tools.reader.later_versions(name, self.own[name].version, self.tags, self.spec.python)

    def _list_safe(self, name: str) -> list[Version]:
        """Return the later versions of a package without open defects, the lowest first."""
        package = self.own[name]
        later = self.later_versions(name)
        refused = self.refused.get(name, set())
        return [
            version
            for version in later
            if version not in refused and not self.find_open(replace(package, version=str(version)))
        ]

    def _find_blocking(self, moved: Sequence[str]) -> tuple[Bound, ...]:
        """Return the bounds that leave no version to a package that moves, or that its lowest version does not meet."""
        for name in moved:
            safe = self._candidates(name)
            if bounds := self.bounds.find_excluding(name, safe, moved):
                return bounds
            allowed = self.bounds.list_allowed(name, safe, moved)
            unmet = [self.bounds.find_unmet(name, version, moved) for version in allowed]
            if unmet and all(unmet):
                return unmet[0]
        return ()

    def _candidates(self, name: str) -> list[Version]:
        """Return the versions that a package may move to; one without defects may also stay if nothing moves it."""
        package = self.own[name]
        stays = [] if name in self.needed or self.find_open(package) else [Version(package.version)]
        needed = self.needed.get(name, SpecifierSet())
        return [one for one in (*stays, *self._list_safe(name)) if needed.contains(one, prereleases=True)]

    def _list_movable(self, bounds: Sequence[Bound], moved: Sequence[str]) -> list[str]:
        """Return the packages that could move so that bounds no longer exclude every version.

        An owner of a bound needs any other version, a package that a new version requires one that meets it.
        """
        found = []
        for bound in bounds:
            owner = bound.owner.partition(" ")[0]
            name, specifier = (bound.needs, Requirement(bound.requirement).specifier) if owner in moved else (owner, "")
            if name in moved or name not in self.own or self.part_of[name] not in MOVABLE_PARTS:
                continue
            self.needed[name] = self.needed.get(name, SpecifierSet()) & SpecifierSet(str(specifier))
            if any(name != owner or self._permits(owner, version, bound.needs) for version in self._candidates(name)):
                found.append(name)
        return sorted(set(found))

    def _permits(self, owner: str, version: Version, name: str) -> bool:
        """Return whether a version of a package permits a version without defects of another one."""
        needed = self.bounds.find_requirement(owner, version, name)
        return any(needed.contains(one, prereleases=True) for one in self._candidates(name))

    def resolve(self, moved: Sequence[str]) -> Sequence[Package]:
        """Return the packages with some free to move, by uv. Raises `LockError`."""
        fixed = {**self.base, **{name: package.version for name, package in self.own.items() if name not in moved}}
        query = make_query(self.spec, self.tools.newer)
        flavors = tuple(text for _, flavor in self.spec.flavors for text in flavor.requirements)
        self._query = replace(
            query,
            requirements=(*query.requirements, *flavors, *(self._describe_free(name, moved) for name in moved)),
            constraints=tuple(f"{name}=={version}" for name, version in {ALIAS: self.spec.tensorflow, **fixed}.items()),
            cutoff=end_of(self.tools.today),
            newer=(),
            lowest=True,
        )
        return self.tools.resolve(self._query)

    def _describe_free(self, name: str, moved: Sequence[str]) -> str:
        """Return the requirement of a package that may move: the versions without defects that all bounds allow."""
        version = self.own[name].version
        allowed = self.bounds.list_allowed(name, self._candidates(name), moved)
        others = (one for one in self.later_versions(name) if one not in allowed)
        limits = [f">={allowed[0]}", f"<={allowed[-1]}"] if allowed else [f">{version}"]
        return name + ",".join([*limits, *(f"!={one}" for one in others if not allowed or one < allowed[-1])])

    def find_affected(self, changed: Sequence[Package]) -> AuditedPackage | None:
        """Return a package that comes new and has a defect; None if there is none."""
        audited = [
            AuditedPackage(ecosystem=PYPI, name=one.name, version=str(one.version), installed=one.name)
            for one in changed
            if one.name not in self.own
        ]
        index = self.tools.lookup(audited) if audited else None
        return next((one for one in audited if index and index.find(one)[0]), None)

    def refuse_lowest(self, moved: Sequence[str], name: str) -> bool:
        """Refuse the version that a package would move to; return whether it has others."""
        allowed = self.bounds.list_allowed(name, self._candidates(name), moved)
        self.refused.setdefault(name, set()).update(allowed[:1])
        return len(allowed) > 1

    def list_needed(self, name: str, versions: Mapping[str, Version]) -> frozenset[str]:
        """Return the names of what the new version of a package requires."""
        found = self.tools.reader.requirements(name, versions[name]) if name in versions else ()
        return frozenset(canonicalize_name(requirement.name) for requirement in found)

    def list_changed(self, packages: Sequence[Package]) -> list[Package]:
        """Return the packages that are new in the lock or have another version."""
        before = {ALIAS: self.spec.tensorflow, **self.base, **{one.name: one.version for one in self.own.values()}}
        return [package for package in packages if before.get(package.name) != str(package.version)]

    def write(self, packages: Sequence[Package], moves: Sequence[Move]) -> Lock:
        """Return the lock with the lines of packages that move; all other lines stay as they are."""
        reasons = {move.name: move.reason for move in moves}
        needed = {package.name for package in packages}
        default = next(part for part in self.lock if part in MOVABLE_PARTS)
        lines = {
            package.name: format_line(package, self._query, reasons[package.name])
            for package in packages
            if package.name in reasons
        }
        return {
            part: text
            if part not in MOVABLE_PARTS
            else replace_lines(
                text, needed, {name: line for name, line in lines.items() if self.part_of.get(name, default) == part}
            )
            for part, text in self.lock.items()
        }
