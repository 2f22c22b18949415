"""Bad matrices, each a file named after what is wrong with it, and everything that is said about them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tfimg.errors import MatrixError
from tfimg.matrix.load import parse_matrix, path

FOLDER = Path(__file__).parents[1] / "data" / "matrix"
TODAY = date(2024, 6, 1)

PROBLEMS = {
    "bad-date": [
        "newer.as_of: input should be a valid date or datetime, month value is outside expected range of 1-12",
        "rows[0].tensorflow[0].released: input should be a valid date or datetime, day value is outside expected "
        "range",
        "rows[0].tensorflow[0].cutoff: input should be a valid date or datetime, invalid character in year",
        "rows[0].gpu.cuda: 12.2 is a number to YAML; write the version in quotes",
    ],
    "bad-range": ["rows[0].gpu.cudnn: '8.9 to 9' is not a version range such as '>=9.3,<10'"],
    "bad-requirement": [
        "rows[0].constraints[0].requirement: 'setuptools below 82' is not a requirement such as 'setuptools<82'"
    ],
    "bad-version": ["rows[0].gpu.driver: '525.60.13 or newer' is not a version (PEP 440)"],
    "cutoff-before-release": [
        "rows[0].tensorflow[1].cutoff: 2024-03-07 is before the release itself (2024-03-08)"
    ],
    "default-python-not-offered": ["rows[0].default_python: 3.10 is not among the row's pythons"],
    "duplicate-key": [
        'line 3, column 1: found duplicate key "repository" with value "example/other" '
        '(original value: "example/tensorflow")'
    ],
    "empty": ["the document: input should be a valid dictionary or instance of Matrix"],
    "empty-rows": ["rows: tuple should have at least 1 item after validation, not 0"],
    "missing-rows": ["rows: field required"],
    "newer-format": ["version: input should be 1"],
    "not-a-mapping": ["the document: input should be a valid dictionary or instance of Matrix"],
    "python-twice": ["rows[0].pythons[2]: 3.9 stands there twice"],
    "python-without-base": ["rows[0].pythons[0]: 3.9 has no entry under bases"],
    "reason-missing": ["rows[0].constraints[0].reason: field required"],
    "release-in-the-future": [
        "rows[0].tensorflow[1].released: 2025-03-08 is in the future",
        "newer.as_of: 2025-05-01 is in the future",
    ],
    "release-in-two-rows": ["rows[1].tensorflow[0].version: 2.15.0 already stands at rows[0].tensorflow[0]"],
    "release-without-wheels": ["rows[0].pythons: tuple should have at least 1 item after validation, not 0"],
    "several-contradictions": [
        "rows[1].tensorflow[1].version: 2.15.1 already stands at rows[0].tensorflow[0]",
        "rows[0].tensorflow[0].released: 2025-03-08 is in the future",
        "rows[0].tensorflow[0].cutoff: 2024-03-22 is before the release itself (2025-03-08)",
        "rows[0].default_python: 3.11 is not among the row's pythons",
        "rows[0].pythons[0]: 3.12 has no entry under bases",
    ],
    "several-shape-problems": [
        "repository: 'Example Org' is not the name of a repository",
        "installer: 'newest' is not a version (PEP 440)",
        "rows[0].tensorflow[0].cutoff: field required",
        "rows[0].tensorflow[0].cut_off: extra inputs are not permitted",
        "rows[0].gpu.cuda: 12.2 is a number to YAML; write the version in quotes",
        "rows[0].gpu.cudnn: '~8' is not a version range such as '>=9.3,<10'",
    ],
    "tab-for-indentation": ["line 6, column 1: found character '\\t' that cannot start any token"],
    "unclosed-bracket": ["line 19, column 5: expected ',' or ']', but got '<scalar>'"],
    "unknown-key": [
        "bases.3.9.distro: extra inputs are not permitted",
        "rows[0].default_python: field required",
        "rows[0].defualt_python: extra inputs are not permitted",
    ],
    "unquoted-key": ["bases.3.9.[key]: 3.9 is a number to YAML; write the version in quotes"],
    "unquoted-version": [
        "installer: 1 is a number to YAML; write the version in quotes",
        "rows[0].pythons[1]: 3.1 is a number to YAML; write the version in quotes",
        "rows[0].gpu.cuda: 12.1 is a number to YAML; write the version in quotes",
    ],
}


def problems(name: str, *, today: date = TODAY) -> list[str]:
    text = (FOLDER / f"{name}.yaml").read_text()
    with pytest.raises(MatrixError) as caught:
        parse_matrix(text, source=f"{name}.yaml", today=today)
    return list(caught.value.problems)


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_is_told_by_its_path_and_all_at_once(name: str) -> None:
    assert problems(name) == PROBLEMS[name]


def test_every_file_beside_the_good_one_is_bad() -> None:
    assert {file.stem for file in FOLDER.glob("*.yaml")} == {"base", *PROBLEMS}


def test_the_message_names_the_file_lists_the_problems_and_says_what_to_do() -> None:
    error = MatrixError(["rows: field required", "version: input should be 1"], source="matrix.yaml")
    head, first, second, advice = str(error).splitlines()
    assert head == "matrix.yaml has 2 problems:"
    assert [first, second] == ["  rows: field required", "  version: input should be 1"]
    assert advice == "Correct each path named above."


def test_one_problem_is_not_told_in_the_plural() -> None:
    assert str(MatrixError(["rows: field required"], source="m.yaml")).startswith("m.yaml has 1 problem:\n")


def test_the_good_matrix_is_understood() -> None:
    matrix = parse_matrix((FOLDER / "base.yaml").read_text(), source="base.yaml", today=TODAY)
    row = matrix.rows[0]
    assert [release.version for release in row.tensorflow] == ["2.15.0", "2.15.1"]
    assert [release.libtpu for release in row.tensorflow] == [None, "0.1"]
    assert row.gpu is not None
    assert row.gpu.cudnn == ">=8.9.4,<9"
    assert matrix.newer.packages == {"certifi": "pure data"}


def test_a_release_of_today_is_not_in_the_future() -> None:
    text = (FOLDER / "release-in-the-future.yaml").read_text()
    assert parse_matrix(text, source="base.yaml", today=date(2025, 5, 1)).newer.as_of == date(2025, 5, 1)
    assert problems("release-in-the-future", today=date(2025, 4, 30)) == [
        "newer.as_of: 2025-05-01 is in the future"
    ]


def test_a_matrix_never_changes() -> None:
    matrix = parse_matrix((FOLDER / "base.yaml").read_text(), source="base.yaml", today=TODAY)
    with pytest.raises(ValueError, match="frozen"):
        matrix.repository = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (("rows", 2, "gpu", "cuda"), "rows[2].gpu.cuda"),
        (("version",), "version"),
        ((0, "a"), "[0].a"),
        ((), ""),
    ],
)
def test_a_path_reads_like_an_expression(steps: tuple[int | str, ...], text: str) -> None:
    assert path(steps) == text
