"""Requests and refusals at their edges: exactly two releases, exactly five values, one option that clashes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.cli_options import asked
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec
from tfimg.resolution.refuse import listed
from tfimg.resolution.resolve import resolve


@pytest.mark.parametrize(
    ("options", "choice"),
    [
        ("--tf '>=2.15.1,<2.16.2' --python 3.11", ["TensorFlow 2.16.1 is the newest of 2.15.1, 2.16.1."]),
        ("--tf 2.15.1 --python '>=3.10'", ["Python 3.11 is the row's default among 3.10, 3.11."]),
        ("--tf 2.15.1 --python '<3.11'", ["Python 3.10 is the newest of 3.9, 3.10."]),
        ("--tf 2.15.1 --python 3.9", ["It is the only one."]),
    ],
)
def test_a_choice_between_two_is_explained_and_one_between_one_is_none(
    options: str, choice: list[str], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    sentences = resolve(matrix, specs, asked(options)).explanation
    last_condition = max(number for number, text in enumerate(sentences) if " left; " in text)
    assert list(sentences[last_condition + 1 :]) == choice


@pytest.mark.parametrize(
    ("values", "among", "text"),
    [
        (["1.1", "1.2", "1.3", "1.4"], [], "1.1, 1.2, 1.3, 1.4"),
        (["1.1", "1.2", "1.3", "1.4", "1.5"], [], "1.1 to 1.5"),
        (["1.9", "1.10", "1.11", "1.12", "1.8"], [], "1.8 to 1.12"),
        (["1.1", "1.2", "1.3", "1.4", "1.5"], ["1.3.5"], "1.1, 1.2, 1.3, 1.4, 1.5"),
        (["a b", "c"], [], "a b; c"),
        ([], [], ""),
    ],
)
def test_five_neighbours_are_told_by_their_ends_and_four_one_by_one(
    values: list[str], among: list[str], text: str
) -> None:
    assert listed(values, among) == text
