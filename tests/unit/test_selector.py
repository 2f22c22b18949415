"""The committed answers of the selector are those of the resolver and the matrix of this checkout."""

import random

from generator.answers import FILE, is_stale
from generator.selector import read_data
from support.selector import draw_choices, look_up, resolve_choice


def test_the_answers_are_those_of_this_matrix_and_resolver_and_are_small() -> None:
    assert not is_stale(), "`.venv/bin/python docs/generator/pages.py` makes them again, in minutes."
    assert FILE.stat().st_size < 300_000


def test_a_sample_of_the_answers_is_what_the_resolver_says() -> None:
    data = read_data()
    choices = draw_choices(data, 30, random.Random(53))  # noqa: S311
    found = [(choice, look_up(data, choice), resolve_choice(choice)) for choice in choices]
    assert [one for one in found if one[1] != one[2]] == []
    assert {len(expected) for _, _, expected in found} == {2, 3}
