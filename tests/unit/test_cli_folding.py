"""Texts on a terminal: folded at blanks, with commands in one piece."""

import os
import pty
import subprocess
import sys

import pytest

from tfimg.cli.output.streams import fold

COMMAND = "`tfimg engine up --install`"
SENTENCE = (
    f"No container engine answers on this machine. Start Docker, or let {COMMAND} set up an engine of tfimg's own."
)


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
@pytest.mark.parametrize("indent", [0, 8])
def test_lines_fit_and_a_command_stays_in_one_piece(columns: int, indent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    first, *rest = fold(SENTENCE, indent=indent).split("\n")
    assert max(map(len, [" " * indent + first, *rest])) <= columns
    assert " ".join([first, *(line.strip() for line in rest)]) == SENTENCE
    assert sum(COMMAND in line for line in [first, *rest]) == 1
    assert {line[:indent].strip() for line in rest} <= {""}


def test_a_terminal_without_room_gets_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert fold(SENTENCE, indent=21) == SENTENCE


@pytest.mark.parametrize("columns", [80, 50])
def test_an_error_is_folded_on_a_terminal_and_whole_elsewhere(columns: int) -> None:
    argv = [sys.executable, "-m", "tfimg", "resolve", "--tf", "2.15", "--python", "3.12"]
    environ = {**os.environ, "COLUMNS": str(columns)}
    whole = subprocess.run(argv, capture_output=True, text=True, check=False, env=environ).stderr
    assert max(map(len, whole.splitlines())) > 80
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb") as reader:
        subprocess.run(argv, stdout=theirs, stderr=theirs, check=False, env=environ)
        os.close(theirs)
        seen = reader.read1(1 << 16).decode().replace("\r\n", "\n")
    assert max(map(len, seen.splitlines())) <= columns
    assert seen.split() == whole.split()
    assert "\nWhat would work:\n  --tf 2.15 --python 3.11  (2.15.1-cpu-py3.11)\n" in seen
