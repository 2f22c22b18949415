"""Compare the releases of a matrix with those of a package index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import Version

from tfimg.core.errors import MatrixMismatch, UnknownTensorFlow
from tfimg.index.client import Index
from tfimg.matrix.resolve.request import make_version_matcher
from tfimg.matrix.schema import Matrix
from tfimg.matrix.sync.check import FactCheck, check_rows, find_missing_releases
from tfimg.matrix.sync.survey import IndexSurvey, OnProgress, survey_index


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFindings:
    """The facts of a row of the matrix that were compared; `tensorflow` are its releases, or one of its images."""

    row: int
    tensorflow: tuple[str, ...]
    findings: tuple[FactCheck, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseCheck:
    """The comparison of a matrix with an index; `missing` are releases that the matrix lacks."""

    survey: IndexSurvey
    rows: tuple[RowFindings, ...]
    missing: tuple[Version, ...]

    def raise_for_mismatch(self) -> None:
        """Raise `MatrixMismatch` if a fact disagrees or a release is missing."""
        facts = [fact for row in self.rows for fact in row.findings]
        raise_for_mismatch(
            facts, self.missing, other="the package index", next_step="Correct matrix.yaml at each path."
        )


def check_releases(matrix: Matrix, index: Index, names: Sequence[str], on_progress: OnProgress) -> ReleaseCheck:
    """Compare the rows of some releases with an index; without names, all.

    A row's releases share its facts, so that all of them are read. Raises `UsageError` for a name that is not a
    version, `UnknownTensorFlow` for a release that neither has, and the errors of the index.
    """
    matchers = {name: make_version_matcher(name, option="RELEASE") for name in names}

    def is_selected(version: Version) -> bool:
        return not matchers or any(matches(str(version)) for matches in matchers.values())

    releases = _releases_by_row(matrix)
    rows = {row for row, versions in releases.items() if any(map(is_selected, versions))}
    selected = {version for row in rows for version in releases[row]}
    survey = survey_index(matrix, index, is_selected=selected.__contains__, on_progress=on_progress)
    missing = tuple(version for version in find_missing_releases(matrix, survey) if is_selected(version))
    known = {*missing, *(version for versions in releases.values() for version in versions)}
    for name, matches in matchers.items():
        if not any(matches(str(version)) for version in known):
            raise UnknownTensorFlow(
                f"Neither the matrix nor the package index has a TensorFlow release {name}.",
                next_step="`tfimg matrix` shows those of the matrix.",
            )
    facts = list(check_rows(matrix, survey))
    found = tuple(
        RowFindings(
            row=row,
            tensorflow=tuple(release.version for release in matrix.rows[row].tensorflow),
            findings=tuple(fact for number, fact in facts if number == row),
        )
        for row in dict.fromkeys(number for number, _ in facts)
        if row in rows
    )
    return ReleaseCheck(survey=survey, rows=found, missing=missing)


def survey_missing(matrix: Matrix, index: Index, on_progress: OnProgress) -> tuple[IndexSurvey, tuple[Version, ...]]:
    """Read the wheels of the releases that an index has and the matrix lacks; return them, and these releases."""
    known = {version for versions in _releases_by_row(matrix).values() for version in versions}
    oldest = min(known)

    def is_selected(version: Version) -> bool:
        return version not in known and version > oldest

    survey = survey_index(matrix, index, is_selected=is_selected, on_progress=on_progress)
    return survey, find_missing_releases(matrix, survey)


def raise_for_mismatch(
    facts: Sequence[FactCheck], missing: Sequence[Version] = (), *, other: str, next_step: str
) -> None:
    """Raise `MatrixMismatch` for facts that disagree with `other`, and for releases that the matrix lacks."""
    text, steps = "", []
    if mismatches := [fact for fact in facts if fact.verdict == "disagrees"]:
        count = f"{len(mismatches)} fact{'' if len(mismatches) == 1 else 's'}"
        lines = "".join(f"  {fact.path}: {fact.message}\n" for fact in mismatches)
        text += f"The matrix and {other} disagree on {count}:\n{lines}"
        steps.append(next_step)
    if missing:
        lines = "".join(f"  rows: TensorFlow {version}\n" for version in missing)
        text += f"The matrix lacks what {other} has:\n{lines}"
        steps.append("`tfimg sync` adds releases.")
    if text:
        raise MatrixMismatch(text, next_step=" ".join(steps))


def count_unconfirmed(text: str) -> int:
    """Count the lines of matrix.yaml that `tfimg sync` marked and that are not confirmed yet."""
    return sum("# confirm:" in line for line in text.splitlines())


def _releases_by_row(matrix: Matrix) -> dict[int, list[Version]]:
    rows = enumerate(matrix.rows)
    return {number: [Version(release.version) for release in row.tensorflow] for number, row in rows}
