"""Outcomes of fixes: the packages that move, or what blocks them, and the text of the lock after it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tfimg.advisories.bounds import Bound
from tfimg.advisories.match import Finding
from tfimg.core.errors import LockError
from tfimg.core.text import escape_unprintable, truncate
from tfimg.matrix.spec import ImageSpec
from tfimg.recipe.lockfile import HEADER, Lock

MAX_LISTED = 4
"""Bounds that an explanation names."""

MAX_NAMES = 110
"""Characters of identifiers in a line of a lock."""

_PYTHON = re.compile(r"([a-z0-9][a-z0-9.-]*[<>=!~]=?[^\s,]*) (?:depends on|requires) (Python ?[<>=!~][^\s,]*)")
_WITHOUT_WHEEL = re.compile(r"([a-z0-9][a-z0-9.-]*[<>=!~][^\s,]*) ha(?:s|ve) no (?:usable )?wheels")


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A package and the version that it moves to; `before` is None for one that the lock lacked."""

    name: str
    before: str | None
    after: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """An affected package of an image: `moves` fix its findings, or `blocked` says why none does."""

    package: str
    version: str
    findings: tuple[Finding, ...]
    moves: tuple[Move, ...] = ()
    blocked: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockFix:
    """The outcomes of an image's lock, and the text of its parts that change."""

    spec: ImageSpec
    outcomes: tuple[Outcome, ...]
    changed: Lock


@dataclass(frozen=True, kw_only=True, slots=True)
class FixSummary:
    """The same outcome in several images."""

    outcome: Outcome
    images: tuple[str, ...]

    @property
    def package(self) -> str:
        """Name and version before the fix."""
        return f"{self.outcome.package} {self.outcome.version}"

    @property
    def advisories(self) -> str:
        """The identifiers of the package's defects."""
        return " ".join(finding.identifier for finding in self.outcome.findings)

    @property
    def blocked(self) -> bool:
        """Whether the package stays vulnerable."""
        return not self.outcome.moves

    @property
    def result(self) -> str:
        """The versions that packages move to, or what blocks the fix."""
        if self.blocked:
            return f"blocked: {self.outcome.blocked}"
        return ", ".join(f"{move.name} {move.before or '(new)'} → {move.after}" for move in self.outcome.moves)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "package": self.outcome.package,
            "version": self.outcome.version,
            "advisories": [finding.identifier for finding in self.outcome.findings],
            "moves": [asdict(move) for move in self.outcome.moves],
            "blocked": self.outcome.blocked or None,
            "images": list(self.images),
        }


def summarize(fixes: Sequence[LockFix]) -> tuple[FixSummary, ...]:
    """Return the outcomes of all images, equal ones together."""
    images: dict[Outcome, list[str]] = {}
    for fix in fixes:
        for outcome in fix.outcomes:
            images.setdefault(outcome, []).append(fix.spec.identifier)
    return tuple(FixSummary(outcome=outcome, images=tuple(names)) for outcome, names in images.items())


def replace_lines(text: str, needed: Collection[str], lines: Mapping[str, str]) -> str:
    """Return a part of a lock with new lines, and without the packages that nothing needs any more."""
    old = {line.partition("==")[0]: line for line in text.splitlines(keepends=True) if not line.startswith("#")}
    if not lines and set(needed).issuperset(old):
        return text
    kept = {name: line for name, line in old.items() if name in needed}
    return HEADER + "".join(line for _, line in sorted({**kept, **lines}.items()))


def format_reason(findings: Sequence[Finding]) -> str:
    """Return the comment of a lock line that fixes defects: as many of them as a line has room for."""
    names: list[str] = []
    for finding in findings:
        if len(", ".join([*names, finding.identifier])) <= MAX_NAMES:
            names.append(finding.identifier)
    return f"fixes {', '.join(names)}"


def explain(bounds: Sequence[Bound]) -> str:
    """Return what bounds require, as a reason."""
    more = f", and {len(bounds) - MAX_LISTED} more bounds" if len(bounds) > MAX_LISTED else ""
    return f"{', '.join(map(str, bounds[:MAX_LISTED]))}{more}"


def quote_uv(error: LockError) -> str:
    """Return what uv says: the Python or the wheel that a version lacks, else its last words."""
    text = " ".join(error.what.split())
    if found := _PYTHON.search(text):
        return f"{found[1]} requires {found[2]}"
    if found := _WITHOUT_WHEEL.search(text):
        return f"{found[1]} has no wheel for the image"
    return escape_unprintable(truncate(re.sub(r"^.*?cause: ", "", text)))
