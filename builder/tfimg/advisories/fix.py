"""Move affected packages of a lock to fixed versions, and explain what blocks a fix.

The packages that are not affected stay, TensorFlow and the accelerator's libraries always. uv resolves; the bounds of
the index's metadata say which other package has to move too, and what blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from packaging.pylock import Package
from packaging.version import Version

from tfimg.advisories.outcomes import LockFix, Move, Outcome, format_reason, quote_uv
from tfimg.advisories.search import FixTools, Plan, Search
from tfimg.core.cancellation import raise_if_cancelled
from tfimg.core.errors import LockError
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lockfile import Lock


@dataclass(frozen=True, kw_only=True)
class LockFixer(FixTools):
    """Fixes the locks of images."""

    def fix(
        self, spec: ImageSpec, lock: Lock, *, below: Lock | None = None, above: Sequence[tuple[ImageSpec, Lock]] = ()
    ) -> LockFix:
        """Return the fixes of an image's lock.

        `below` is the lock that a flavour's stands on. `above` are the flavours of an image with the part of their
        locks that lies above it: what they need stays possible. Raises `NetworkError`.
        """
        run = _ImageFix(Search(tools=self, spec=spec, lock=dict(lock), below=below or {}, above=above))
        state = run.apply(sorted(run.plans), dict(lock))
        changed = {part: text for part, text in state.items() if lock[part] != text}
        outcomes = sorted(
            (*run.outcomes.values(), *run.left.values()), key=lambda outcome: (outcome.package, outcome.blocked)
        )
        return LockFix(spec=spec, outcomes=tuple(outcomes), changed=changed)


class _ImageFix:
    """The fixes of one image: which packages move for each, by the index's metadata; then all at once, by uv."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.outcomes: dict[str, Outcome] = {}
        self.left: dict[str, Outcome] = {}
        self.plans: dict[str, Sequence[str]] = {}
        self.next_plans: dict[str, Iterator[Plan]] = {}
        for name, package in sorted(search.own.items()):
            if search.find_open(package):
                self.next_plans[name] = search.plans(name)
                self._take_next(name, "")

    def _take_next(self, name: str, reason: str) -> None:
        """Take the next plan of a package. `reason` says why the one before it is impossible."""
        plan = next(self.next_plans[name])
        outcome = Outcome(package=name, version=self.search.own[name].version, findings=plan.fixed)
        if plan.left:
            first = self.left[name].blocked if name in self.left else plan.blocked or reason
            self.left[name] = replace(outcome, findings=plan.left, blocked=first)
        if plan.moved:
            self.outcomes[name], self.plans[name] = outcome, plan.moved
        else:
            self.outcomes.pop(name, None)

    def apply(self, names: Sequence[str], lock: Lock) -> Lock:
        """Return a lock with the fixes of packages; where one turns out to be impossible, its next plan is tried.

        Where uv finds no solution for all and does not say which package is to blame, halves of them are tried.
        """
        while names:
            raise_if_cancelled()
            search = self.search.on(lock)
            moved = sorted({other for name in names for other in self.plans[name]})
            try:
                packages = search.resolve(moved)
            except LockError as error:
                reason = quote_uv(error)
                culprit = next((name for name in names if re.match(rf"{re.escape(name)}[<>=]", reason)), "")
            else:
                changed = search.list_changed(packages)
                affected = search.find_affected(changed)
                if not affected:
                    return self._write(search, names, packages)
                reason = f"every fixed version needs {affected}, which is affected"
                versions: dict[str, Version] = {package.name: Version(str(package.version)) for package in changed}
                needs = (name for name in names if affected.name in search.list_needed(name, versions))
                culprit = next(needs, "")
                if culprit and search.refuse_lowest(moved, culprit):
                    continue
            if len(names) == 1:
                culprit = names[0]
            if not culprit:
                middle = len(names) // 2
                return self.apply(names[middle:], self.apply(names[:middle], lock))
            self._take_next(culprit, reason)
            names = [name for name in names if name in self.outcomes]
        return lock

    def _write(self, search: Search, names: Sequence[str], packages: Sequence[Package]) -> Lock:
        """Return the lock with packages that are resolved, and keep what moves with each of the affected ones."""
        moves = self._attribute(names, search.list_changed(packages))
        for name in names:
            self.outcomes[name] = replace(self.outcomes[name], moves=moves[name] or self._moved_before(name, search))
        return search.write(packages, [move for group in moves.values() for move in group])

    def _moved_before(self, name: str, search: Search) -> tuple[Move, ...]:
        """Return the move of a package that went with another one to a version without defects."""
        before, after = self.search.own[name].version, search.own[name].version
        return (Move(name=name, before=before, after=after, reason=format_reason(self.outcomes[name].findings)),)

    def _attribute(self, names: Sequence[str], changed: Sequence[Package]) -> dict[str, tuple[Move, ...]]:
        """Return what moves with each of the affected packages."""
        moves: dict[str, tuple[Move, ...]] = dict.fromkeys(names, ())
        versions: dict[str, Version] = {package.name: Version(str(package.version)) for package in changed}
        for package in changed:
            owner: str = package.name
            if owner not in moves:
                needs = (name for name in names if package.name in self.search.list_needed(name, versions))
                planned = (name for name in names if package.name in self.plans[name])
                owner = next(iter((*planned, *needs, *names)))
            locked = self.search.own.get(package.name)
            reason = format_reason(self.outcomes[owner].findings) if owner == package.name else f"goes with {owner}"
            move = Move(
                name=package.name, before=locked.version if locked else None, after=str(package.version), reason=reason
            )
            moves[owner] = (move, *moves[owner]) if owner == package.name else (*moves[owner], move)
        return moves
