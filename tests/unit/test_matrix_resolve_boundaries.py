"""Requests and refusals at their edges: exactly two releases, exactly five values, one option that clashes."""

from __future__ import annotations

from collections.abc import Sequence

from support.cases import cases
from support.cli_options import asked
from tfimg.matrix.resolve.refusal import format_values
from tfimg.matrix.resolve.resolution import resolve
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec


@cases("matrix_resolve_boundaries", "a_choice_between_two_is_explained_and_one_between_one_is_none")
def test_a_choice_between_two_is_explained_and_one_between_one_is_none(
    options: str, choice: list[str], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    sentences = resolve(matrix, specs, asked(options)).explanation
    last_condition = max(number for number, text in enumerate(sentences) if " left; " in text)
    assert list(sentences[last_condition + 1 :]) == choice


@cases("matrix_resolve_boundaries", "five_neighbours_are_told_by_their_ends_and_four_one_by_one")
def test_five_neighbours_are_told_by_their_ends_and_four_one_by_one(
    values: list[str], among: list[str], text: str
) -> None:
    assert format_values(values, among) == text
