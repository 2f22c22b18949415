"""Removed commands and options are answered with what to do instead."""

import pytest

from support.cli import CliRunner
from support.cli_options import option_names
from tfimg.cli import removed
from tfimg.cli.app import COMMANDS


@pytest.mark.parametrize("command", removed.COMMANDS)
def test_a_removed_command_is_answered(tfimg: CliRunner, command: str) -> None:
    ended = tfimg(*command.split())
    assert ended.refusal(2) == f"`tfimg {command}` was removed. {removed.COMMANDS[command]}"
    assert command not in COMMANDS


@pytest.mark.parametrize(("command", "option"), [named for named in removed.OPTIONS if named[0]])
def test_a_removed_option_is_answered(tfimg: CliRunner, command: str, option: str) -> None:
    instead = removed.OPTIONS[command, option]
    command = command or "list"  # of any command
    assert tfimg(*command.split(), option).refusal(2) == f"`tfimg {command} {option}` was removed. {instead}"
    assert option not in option_names(command)


def test_an_option_that_every_command_has_lost_is_answered(tfimg: CliRunner) -> None:
    assert tfimg("build", "--flavor").refusal(2) == "`tfimg build --flavor` was removed. It is called --variant."
