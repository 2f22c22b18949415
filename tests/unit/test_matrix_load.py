"""Bad matrices, each named after what is wrong with it, and everything that is said about them."""

from __future__ import annotations

from datetime import date

import pytest

from support.matrix_edits import FOLDER, GOOD, MatrixEdit, read_edits
from tfimg.core.errors import MatrixError
from tfimg.matrix.load import format_path, parse_matrix

TODAY = date(2024, 6, 1)
BAD = list(read_edits("problems.txt"))


def problems(text: str, *, today: date = TODAY) -> list[str]:
    with pytest.raises(MatrixError) as caught:
        parse_matrix(text, source="matrix.yaml", today=today)
    return list(caught.value.problems)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_every_problem_is_reported_by_its_path_and_all_at_once(bad: MatrixEdit) -> None:
    assert problems(bad.text()) == bad.told


def test_every_other_file_of_the_folder_is_invalid() -> None:
    files = {file.stem for file in FOLDER.glob("*.yaml")}
    assert files == {"base", *(bad.name for bad in BAD if not bad.edits)}


def test_a_text_that_would_take_too_long_to_parse_is_refused() -> None:
    assert problems(f"{GOOD}#{'x' * (1 << 17)}") == [
        f"the text: it has {len(GOOD) + 1 + (1 << 17)} characters, and at most 131072 are read"
    ]


def test_a_text_of_too_many_values_is_refused() -> None:
    with pytest.raises(MatrixError, match=r"line 1, column \d+: more than 10000 values"):
        parse_matrix(f"[{'0,' * 10_001}]", source="matrix.yaml", today=date(2026, 1, 1))


def test_the_message_names_the_file_lists_the_problems_and_says_what_to_do() -> None:
    error = MatrixError(["rows: field required", "version: input should be 1"], source="matrix.yaml")
    head, first, second, advice = str(error).splitlines()
    assert head == "matrix.yaml has 2 problems:"
    assert [first, second] == ["  rows: field required", "  version: input should be 1"]
    assert advice == "Correct each path named above."
    assert str(MatrixError(["rows: field required"], source="m.yaml")).startswith("m.yaml has 1 problem:\n")


def test_facts_may_be_of_today_and_not_of_tomorrow() -> None:
    """Of releases, see test_matrix_rules.py."""
    assert parse_matrix(GOOD, source="base.yaml", today=date(2024, 5, 1)).newer.as_of == date(2024, 5, 1)
    assert problems(GOOD, today=date(2024, 4, 30)) == ["newer.as_of: 2024-05-01 is in the future"]


def test_a_matrix_never_changes() -> None:
    matrix = parse_matrix(GOOD, source="base.yaml", today=TODAY)
    with pytest.raises(ValueError, match="frozen"):
        matrix.repository = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (("rows", 2, "gpu", "cuda"), "rows[2].gpu.cuda"),
        (("version",), "version"),
        ((0, "a"), "[0].a"),
        ((), ""),
        (("wheels", "linux/amd64", "pythons", 1), "wheels.linux/amd64.pythons[1]"),
        (("bases", "3.9\x1b[2J", "image"), "bases.'3.9\\x1b[2J'.image"),
        (("newer", "a: b"), "newer.'a: b'"),
    ],
)
def test_a_path_reads_like_an_expression(steps: tuple[int | str, ...], text: str) -> None:
    assert format_path(steps) == text
