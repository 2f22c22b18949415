"""`tfimg completion`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfimg.cli.app import COMMANDS, build_app
from tfimg.cli.context import Context
from tfimg.cli.options import (
    Command,
    argument,
)


@dataclass(frozen=True)
class Completion(Command):
    """Print a completion script for your shell.

    Examples:
      eval "$(tfimg completion bash)"
      tfimg completion fish > ~/.config/fish/completions/tfimg.fish
    """

    shell: Literal["bash", "zsh", "fish"] = argument("name of the shell", "SHELL")

    def run(self, _context: Context) -> int:
        print(build_app(COMMANDS).generate_completion(shell=self.shell))
        return 0
