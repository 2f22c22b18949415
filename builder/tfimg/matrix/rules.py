"""Rules between the parts of a matrix, each a plain function in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date

from packaging.version import Version

from tfimg.matrix.schema import Matrix, Release

Rule = Callable[[Matrix, date], Iterator[str]]


def _releases(matrix: Matrix) -> Iterator[tuple[str, Release]]:
    for i, row in enumerate(matrix.rows):
        for j, release in enumerate(row.tensorflow):
            yield f"rows[{i}].tensorflow[{j}]", release


def releases_stand_once(matrix: Matrix, _: date) -> Iterator[str]:
    """A release in two rows would have two sets of facts."""
    seen: dict[Version, str] = {}
    for where, release in _releases(matrix):
        version = Version(release.version)
        if version in seen:
            yield f"{where}.version: {release.version} already stands at {seen[version]}"
        seen.setdefault(version, where)


def dates_are_in_order(matrix: Matrix, today: date) -> Iterator[str]:
    """A lock cannot see a release that its cut-off hides, nor one from the future."""
    for where, release in _releases(matrix):
        if release.released > today:
            yield f"{where}.released: {release.released} is in the future"
        if release.cutoff < release.released:
            yield f"{where}.cutoff: {release.cutoff} is before the release itself ({release.released})"
    if matrix.newer.as_of > today:
        yield f"newer.as_of: {matrix.newer.as_of} is in the future"


def pythons_fit(matrix: Matrix, _: date) -> Iterator[str]:
    """The default is one of the row's, each stands once and has a base."""
    for i, row in enumerate(matrix.rows):
        if row.default_python not in row.pythons:
            yield f"rows[{i}].default_python: {row.default_python} is not among the row's pythons"
        for j, python in enumerate(row.pythons):
            if python in row.pythons[:j]:
                yield f"rows[{i}].pythons[{j}]: {python} stands there twice"
            if python not in matrix.bases:
                yield f"rows[{i}].pythons[{j}]: {python} has no entry under bases"


RULES: tuple[Rule, ...] = (releases_stand_once, dates_are_in_order, pythons_fit)
