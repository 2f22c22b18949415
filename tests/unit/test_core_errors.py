"""The error family: one exit code each, with a meaning."""

import re

import pytest

from tfimg.core.errors import ExitCode, TfimgError, UsageError


def descendants(member: type[TfimgError]) -> set[type[TfimgError]]:
    return {member}.union(*(descendants(child) for child in member.__subclasses__()))


def error_classes() -> list[type[TfimgError]]:
    """Return the errors of the program; tests may define more."""
    return [member for member in descendants(TfimgError) if member.__module__ == "tfimg.core.errors"]


def test_every_exit_code_means_a_failure_and_has_an_error() -> None:
    assert set(ExitCode) == {member.exit_code for member in error_classes()}
    assert all(0 < code < 256 for code in ExitCode)


def test_each_error_has_a_meaning() -> None:
    sentences = {one: (vars(one).get("__doc__") or "").strip().splitlines()[:1] for one in error_classes()}
    assert [one for one, lines in sentences.items() if not re.fullmatch(r".+\.", "".join(lines))] == []


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
    assert str(UsageError("It is wrong.", next_step="")) == "It is wrong."
