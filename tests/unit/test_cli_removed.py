"""Removed commands and options are answered with what to do instead."""

from __future__ import annotations

import pytest

from support.cli import CliRunner
from tfimg.cli import removed
from tfimg.cli.app import COMMANDS, load_command, option_names


@pytest.mark.parametrize("command", removed.COMMANDS)
def test_a_removed_command_is_answered(tfimg: CliRunner, command: str) -> None:
    ended = tfimg(*command.split())
    assert (ended.code, ended.stderr.splitlines()[0]) == (2, f"tfimg: `tfimg {command}` was removed.")
    assert removed.COMMANDS[command] in ended.stderr
    assert command not in COMMANDS


@pytest.mark.parametrize(("command", "option"), removed.OPTIONS)
def test_a_removed_option_is_answered(tfimg: CliRunner, command: str, option: str) -> None:
    ended = tfimg(*command.split(), option)
    assert (ended.code, ended.stderr.splitlines()[0]) == (2, f"tfimg: `tfimg {command} {option}` was removed.")
    assert removed.OPTIONS[command, option] in ended.stderr
    assert option not in option_names(load_command(command))
