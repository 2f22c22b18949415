"""The error family: one exit code each, with a meaning."""

from __future__ import annotations

import re

import pytest

from support.paths import ROOT
from tfimg.core.errors import ExitCode, TfimgError, UsageError


def first_line(member: type[TfimgError]) -> str:
    return (member.__doc__ or "").strip().splitlines()[0]


def descendants(member: type[TfimgError]) -> set[type[TfimgError]]:
    return {member}.union(*(descendants(child) for child in member.__subclasses__()))


def error_classes() -> list[type[TfimgError]]:
    """Return the errors of the program; tests may define more."""
    return [member for member in descendants(TfimgError) if member.__module__ == "tfimg.core.errors"]


def test_every_exit_code_has_a_meaning_and_an_error() -> None:
    assert set(ExitCode) == {member.exit_code for member in error_classes()}


def test_a_code_is_one_that_a_shell_can_see_and_that_means_a_failure() -> None:
    assert all(0 < member.exit_code < 256 for member in error_classes())


def test_each_error_has_a_meaning() -> None:
    silent = [
        one for one in error_classes() if "__doc__" not in vars(one) or not re.fullmatch(r".+\.", first_line(one))
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("It is wrong", "It is wrong. Correct it."),
        ("It is wrong.", "It is wrong. Correct it."),
        ("Is it wrong?", "Is it wrong? Correct it."),
        ("It is wrong!", "It is wrong! Correct it."),
        ("What is wrong:", "What is wrong: Correct it."),
        ("What is wrong:\n  one\n", "What is wrong:\n  one\nCorrect it."),
    ],
)
def test_a_message_is_what_happened_and_then_what_to_do(what: str, message: str) -> None:
    error = UsageError(what, next_step="Correct it.")
    assert (str(error), error.next_step) == (message, "Correct it.")


def test_a_message_without_advice_does_not_end_in_a_blank() -> None:
    assert str(UsageError("It is wrong.", next_step="")) == "It is wrong."


def test_the_reference_on_github_lists_every_exit_code() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text()
    rows = re.findall(r"^\|\s*(\d+)\s*\|\s*(.+?)\s*\|$", page, re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == {code: code.meaning for code in ExitCode}
