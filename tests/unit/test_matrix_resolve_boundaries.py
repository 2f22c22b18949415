"""Requests and refusals at their edges: exactly two releases, exactly five values, one option that clashes."""

from __future__ import annotations

from collections.abc import Sequence

from support.cases import cases
from support.cli_options import parse_request
from tfimg.matrix.refusal import format_values
from tfimg.matrix.resolve import resolve
from tfimg.matrix.schema import Matrix
from tfimg.matrix.spec import ImageSpec


@cases("matrix_resolve_boundaries", "a_choice_between_two_is_explained_and_a_single_candidate_is_not")
def test_a_choice_between_two_is_explained_and_a_single_candidate_is_not(
    options: str, choice: list[str], matrix: Matrix, specs: Sequence[ImageSpec]
) -> None:
    sentences = resolve(matrix, specs, parse_request(options)).explanation
    last_condition = max(number for number, text in enumerate(sentences) if " left; " in text)
    assert list(sentences[last_condition + 1 :]) == choice


@cases("matrix_resolve_boundaries", "five_neighbours_are_a_range_and_four_are_listed")
def test_five_neighbours_are_a_range_and_four_are_listed(values: list[str], among: list[str], text: str) -> None:
    assert format_values(values, among) == text
